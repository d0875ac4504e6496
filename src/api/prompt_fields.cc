#include "api/prompt_fields.h"

#include <utility>

#include "api/context_overflow.h"
#include "base/json.h"

namespace fathom::api {
namespace {

RawPrompt read_text(const json::Value& value, std::string path, const ServedModel& model,
                    FieldProblem& problem) {
  const auto& text = value.get_ref<const std::string&>();
  check_text_fits(text.size(), path, model, problem);
  if (problem) return {};
  return {.path = std::move(path),
          .text = text,
          .ids = encode_raw(text, /*add_special_tokens=*/true, model)};
}

// One element of a batch, all of which are of one kind.
RawPrompt read_element(const json::Value& value, std::string path, bool are_texts,
                       const ServedModel& model, FieldProblem& problem) {
  if (are_texts && value.is_string()) return read_text(value, std::move(path), model, problem);
  if (!are_texts && value.is_array()) {
    std::vector<int32_t> ids = read_token_ids(value, path, model, problem);
    return {.path = std::move(path), .text = "", .ids = std::move(ids)};
  }
  problem.set(broken_rule(
      path, value,
      are_texts ? "a string, as the first one is" : "an array of token ids, as the first one is"));
  return {};
}

}  // namespace

std::vector<int32_t> encode_raw(const std::string& text, bool add_special_tokens,
                                const ServedModel& model) {
  const text::Tokenizer& tokenizer = *model.tokenizer;
  const bool add_bos = add_special_tokens && tokenizer.add_bos_token() && tokenizer.bos_id() >= 0;
  return tokenizer.encode(text, {.add_bos = add_bos, .parse_special = true});
}

void check_text_fits(size_t num_bytes, const std::string& path, const ServedModel& model,
                     FieldProblem& problem) {
  if (model.longest_token_bytes == 0) return;
  const size_t min_tokens = num_bytes / model.longest_token_bytes;
  if (min_tokens <= static_cast<size_t>(model.max_context_tokens)) return;
  problem.set(prompt_too_long({.field = path,
                               .num_tokens = static_cast<int64_t>(min_tokens),
                               .context = model.max_context_tokens,
                               .is_lower_bound = true},
                              problem.form()));
}

std::vector<int32_t> read_token_ids(const json::Value& value, const std::string& path,
                                    const ServedModel& model, FieldProblem& problem) {
  if (value.size() > static_cast<size_t>(model.max_context_tokens)) {
    problem.set(prompt_too_long({.field = path,
                                 .num_tokens = static_cast<int64_t>(value.size()),
                                 .context = model.max_context_tokens},
                                problem.form()));
    return {};
  }
  const IntRange range{0, int64_t{model.vocab_size} - 1};
  std::vector<int32_t> ids;
  ids.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    const std::optional<int64_t> id = integer_in(value[i], range);
    if (!id) {
      problem.set(broken_rule(element_path(path, i), value[i], "a token id, " + rule_of(range)));
      return {};
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

RawPrompts read_prompts(const json::Value& value, const std::string& path, const ServedModel& model,
                        FieldProblem& problem) {
  if (value.is_string())
    return {.prompts = {read_text(value, path, model, problem)}, .is_batch = false};
  const bool is_array = value.is_array() && !value.empty();
  const bool are_texts = is_array && value.front().is_string();
  const bool are_lists = is_array && value.front().is_array();
  if (!is_array) {
    problem.set(broken_rule(path, value,
                            "a string, an array of strings, an array of token ids or an array of "
                            "such arrays, and not empty"));
    return {};
  }
  if (!are_texts && !are_lists) {
    return {
        .prompts = {{.path = path, .text = "", .ids = read_token_ids(value, path, model, problem)}},
        .is_batch = false};
  }
  if (value.size() > static_cast<size_t>(model.limits.max_sequences)) {
    problem.set(broken_rule(path, value,
                            "at most " + std::to_string(model.limits.max_sequences) + " prompts"));
    return {};
  }
  RawPrompts batch{.prompts = {}, .is_batch = true};
  for (size_t i = 0; i < value.size() && !problem; ++i) {
    batch.prompts.push_back(
        read_element(value[i], element_path(path, i), are_texts, model, problem));
  }
  return batch;
}

}  // namespace fathom::api
