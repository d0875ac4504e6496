#include "runner/ranked_runner.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace fathom::runner {
namespace {

bool same_tokens(const core::SliceResult& a, const core::SliceResult& b) {
  if (a.tokens.size() != b.tokens.size()) return false;
  for (size_t i = 0; i < a.tokens.size(); ++i)
    if (a.tokens[i].token != b.tokens[i].token) return false;
  return true;
}

// "tokens 5, 17", "no token", or why there is none.
std::string sampled(const core::SliceResult& slice) {
  if (!slice.error.empty()) return "nothing (" + slice.error + ")";
  if (slice.tokens.empty()) return "no token";
  std::string text;
  for (const core::SampledToken& token : slice.tokens)
    text += (text.empty() ? "token " : ", ") + std::to_string(token.token);
  return text;
}

std::string slice_difference(const core::SliceResult& first, const core::SliceResult& other,
                             const std::string& rank) {
  if (first.error.empty() != other.error.empty() || !same_tokens(first, other))
    return rank + " sampled " + sampled(other) + ", rank 0 " + sampled(first);
  if (first.drafts != other.drafts || first.num_verified_drafts != other.num_verified_drafts)
    return rank + " and rank 0 have other drafts";
  return "";
}

}  // namespace

std::string difference(const core::StepResult& first, const core::StepResult& other, int rank) {
  const std::string name = "rank " + std::to_string(rank);
  const std::string where = " in step " + std::to_string(first.step_id);
  if (first.step_id != other.step_id || first.slices.size() != other.slices.size())
    return name + " ran step " + std::to_string(other.step_id) + " of " +
           std::to_string(other.slices.size()) + " slices, rank 0 step " +
           std::to_string(first.step_id) + " of " + std::to_string(first.slices.size());
  for (size_t i = 0; i < first.slices.size(); ++i) {
    const std::string what = slice_difference(first.slices[i], other.slices[i], name);
    if (!what.empty()) return what + where;
  }
  return "";
}

RankedRunner::RankedRunner(std::vector<std::unique_ptr<ModelRunner>> members)
    : members_(std::move(members)) {
  FATHOM_CHECK(!members_.empty(), "a runner over no ranks");
}

// A rank that ends waits for its steps, and in them for the others.
RankedRunner::~RankedRunner() {
  for (const auto& member : members_) member->finish();
}

void RankedRunner::submit(const core::Batch& batch) {
  for (const auto& member : members_) member->submit(batch);
}

core::StepResult RankedRunner::wait() {
  core::StepResult result = members_[0]->wait();
  for (size_t rank = 1; rank < members_.size(); ++rank) {
    const core::StepResult other = members_[rank]->wait();
    if (!desync_.empty()) continue;
    desync_ = difference(result, other, static_cast<int>(rank));
    if (desync_.empty()) continue;
    desync_ += ": the ranks of the model no longer agree, start the server again";
    FATHOM_LOG(kError, "runner", "ranks disagree", {{"what", desync_}});
  }
  if (desync_.empty()) return result;
  for (core::SliceResult& slice : result.slices) slice = {.slot = slice.slot, .error = desync_};
  return result;
}

void RankedRunner::set_masks(core::StepMasks masks) {
  for (size_t rank = 1; rank < members_.size(); ++rank) members_[rank]->set_masks(masks);
  members_[0]->set_masks(std::move(masks));
}

core::SliceWork RankedRunner::slice_work(int num_tokens, int64_t kv_begin) const {
  return members_[0]->slice_work(num_tokens, kv_begin);
}

}  // namespace fathom::runner
