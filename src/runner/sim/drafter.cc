#include "runner/sim/drafter.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "ops/mla.h"
#include "runner/sim/hash.h"

namespace fathom::runner {

SimDrafter::SimDrafter(const SimDrafterConfig& config, int vocab_size)
    : config_(config), vocab_size_(vocab_size) {
  const DrafterInfo& shape = config.shape;
  if (shape.num_steps == 0) return;
  FATHOM_CHECK(shape.num_steps > 0 && shape.top_k >= 1 && shape.top_k < vocab_size &&
                   shape.num_draft_tokens >= 2 && shape.num_draft_tokens <= ops::kMaxTreeTokens &&
                   (shape.top_k > 1 || shape.num_draft_tokens == shape.num_steps + 1),
               "a drafter of " << shape.num_steps << " steps, top " << shape.top_k << ", "
                               << shape.num_draft_tokens << " draft tokens");
}

double SimDrafter::uniform(uint64_t hash, uint64_t stream) const {
  return static_cast<double>(mix64(hash ^ mix64(config_.seed + stream)) >> 11) * 0x1p-53;
}

void SimDrafter::expand(int32_t parent_idx, const Node& parent, int32_t position, const Draw& draw,
                        std::vector<Node>& nodes) const {
  const int32_t child_position = position + parent.depth + 1;
  const int32_t target = std::max(0, draw(parent.hash, child_position));
  const int top_k = config_.shape.top_k;
  int agreeing_rank = top_k;  // none
  if (uniform(parent.hash, 1) < config_.agreement) {
    agreeing_rank = 0;
  } else if (top_k > 1 && uniform(parent.hash, 2) < config_.agreement) {
    agreeing_rank = 1 + static_cast<int>(parent.hash % static_cast<uint64_t>(top_k - 1));
  }
  for (int rank = 0; rank < top_k; ++rank) {
    const int32_t token = rank == agreeing_rank ? target : (target + 1 + rank) % vocab_size_;
    const uint64_t hash = sim_extend(parent.hash, token, child_position);
    nodes.push_back({.draft = {.token = token, .parent = parent_idx},
                     .depth = parent.depth + 1,
                     .hash = hash,
                     .score = parent.score - 0.05 - 0.4 * rank - 0.5 * uniform(hash, 3)});
  }
}

std::vector<core::Draft> SimDrafter::propose(int num_drafts, uint64_t hash, int32_t position,
                                             const Draw& draw) const {
  const int limit = std::min(num_drafts, config_.shape.max_drafts());
  if (limit <= 0) return {};
  std::vector<Node> nodes;
  const auto is_better = [&nodes](int32_t a, int32_t b) {
    return nodes[static_cast<size_t>(a)].score > nodes[static_cast<size_t>(b)].score;
  };
  expand(-1, {.hash = hash}, position, draw, nodes);
  size_t level_begin = 0;
  for (int step = 1; step < std::min(config_.shape.num_steps, limit); ++step) {
    std::vector<int32_t> level(nodes.size() - level_begin);
    std::iota(level.begin(), level.end(), static_cast<int32_t>(level_begin));
    level_begin = nodes.size();
    std::stable_sort(level.begin(), level.end(), is_better);
    level.resize(std::min(level.size(), static_cast<size_t>(config_.shape.top_k)));
    for (const int32_t idx : level) {
      const Node parent = nodes[static_cast<size_t>(idx)];
      expand(idx, parent, position, draw, nodes);
    }
  }
  std::vector<int32_t> best(nodes.size());
  std::iota(best.begin(), best.end(), 0);
  std::stable_sort(best.begin(), best.end(), is_better);
  best.resize(std::min(best.size(), static_cast<size_t>(limit)));
  // A parent scores higher than its children, so it is among the best and comes first.
  std::vector<int32_t> new_idx(nodes.size(), -1);
  std::vector<core::Draft> drafts;
  for (const int32_t idx : best) {
    const core::Draft& draft = nodes[static_cast<size_t>(idx)].draft;
    new_idx[static_cast<size_t>(idx)] = static_cast<int32_t>(drafts.size());
    drafts.push_back(
        {.token = draft.token,
         .parent = draft.parent < 0 ? -1 : new_idx[static_cast<size_t>(draft.parent)]});
  }
  return drafts;
}

}  // namespace fathom::runner
