#include "api/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "api/context_overflow.h"
#include "base/json.h"

namespace fathom::api {
namespace {

constexpr int kMaxInt32 = std::numeric_limits<int>::max();

template <class T>
void keep(std::optional<T> value, T& target) {
  if (value) target = *value;
}

IntRange token_ids(const ServedModel& model) { return {0, int64_t{model.vocab_size} - 1}; }

bool is_stop_text(const json::Value& value, int max_bytes) {
  if (!value.is_string()) return false;
  const size_t size = value.get_ref<const std::string&>().size();
  return size > 0 && size <= static_cast<size_t>(max_bytes);
}

void read_stop_token_ids(FieldReader& reader, const ServedModel& model, GenerationItem& item) {
  const json::Value* ids =
      reader.array("stop_token_ids", static_cast<size_t>(model.limits.max_stop_token_ids));
  if (ids == nullptr) return;
  for (size_t i = 0; i < ids->size(); ++i) {
    const std::optional<int64_t> id = integer_in((*ids)[i], token_ids(model));
    if (!id) {
      reader.problem().set(broken_rule(element_path(reader.path_of("stop_token_ids"), i), (*ids)[i],
                                       "a token id, " + rule_of(token_ids(model))));
      return;
    }
    item.sampling.stop_token_ids.push_back(static_cast<int32_t>(*id));
  }
}

// Decimal digits as clients print ids; "01" would name a token a second time.
std::optional<int32_t> token_id_key(const std::string& key, int vocab_size) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool is_whole = error == std::errc() && end == key.data() + key.size();
  const bool has_zeros = key.size() > 1 && key.front() == '0';
  return is_whole && !has_zeros && id >= 0 && id < vocab_size ? std::optional(id) : std::nullopt;
}

void read_logit_bias(FieldReader& reader, const ServedModel& model, GenerationItem& item) {
  const json::Value* bias = reader.object("logit_bias");
  if (bias == nullptr) return;
  const int max_entries = model.limits.max_logit_bias;
  if (bias->size() > static_cast<size_t>(max_entries)) {
    reader.fail_with("logit_bias",
                     reader.path_of("logit_bias") + " has " + std::to_string(bias->size()) +
                         " entries, must have at most " + std::to_string(max_entries));
    return;
  }
  const std::string path = reader.path_of("logit_bias");
  for (const auto& [key, value] : bias->get_ref<const json::Value::object_t&>()) {
    const std::optional<int32_t> id = token_id_key(key, model.vocab_size);
    const std::optional<double> amount = number_in(value, {.min = -100, .max = 100});
    if (!id) {
      reader.fail_with("logit_bias", path + " has the key " + shown(json::Value(key)) +
                                         ", must be a token id, " + rule_of(token_ids(model)));
    } else if (!amount) {
      reader.fail_with("logit_bias", path + " of token " + std::to_string(*id) + " is " +
                                         shown(value) + ", must be a number in [-100, 100]");
    } else {
      item.sampling.logit_bias.emplace_back(*id, static_cast<float>(*amount));
    }
    if (reader.problem()) return;
  }
}

// Of the context: an upper bound is lowered to what is left unless that is less than this share. An answer with hardly
// any room breaks off, perhaps within a call, where a client that is told can shorten the conversation.
constexpr int64_t kLeastRoomShare = 16;

}  // namespace

void apply(const SamplingDefaults& defaults, core::SamplingParams& params) {
  params.temperature = defaults.temperature;
  params.top_p = defaults.top_p;
  params.top_k = defaults.top_k;
  params.min_p = defaults.min_p;
  params.repetition_penalty = defaults.repetition_penalty;
}

void read_stop(FieldReader& reader, std::string_view key, const RequestLimits& limits,
               GenerationItem& item) {
  const json::Value* stop = reader.find(key);
  if (stop == nullptr) return;
  const std::string one = "a string of 1 to " + std::to_string(limits.max_stop_bytes) + " bytes";
  if (is_stop_text(*stop, limits.max_stop_bytes)) {
    item.stop = {stop->get<std::string>()};
    return;
  }
  if (!stop->is_array() || stop->size() > static_cast<size_t>(limits.max_stop_strings)) {
    reader.fail(key, one + ", or an array of at most " + std::to_string(limits.max_stop_strings));
    return;
  }
  for (size_t i = 0; i < stop->size(); ++i) {
    const json::Value& text = (*stop)[i];
    if (!is_stop_text(text, limits.max_stop_bytes)) {
      reader.problem().set(broken_rule(element_path(reader.path_of(key), i), text, one));
      return;
    }
    item.stop.push_back(text.get<std::string>());
  }
}

void read_common_sampling(FieldReader& reader, core::SamplingParams& params) {
  keep(reader.number("temperature", {.min = 0, .max = 100}), params.temperature);
  // 0, which OpenAI's API takes, is the least share that there is: the likeliest token has it.
  if (const std::optional<float> top_p = reader.number("top_p", {.min = 0, .max = 1}))
    params.top_p = std::max(*top_p, std::numeric_limits<float>::min());
  keep(reader.integer("top_k", {-1, kMaxInt32}), params.top_k);
}

void read_token_choice(FieldReader& reader, const ServedModel& model, GenerationItem& item) {
  core::SamplingParams& params = item.sampling;
  read_common_sampling(reader, params);
  keep(reader.number("min_p", {.min = 0, .max = 1}), params.min_p);
  keep(reader.number("repetition_penalty", {.min = 0, .max = 2, .is_min_included = false}),
       params.repetition_penalty);
  keep(reader.number("frequency_penalty", {.min = -2, .max = 2}), params.frequency_penalty);
  keep(reader.number("presence_penalty", {.min = -2, .max = 2}), params.presence_penalty);
  keep(reader.boolean("ignore_eos"), params.ignore_eos);
  read_stop(reader, "stop", model.limits, item);
  read_stop_token_ids(reader, model, item);
  read_logit_bias(reader, model, item);
}

void read_sampling(FieldReader& reader, const ServedModel& model, GenerationItem& item) {
  read_token_choice(reader, model, item);
  keep(reader.integer("n", {1, model.limits.max_n}), item.n);
  keep(reader.boolean("skip_special_tokens"), item.skip_special_tokens);
  keep(reader.boolean("no_stop_trim"), item.no_stop_trim);
  // Checked, and both values mean the same: these tokenizers put nothing between tokens.
  reader.boolean("spaces_between_special_tokens");
}

std::optional<int> read_token_count(FieldReader& reader, std::string_view key) {
  return reader.integer(key, {0, kMaxInt32});
}

std::optional<int> read_token_limit(FieldReader& reader, std::string_view key) {
  return reader.integer(key, {kNoTokenLimit, kMaxInt32});
}

void fit_output(const OutputBudget& budget, const ServedModel& model, GenerationItem& item,
                FieldProblem& problem) {
  const auto num_prompt = static_cast<int64_t>(item.prompt.size());
  const int64_t context = model.max_context_tokens;
  const int64_t left = context - num_prompt;
  if (num_prompt == 0) {
    problem.set(invalid_parameter(budget.prompt_field,
                                  budget.prompt_field + " has no tokens, must have at least one"));
    return;
  }
  const PromptUse prompt{
      .field = budget.prompt_field, .num_tokens = num_prompt, .context = context};
  if (left < 0 || (left == 0 && budget.asked != 0)) {
    problem.set(prompt_too_long(prompt, problem.form()));
    return;
  }
  int64_t num_new = budget.asked.value_or(std::min<int64_t>(budget.fallback, left));
  if (budget.asked == kNoTokenLimit) num_new = left;
  if (num_new > left) {
    if (!budget.is_upper_bound || left < context / kLeastRoomShare) {
      problem.set(output_too_long(prompt, num_new, budget.max_field, problem.form()));
      return;
    }
    problem.skip_excess(budget.max_field);
    item.is_cut_by_context = true;
    num_new = left;
  }
  item.sampling.max_new_tokens = static_cast<int>(num_new);
  item.sampling.min_new_tokens = budget.min_tokens;
  if (budget.min_tokens > item.sampling.max_new_tokens) {
    problem.set(invalid_parameter(budget.min_field,
                                  budget.min_field + " is " + std::to_string(budget.min_tokens) +
                                      ", must be at most " + budget.max_field + ", which is " +
                                      std::to_string(item.sampling.max_new_tokens)));
  }
}

void check_num_sequences(const GenerationRequest& request, const ServedModel& model,
                         const std::string& prompt_field, FieldProblem& problem) {
  int64_t total = 0;
  for (const GenerationItem& item : request.items) total += item.n;
  if (total <= model.limits.max_sequences) return;
  problem.set(invalid_parameter(
      prompt_field, prompt_field + " and n ask for " + std::to_string(total) +
                        " answers, must be at most " + std::to_string(model.limits.max_sequences)));
}

}  // namespace fathom::api
