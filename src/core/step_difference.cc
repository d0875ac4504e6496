#include "core/step_difference.h"

namespace fathom::core {
namespace {

bool same_tokens(const SliceResult& a, const SliceResult& b) {
  if (a.tokens.size() != b.tokens.size()) return false;
  for (size_t i = 0; i < a.tokens.size(); ++i)
    if (a.tokens[i].token != b.tokens[i].token) return false;
  return true;
}

// "tokens 5, 17", "no token", or why there is none.
std::string sampled(const SliceResult& slice) {
  if (!slice.error.empty()) return "nothing (" + slice.error + ")";
  if (slice.tokens.empty()) return "no token";
  std::string text;
  for (const SampledToken& token : slice.tokens)
    text += (text.empty() ? "token " : ", ") + std::to_string(token.token);
  return text;
}

std::string slice_difference(const SliceResult& first, const SliceResult& other,
                             const TwoRanks& ranks) {
  const std::string a = "rank " + std::to_string(ranks.first),
                    b = "rank " + std::to_string(ranks.other);
  if (first.error.empty() != other.error.empty() || !same_tokens(first, other))
    return b + " sampled " + sampled(other) + ", " + a + " " + sampled(first);
  if (first.drafts != other.drafts || first.num_verified_drafts != other.num_verified_drafts)
    return b + " and " + a + " have other drafts";
  return "";
}

}  // namespace

std::string difference(const StepResult& first, const StepResult& other, const TwoRanks& ranks) {
  if (first.step_id != other.step_id || first.slices.size() != other.slices.size())
    return "rank " + std::to_string(ranks.other) + " ran step " + std::to_string(other.step_id) +
           " of " + std::to_string(other.slices.size()) + " slices, rank " +
           std::to_string(ranks.first) + " step " + std::to_string(first.step_id) + " of " +
           std::to_string(first.slices.size());
  for (size_t i = 0; i < first.slices.size(); ++i) {
    std::string what = slice_difference(first.slices[i], other.slices[i], ranks);
    if (!what.empty()) return what;
  }
  return "";
}

}  // namespace fathom::core
