#include "api/gap_prompt.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "api/prompt_fields.h"

namespace fathom::api {
namespace {

constexpr std::string_view kGapBegin = "<｜fim▁begin｜>", kGapHole = "<｜fim▁hole｜>",
                           kGapEnd = "<｜fim▁end｜>";

}  // namespace

bool can_fill_gaps(const ServedModel& model) {
  return std::ranges::all_of(std::initializer_list<std::string_view>{kGapBegin, kGapHole, kGapEnd},
                             [&](std::string_view mark) {
                               const auto id = model.tokenizer->added_token_id(mark);
                               return id && *id < model.vocab_size;
                             });
}

std::string no_gaps_message() {
  return "suffix asks to fill a gap, and the tokenizer of this model lacks the tokens " +
         std::string(kGapBegin) + ", " + std::string(kGapHole) + " and " + std::string(kGapEnd);
}

std::vector<int32_t> encode_around_gap(const std::string& prompt, const std::string& suffix,
                                       const std::string& path, const ServedModel& model,
                                       FieldProblem& problem) {
  check_text_fits(prompt.size() + suffix.size(), path, model, problem);
  if (problem) return {};
  std::string text(kGapBegin);
  ((text += prompt) += kGapHole) += suffix;
  text += kGapEnd;
  return encode_raw(text, /*add_special_tokens=*/true, model);
}

}  // namespace fathom::api
