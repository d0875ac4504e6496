#pragma once
// SimDrafter: proposes the drafts of a SimRunner. It knows what the target would choose and says so with a
// given probability per token, else something else; the seed decides when.
//
//   SimDrafter drafter({.shape = {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4}, .agreement = 0.7}, 1000);
//   std::vector<core::Draft> drafts = drafter.propose(3, hash, position, draw);
//
// In a tree the target's choice may also be one of the lower candidates. Immutable.

#include <functional>
#include <vector>

#include "core/batch.h"
#include "runner/runner.h"

namespace fathom::runner {

struct SimDrafterConfig {
  DrafterInfo shape{};     // num_steps 0 = no drafter
  double agreement = 0.7;  // [0, 1]
  uint64_t seed = 1;
};

class SimDrafter {
 public:
  // What the target chooses at a position after the rows with this hash; -1 = it has no choice.
  using Draw = std::function<int32_t(uint64_t hash, int32_t position)>;

  // REQUIRES: a shape that makes sense, fewer candidates than tokens in the vocabulary (checked).
  SimDrafter(const SimDrafterConfig& config, int vocab_size);

  // The best at most num_drafts drafts after a last token at `position`; `hash` includes it. Parents come before
  // their children, so the first n of them are a tree too.
  std::vector<core::Draft> propose(int num_drafts, uint64_t hash, int32_t position,
                                   const Draw& draw) const;

 private:
  struct Node {
    core::Draft draft{};
    int32_t depth = 0;
    uint64_t hash = 0;  // with this token
    double score = 0;   // stands for the cumulative log-probability: lower than the parent's
  };
  void expand(int32_t parent_idx, const Node& parent, int32_t position, const Draw& draw,
              std::vector<Node>& nodes) const;
  double uniform(uint64_t hash, uint64_t stream) const;

  SimDrafterConfig config_;
  int vocab_size_;
};

}  // namespace fathom::runner
