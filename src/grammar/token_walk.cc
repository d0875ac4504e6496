#include "grammar/token_walk.h"

#include <algorithm>
#include <utility>

namespace fathom::grammar {
namespace {

// A local mask may take this many looked-at items: a hostile grammar must not stall its request for long.
constexpr int64_t kMaxLocalWork = 20'000'000;

size_t num_words(const Vocabulary& vocabulary) {
  return (static_cast<size_t>(vocabulary.size()) + 63) / 64;
}

void set_bit(std::span<uint64_t> words, int32_t token) {
  const auto idx = static_cast<size_t>(token);
  if (idx / 64 < words.size()) words[idx / 64] |= uint64_t{1} << (idx % 64);
}

}  // namespace

// frames[d] stands for the prefix that is d bytes longer than tree_node's; frames.size() == 1 at the start.
template <class OnTokens, class OnEnd>
void TokenWalk::walk(Stepper& stepper, std::vector<Stepper::Frame>& frames, int32_t tree_node,
                     int64_t max_work, const OnTokens& on_tokens, const OnEnd& on_end) const {
  const std::span<const Vocabulary::Node> nodes = vocabulary_.nodes();
  const Vocabulary::Node& root = nodes[static_cast<size_t>(tree_node)];
  int32_t at = tree_node + 1;
  while (at < root.subtree_end) {
    const Vocabulary::Node& node = nodes[static_cast<size_t>(at)];
    frames.resize(static_cast<size_t>(node.depth - root.depth));
    Stepper::Frame& above = frames.back();
    stepper.rewind(above);
    if (!above.is_expanded) {
      stepper.expand(above);
      // Preorder: the node before a first child is its parent.
      if (above.reaches_bottom) on_end(at - 1);
    }
    const Stepper::Frame frame = stepper.read(above, node.byte);
    if (frame.empty()) {
      at = node.subtree_end;
      continue;
    }
    if (node.num_tokens > 0) on_tokens(vocabulary_.node_tokens(node));
    if (stepper.work() > max_work) return;
    frames.push_back(frame);
    ++at;
  }
}

LocalMask TokenWalk::local_mask(int32_t state) const {
  LocalMask mask;
  Stepper stepper(automaton_);
  const Stepper::Item start = {state, Stepper::kBottom};
  std::vector<Stepper::Frame> frames = {stepper.begin({&start, 1})};
  stepper.expand(frames[0]);
  mask.may_end = frames[0].reaches_bottom;
  for (const Stepper::Item& item : stepper.expanded(frames[0])) {
    for (const Automaton::TokenEdge& edge : automaton_.token_edges(item.state)) {
      if (edge.token < vocabulary_.size()) mask.tokens.push_back(edge.token);
    }
  }
  walk(
      stepper, frames, 0, kMaxLocalWork,
      [&](std::span<const int32_t> tokens) {
        mask.tokens.insert(mask.tokens.end(), tokens.begin(), tokens.end());
      },
      [&](int32_t tree_node) { mask.end_nodes.push_back(tree_node); });
  if (mask.tokens.size() > 2 * num_words(vocabulary_)) {
    mask.words.resize(num_words(vocabulary_));
    for (const int32_t token : mask.tokens) set_bit(mask.words, token);
    mask.tokens.clear();
  }
  mask.tokens.shrink_to_fit();
  mask.end_nodes.shrink_to_fit();
  return mask;
}

void TokenWalk::continue_from(Stepper& stepper, Stepper::Frame frame,
                              std::span<const int32_t> tree_nodes, int64_t max_work,
                              std::span<uint64_t> words) const {
  stepper.expand(frame);
  std::vector<Stepper::Frame> frames;
  for (const int32_t tree_node : tree_nodes) {
    if (stepper.work() > max_work) return;
    frames.assign(1, frame);
    walk(
        stepper, frames, tree_node, max_work,
        [&](std::span<const int32_t> tokens) {
          for (const int32_t token : tokens) set_bit(words, token);
        },
        [](int32_t) {});
  }
  stepper.rewind(frame);
}

std::shared_ptr<const LocalMask> LocalMaskCache::get(int32_t state) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = masks_.find(state);
    if (found != masks_.end()) return found->second;
  }
  // Outside the lock: two threads may compute the same mask, none waits for another's.
  auto mask = std::make_shared<const LocalMask>(walk_.local_mask(state));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes_ + mask->memory_bytes() > max_bytes_) {
    masks_.clear();
    bytes_ = 0;
  }
  if (masks_.try_emplace(state, mask).second) bytes_ += mask->memory_bytes();
  return mask;
}

}  // namespace fathom::grammar
