#pragma once
// RankedRunner: one runner over the ranks that compute the same tokens. Every rank gets every batch and every mask; the
// result is rank 0's, once all have theirs.
//
//   RankedRunner runner(std::move(members));              // started, in the order of ranks
//   runner.submit(batch);
//   core::StepResult result = runner.wait();
//
// The ranks must have sampled the same tokens and drafts, which is compared in every step. Where one has not, what they
// hold no longer belongs together: the error goes to the log with the rank, and from that step on every slice of every
// result has it as its error and no token. Nothing that was computed apart is served.
//
// Threads and contract: runner.h. Owns the members, which end together.

#include <memory>
#include <string>
#include <vector>

#include "runner/model_runner.h"

namespace fathom::runner {

class RankedRunner : public Runner {
 public:
  // REQUIRES: at least one; all have the same info().
  explicit RankedRunner(std::vector<std::unique_ptr<ModelRunner>> members);
  ~RankedRunner() override;

  const RunnerInfo& info() const override { return members_[0]->info(); }
  void submit(const core::Batch& batch) override;
  core::StepResult wait() override;
  void set_masks(core::StepMasks masks) override;
  core::SliceWork slice_work(int num_tokens, int64_t kv_begin) const override;
  int in_flight() const override { return members_[0]->in_flight(); }
  int64_t next_step_id() const override { return members_[0]->next_step_id(); }

 private:
  std::vector<std::unique_ptr<ModelRunner>> members_;
  std::string desync_;  // empty = all agree
};

// How two ranks' results of a step differ, in a sentence; empty = they do not.
std::string difference(const core::StepResult& first, const core::StepResult& other, int rank);

}  // namespace fathom::runner
