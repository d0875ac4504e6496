#pragma once
// How tokens are chosen and where the output ends: the fields that chat, completions and the native API
// spell alike, and the fit of prompt and output into the context.
//
//   GenerationItem item;
//   read_sampling(reader, model, item);
//   item.prompt = encoded;
//   fit_output({.asked = max_tokens, .fallback = 16, .max_field = "max_tokens"}, model, item, problem);
//
// Pure, thread-safe.

#include <optional>
#include <string>

#include "api/generation_request.h"
#include "api/served_model.h"
#include "api/tables/field_reader.h"

namespace fathom::api {

void apply(const SamplingDefaults& defaults, core::SamplingParams& params);

// temperature, top_p, top_k, min_p, penalties, logit_bias, stop, stop_token_ids, ignore_eos. Fields that are missing
// keep what the item has.
void read_token_choice(FieldReader& reader, const ServedModel& model, GenerationItem& item);
// The same and n, skip_special_tokens, spaces_between_special_tokens, no_stop_trim.
void read_sampling(FieldReader& reader, const ServedModel& model, GenerationItem& item);

// Its parts that other forms have too: temperature, top_p, top_k.
void read_common_sampling(FieldReader& reader, core::SamplingParams& params);
// `stop` or what the endpoint calls it: a text or texts.
void read_stop(FieldReader& reader, std::string_view key, const RequestLimits& limits,
               GenerationItem& item);

// min_tokens or what the endpoint calls it: [0, 2^31 - 1].
std::optional<int> read_token_count(FieldReader& reader, std::string_view key);
// max_tokens or what the endpoint calls it: a count, or kNoTokenLimit.
inline constexpr int kNoTokenLimit = -1;
std::optional<int> read_token_limit(FieldReader& reader, std::string_view key);

struct OutputBudget {
  std::optional<int> asked;  // for at most so many tokens; kNoTokenLimit: what the context has left
  int fallback = 0;          // otherwise; less where the context has less
  int min_tokens = 0;
  std::string max_field, min_field;  // their paths
  std::string prompt_field;
  // More than the context has left is lowered to that, unless hardly any is left; otherwise it is an error.
  bool is_upper_bound = false;
};

// Sets max_new_tokens and min_new_tokens of the item. Too long for the context: a 400 that names the prompt
// when nothing fits after it, otherwise the field that asked for too much, in the words of context_overflow.h.
void fit_output(const OutputBudget& budget, const ServedModel& model, GenerationItem& item,
                FieldProblem& problem);

// n times the number of items, which is what the engine is given.
void check_num_sequences(const GenerationRequest& request, const ServedModel& model,
                         const std::string& prompt_field, FieldProblem& problem);

}  // namespace fathom::api
