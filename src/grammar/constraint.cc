#include "grammar/constraint.h"

#include <algorithm>
#include <utility>

#include "base/token_mask.h"

namespace fathom::grammar {
namespace {

// Work on one mask beyond the cached parts, in items looked at.
constexpr int64_t kMaxMaskWork = 20'000'000;

void merge(const LocalMask& mask, std::span<uint64_t> words) {
  const size_t num_words = std::min(words.size(), mask.words.size());
  for (size_t i = 0; i < num_words; ++i) words[i] |= mask.words[i];
  for (const int32_t token : mask.tokens) allow_token(words, token);
}

}  // namespace

GrammarConstraint::GrammarConstraint(std::shared_ptr<const void> owner, const Automaton& automaton,
                                     std::shared_ptr<LocalMaskCache> masks)
    : owner_(std::move(owner)), masks_(std::move(masks)), stepper_(automaton) {
  const Stepper::Item start = {automaton.root_start, Stepper::kBottom};
  frame_ = stepper_.begin({&start, 1});
}

// The mask is the union over the items. What an item's own rule allows comes from the cache. Where that rule
// may end, the callers decide how the text goes on: right here they are items like the others, and behind a
// part of a token they continue the walk from that prefix.
void GrammarConstraint::fill_mask(std::span<uint64_t> words) {
  std::fill(words.begin(), words.end(), 0);
  bool ends = finished_;
  if (!finished_) {
    const int64_t max_work = stepper_.work() + kMaxMaskWork;
    const std::span<const Stepper::Item> items = stepper_.items(frame_);
    std::vector<Stepper::Item> todo(items.begin(), items.end()), callers;
    for (size_t i = 0; i < todo.size(); ++i) {
      const Stepper::Item item = todo[i];
      const std::shared_ptr<const StateMask> mask = masks_->get(item.state);
      const bool may_end = mask->short_tokens->may_end;
      merge(*mask->short_tokens, words);
      merge(mask->long_tokens, words);
      if (item.node == Stepper::kBottom) {
        ends |= may_end;
        continue;
      }
      add_continuations(item.node, *mask, max_work, words);
      if (!may_end) continue;
      callers.clear();
      stepper_.callers(item.node, callers);
      for (const Stepper::Item& caller : callers) add_item(caller, todo);
    }
  }
  if (ends) {
    for (const int32_t eos : masks_->vocabulary()->eos_ids()) allow_token(words, eos);
  }
}

void GrammarConstraint::add_item(Stepper::Item item, std::vector<Stepper::Item>& todo) {
  if (todo.size() >= Stepper::kMaxItems) return;
  if (std::find(todo.begin(), todo.end(), item) == todo.end()) todo.push_back(item);
}

void GrammarConstraint::add_continuations(int32_t node, const StateMask& mask, int64_t max_work,
                                          std::span<uint64_t> words) {
  const std::vector<int32_t>& short_ends = mask.short_tokens->end_nodes;
  const std::vector<int32_t>& long_ends = mask.long_tokens.end_nodes;
  if (short_ends.empty() && long_ends.empty()) return;
  std::vector<Stepper::Item> callers;
  stepper_.callers(node, callers);
  const Stepper::Frame frame = stepper_.push(callers);
  const Vocabulary& vocabulary = *masks_->vocabulary();
  const TokenWalk& walk = masks_->walk();
  walk.continue_from(stepper_, frame, {vocabulary.tree(), short_ends, max_work}, words);
  walk.continue_from(stepper_, frame, {vocabulary.long_tree(), long_ends, max_work}, words);
  stepper_.rewind(frame_);
}

bool GrammarConstraint::may_end() const {
  Stepper stepper = stepper_;
  stepper.set_max_items(Stepper::kMaxReadItems);
  Stepper::Frame frame = frame_;
  stepper.expand(frame);
  return frame.reaches_bottom;
}

bool GrammarConstraint::accept_frame(const Stepper::Frame& next) {
  stepper_.set_max_items(Stepper::kMaxItems);
  if (next.empty()) {
    stepper_.rewind(frame_);
    return false;
  }
  frame_ = stepper_.settle(next);
  return true;
}

bool GrammarConstraint::accept(int32_t token) {
  const Vocabulary& vocabulary = *masks_->vocabulary();
  if (token < 0 || token >= vocabulary.size()) return false;
  if (vocabulary.is_eos(token)) {
    finished_ = finished_ || may_end();
    return finished_;
  }
  if (finished_) return false;
  // Masks follow every way on its own. All of them together may be many in the middle of a token: the set is
  // cut only between tokens, so that what a mask allows is accepted.
  stepper_.set_max_items(Stepper::kMaxReadItems);
  Stepper::Frame frame = frame_;
  stepper_.expand(frame);
  const std::string_view bytes = vocabulary.text_bytes(token);
  if (bytes.empty()) return accept_frame(stepper_.read_token(frame, token));
  for (const char byte : bytes) {
    stepper_.expand(frame);
    frame = stepper_.read(frame, static_cast<uint8_t>(byte));
    if (frame.empty()) break;
  }
  return accept_frame(frame);
}

std::unique_ptr<core::TokenConstraint> GrammarConstraint::clone() const {
  return std::make_unique<GrammarConstraint>(*this);
}

}  // namespace fathom::grammar
