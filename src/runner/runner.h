#pragma once
// Runner: one rank's step. Takes batches in order, at most kMaxInFlight submitted and not yet
// waited for, and returns their results in the same order. submit() does not wait for the step, and
// the device takes decode tokens from its own slots, so step n+1 can be submitted before wait() has
// returned step n.
//
//   runner.submit(batch0);
//   runner.submit(batch1);                       // planned without knowing batch0's tokens
//   core::StepResult result0 = runner.wait();
//
// A slice whose tokens a grammar limits has wants_mask; its mask follows while the step is under way:
//
//   runner.submit(batch);                        // slices[3].wants_mask
//   runner.set_masks({.step_id = batch.step_id, .masks = {{.slice_idx = 3, .words = mask}}});
//
// A runner may have several lanes: groups of ranks, each with slots and blocks of its own. Slot s is lane
// s / slots_per_lane()'s, and the blocks of its sequence are among those of that lane. One batch holds what all lanes
// compute in a step.
//
// One thread calls a runner, or one submits and another waits; set_masks() any. Implementations: ModelRunner (a model
// on a backend) and SimRunner (no model: the next token is a hash of the tokens read through the real block tables).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "core/slice_work.h"

namespace fathom::runner {

// What one kind of cache costs and offers; a layer names its group. MLA models have one group.
struct KvGroupInfo {
  std::string name{};                     // "mla"
  int num_blocks = 0, block_tokens = 64;  // blocks of each lane
  int64_t block_bytes = 0;                // all layers of the group
  // How many tokens behind its own a row depends on: 1 for a drafter that reads the next token with the row's
  // hidden state. Whoever shares such a row must have the same tokens there.
  int lookahead_tokens = 0;
};

// What proposes drafts. num_steps 0: nothing does. top_k 1 is a chain of num_steps drafts, num_draft_tokens =
// num_steps + 1. More is a tree: in each step the top_k best continuations of the top_k best nodes, and of all
// these the num_draft_tokens - 1 best with what lies above them. The last token, its root, counts as one.
struct DrafterInfo {
  int num_steps = 0, top_k = 1, num_draft_tokens = 0;
  int max_drafts() const { return num_steps == 0 ? 0 : num_draft_tokens - 1; }  // of a slot
};

struct RunnerInfo {
  int vocab_size = 0;
  int64_t max_context_tokens = 0;  // longest sequence: min(model, pool)
  int num_lanes = 1;
  int max_slots = 0;  // running sequences of all lanes, which have equally many
  int max_batch_tokens =
      0;  // query tokens of one step, of all lanes together; any lane may have all of them
  int max_top_logprobs = core::kMaxTopLogprobs;
  int step_start_tokens = core::kStepStartTokens;  // ops::BackendDefaults
  std::vector<KvGroupInfo> kv_groups{};
  DrafterInfo drafter{};

  int slots_per_lane() const { return max_slots / num_lanes; }
};

// Of the kernels that operators have: some may be compiled while the program runs.
struct CodeVersion {
  int64_t number = 0;
  bool is_final = true;  // it stays
};
using GetCodeVersion = std::function<CodeVersion()>;

using SharedMasks = std::shared_ptr<const core::StepMasks>;

class Runner {
 public:
  static constexpr int kMaxInFlight = 2;

  virtual ~Runner() = default;
  virtual const RunnerInfo& info() const = 0;
  // REQUIRES: fewer than kMaxInFlight steps in flight; the batch fits info(); slots, tokens and
  // blocks are valid. A violation is a programmer error: requests are validated before they become
  // batches.
  virtual void submit(const core::Batch& batch) = 0;
  // REQUIRES: a step in flight. Blocks until the oldest is done; that is, if it wants masks, until they have
  // come.
  virtual core::StepResult wait() = 0;
  // The masks of a submitted step that has slices with wants_mask, exactly once. Only the sampling of that
  // step waits for them, its forward pass does not (late masks). Any thread; the runner outlives the call.
  // A step without such slices gets none. Every step gets its masks, also when all its requests have ended
  // meanwhile (all ones will do): wait() relies on it. A runner that is destroyed waits for no masks.
  void set_masks(core::StepMasks masks) {
    share_masks(std::make_shared<const core::StepMasks>(std::move(masks)));
  }
  // The same of masks that several runners have: ranks of a lane sample the same rows.
  virtual void share_masks(SharedMasks masks) = 0;
  // What a slice of num_tokens query tokens behind kv_begin rows makes it compute. Depends on nothing else. Any thread.
  virtual core::SliceWork slice_work(int num_tokens, int64_t kv_begin) const = 0;
  virtual int in_flight() const = 0;
  // What submit() expects as Batch::step_id: 0, then one more each time.
  virtual int64_t next_step_id() const = 0;
  // No batch follows. Of runners that compute together all are told before one is destroyed: it may wait for them.
  virtual void finish() {}
  // Another runner has failed without which this one's steps never end: wait() no longer blocks, and what it has not
  // got is a result without slices. Nothing is submitted any more. Any thread.
  virtual void give_up() {}
  // Why no step can succeed any more, in a sentence; empty = steps can. Every slice of every result has it as its error
  // from then on, and ends as core::kStartAgain says. Any thread.
  virtual std::string failure() const { return ""; }
};

}  // namespace fathom::runner
