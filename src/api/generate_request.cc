#include "api/generate_request.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "api/grammar_fields.h"
#include "api/prompt_fields.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"
#include "api/tables/endpoint_fields.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

constexpr int kDefaultMaxNewTokens = 128;  // as SGLang's API
constexpr int kMaxInt = std::numeric_limits<int>::max();

class GenerateRequestParser {
 public:
  GenerateRequestParser(json::Members& body, const ServedModel& model)
      : model_(model), reader_(body, generate_fields(), problem_) {}

  Parsed<GenerationRequest> parse() && {
    request_.form.endpoint = Endpoint::kGenerate;
    read_model(reader_, model_, request_);
    request_.form.stream = reader_.boolean("stream").value_or(false);
    request_.form.return_text_in_logprobs =
        reader_.boolean("return_text_in_logprobs").value_or(false);
    request_.form.return_prompt_token_ids =
        reader_.boolean("return_prompt_token_ids").value_or(false);
    read_placement(reader_, model_, request_);
    if (!problem_) read_items();
    if (!problem_) read_rids();
    if (!problem_) check_num_sequences(request_, model_, prompt_field_, problem_);
    if (problem_) return problem_.error();
    return std::move(request_);
  }

 private:
  RawPrompts read_prompt_field() {
    const json::Value* text = reader_.find("text");
    const json::Value* ids = reader_.find("input_ids");
    if ((text == nullptr) == (ids == nullptr)) {
      reader_.fail_with(text == nullptr ? "text" : "input_ids",
                        "exactly one of text and input_ids must be set");
      return {};
    }
    prompt_field_ = text != nullptr ? "text" : "input_ids";
    const json::Value& prompt = text != nullptr ? *text : *ids;
    const json::Value& first = prompt.is_array() && !prompt.empty() ? prompt.front() : prompt;
    if (text != nullptr && !first.is_string()) {
      reader_.fail("text", "a string or an array of strings, and not empty");
      return {};
    }
    if (ids != nullptr && (prompt.empty() || !prompt.is_array() || first.is_string())) {
      reader_.fail("input_ids", "an array of token ids or of such arrays, and not empty");
      return {};
    }
    return read_prompts(prompt, prompt_field_, model_, problem_);
  }

  void read_items() {
    RawPrompts prompts = read_prompt_field();
    request_.form.is_batch = prompts.is_batch;
    num_items_ = prompts.prompts.size();
    const json::Value* params = list_field("sampling_params");
    // One dict for all is read once, however many prompts there are.
    const std::optional<Settings> shared =
        params == nullptr || params->is_array()
            ? std::nullopt
            : std::optional(read_settings(params, reader_.path_of("sampling_params")));
    for (size_t i = 0; i < num_items_ && !problem_; ++i) {
      Settings settings = shared ? *shared : read_settings_of(params, i);
      if (problem_) return;
      read_logprobs(i, prompts.prompts[i].ids.size(), settings.item);
      settings.item.prompt = std::move(prompts.prompts[i].ids);
      settings.budget.prompt_field = prompts.prompts[i].path;
      if (!problem_) fit_output(settings.budget, model_, settings.item, problem_);
      request_.items.push_back(std::move(settings.item));
    }
  }

  struct Settings {
    GenerationItem item;
    OutputBudget budget;
  };

  Settings read_settings_of(const json::Value* params, size_t i) {
    const std::string path = reader_.path_of("sampling_params");
    if (params == nullptr) return read_settings(nullptr, path);
    const json::Value& own = (*params)[i];
    return read_settings(own.is_null() ? nullptr : &own, element_path(path, i));
  }

  Settings read_settings(const json::Value* params, const std::string& path) {
    static const json::Value no_settings = json::Value::object();
    if (params != nullptr && !params->is_object()) {
      problem_.set(broken_rule(path, *params, "an object"));
      return {};
    }
    FieldReader reader(params == nullptr ? no_settings : *params, path, sampling_params_fields(),
                       problem_);
    Settings settings;
    GenerationItem& item = settings.item;
    read_sampling(reader, model_, item);
    item.sampling.seed = reader.seed("sampling_seed");
    item.grammar = read_grammar(reader, model_, GrammarNames::kSglang).source;
    item.native.stream_interval = reader.integer("stream_interval", {1, kMaxInt}).value_or(1);
    settings.budget = {.asked = read_token_limit(reader, "max_new_tokens"),
                       .fallback = kDefaultMaxNewTokens,
                       .min_tokens = read_token_count(reader, "min_new_tokens").value_or(0),
                       .max_field = reader.path_of("max_new_tokens"),
                       .min_field = reader.path_of("min_new_tokens"),
                       .prompt_field = ""};
    return settings;
  }

  // A field that is one value for all items or an array with one for each.
  const json::Value* list_field(std::string_view key) {
    const json::Value* value = reader_.find(key);
    if (value == nullptr || !value->is_array()) return value;
    if (!request_.form.is_batch || value->size() != num_items_) {
      reader_.fail(key, request_.form.is_batch
                            ? "one value, or an array of " + std::to_string(num_items_) +
                                  ", one for each prompt"
                            : "one value, there is one prompt");
      return nullptr;
    }
    return value;
  }

  struct Element {
    const json::Value* value = nullptr;  // null: not set
    std::string path;
  };
  Element element(std::string_view key, size_t i) {
    const json::Value* value = list_field(key);
    if (value == nullptr) return {};
    if (!value->is_array()) return {.value = value, .path = reader_.path_of(key)};
    const json::Value& own = (*value)[i];
    return {.value = own.is_null() ? nullptr : &own, .path = element_path(reader_.path_of(key), i)};
  }

  bool flag(std::string_view key, size_t i) {
    const Element field = element(key, i);
    if (field.value == nullptr) return false;
    if (!field.value->is_boolean()) {
      problem_.set(broken_rule(field.path, *field.value, "true or false"));
      return false;
    }
    return field.value->get<bool>();
  }

  int number(std::string_view key, size_t i, IntRange range, int fallback) {
    const Element field = element(key, i);
    if (field.value == nullptr) return fallback;
    const std::optional<int64_t> value = integer_in(*field.value, range);
    if (!value) problem_.set(broken_rule(field.path, *field.value, rule_of(range)));
    return static_cast<int>(value.value_or(fallback));
  }

  // The other two are checked, and count only with return_logprob.
  void read_logprobs(size_t i, size_t num_prompt_tokens, GenerationItem& item) {
    const bool is_on = flag("return_logprob", i);
    const int num_top = number("top_logprobs_num", i, {0, model_.limits.max_top_logprobs}, 0);
    const int64_t last = std::max<int64_t>(static_cast<int64_t>(num_prompt_tokens) - 1, 0);
    const int start = number("logprob_start_len", i, {-1, last}, -1);
    if (!is_on) return;
    item.sampling.return_logprobs = true;
    item.sampling.num_top_logprobs = num_top;
    item.sampling.return_prompt_logprobs = start >= 0;
    item.native.logprob_start_len = start;
  }

  void read_rids() {
    std::unordered_set<std::string> seen;
    const json::Value* rid = reader_.find("rid");
    if (rid == nullptr) return;
    if (!rid->is_array() && request_.items.size() > 1) {
      reader_.fail("rid", "an array of one string for each prompt");
      return;
    }
    for (size_t i = 0; i < request_.items.size() && !problem_; ++i) {
      const Element field = element("rid", i);
      if (field.value == nullptr) continue;
      std::string& id = request_.items[i].native.request_id;
      id = read_request_id(*field.value, field.path, model_, problem_).value_or("");
      if (!problem_ && !seen.insert(id).second) {
        problem_.set(broken_rule(field.path, *field.value, "another one for each prompt"));
      }
    }
    if (!request_.form.is_batch && !problem_)
      request_.form.id = request_.items.front().native.request_id;
  }

  const ServedModel& model_;
  FieldProblem problem_{policy_of("/generate", model_)};
  FieldReader reader_;
  GenerationRequest request_;
  std::string prompt_field_;
  size_t num_items_ = 0;
};

}  // namespace

Parsed<GenerationRequest> parse_generate_request(std::string_view body, const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  return GenerateRequestParser(std::get<json::Members>(members), model).parse();
}

}  // namespace fathom::api
