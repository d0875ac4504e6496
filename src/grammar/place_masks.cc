#include "grammar/place_masks.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/token_mask.h"

namespace fathom::grammar {
namespace {

// Bounds on one mask, in Places::work(): the first for all of it, the second for what is done after that so
// that single bytes are among what was found.
constexpr int64_t kMaxMaskWork = 200'000;
constexpr int64_t kMaxByteWork = 30'000;

// How many plain characters a place takes and how it behaves is found out for later masks too. That has bounds of its
// own and does not count against the mask's, of the first so much: it shall not cost the mask tokens.
constexpr int64_t kUncountedWork = 20'000;

// Walks over the whole tree that look at more nodes are shared by places of one behaviour.
constexpr int64_t kLargeWalk = 20'000;

// Tokens that are allowed together in the time of a look at one node.
constexpr size_t kTokensPerVisit = 8;

// A test of all that is below a node costs as much as a look at so many nodes. A walk makes tests only while they save
// more than they cost, and has some nodes to begin with.
constexpr int64_t kNodesPerTest = 4;
constexpr int64_t kFirstTestNodes = 4000;

// Places with more items are first looked at item by item: what one byte leads to then costs as much as the mask of a
// single item. That pays where few of those masks are still to be made.
constexpr size_t kManyItems = 3;
constexpr int kMaxUnknownItems = 6;

// A slice of a move to other masks, about half a millisecond.
constexpr int64_t kMoveItems = 20'000;

// Masks with fewer tokens are kept as lists.
constexpr size_t kMaxListedTokens = 512;

uint64_t hash_words(std::span<const uint64_t> words) {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0xFF51AFD7ED558CCDu;
    hash ^= hash >> 29;
  }
  return hash;
}

// REQUIRES: the words have a bit for the token.
void forbid_token(std::span<uint64_t> words, int32_t token) {
  words[static_cast<size_t>(token / kMaskWordTokens)] &=
      ~(uint64_t{1} << (token % kMaskWordTokens));
}

// REQUIRES: the words have a bit for each token.
void allow_all(std::span<const int32_t> tokens, std::span<uint64_t> words) {
  uint64_t* const first = words.data();
  for (const int32_t token : tokens) {
    const auto bit = static_cast<uint32_t>(token);
    first[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

void merge(std::span<const uint64_t> more, std::span<uint64_t> words) {
  const size_t num_words = std::min(words.size(), more.size());
  for (size_t i = 0; i < num_words; ++i) words[i] |= more[i];
}

// Words that are missing are zero.
void set_words(std::span<const uint64_t> from, std::span<uint64_t> words) {
  const size_t num_words = std::min(words.size(), from.size());
  std::copy_n(from.begin(), num_words, words.begin());
  std::fill(words.begin() + static_cast<int64_t>(num_words), words.end(), uint64_t{0});
}

}  // namespace

PlaceMasks::PlaceMasks(const Automaton& automaton, std::shared_ptr<const Vocabulary> vocabulary,
                       int64_t max_bytes)
    : vocabulary_(std::move(vocabulary)),
      max_bytes_(max_bytes),
      places_(automaton),
      plain_run_(places_),
      behaviours_(places_),
      char_runs_(places_),
      start_(places_.start()) {}

bool PlaceMasks::fill(int32_t place, std::span<uint64_t> words) {
  const MutexLock lock(mutex_);
  const Mask* mask = find(place, Part::kAll);
  if (mask == nullptr) {
    Words found(static_cast<size_t>(num_mask_words(vocabulary_->size())), 0);
    const int64_t max_work = places_.work() + kMaxMaskWork;
    char_runs_.set_max_work(max_work);
    const bool is_complete = add_mask(place, Part::kAll, max_work, found);
    if (!is_complete) {
      add_bytes(place, places_.work() + kMaxByteWork, found);
      set_words(found, words);
      watch_memory();
      return false;
    }
    mask = &store(place, Part::kAll, found);
    watch_memory();
  }
  set_words(mask->words, words);
  for (const int32_t token : mask->tokens) allow_token(words, token);
  return true;
}

const PlaceMasks::Mask* PlaceMasks::find(int32_t place, Part part) const {
  const auto idx = 2 * static_cast<size_t>(place) + static_cast<size_t>(part);
  if (idx >= mask_of_place_.size() || mask_of_place_[idx] < 0) return nullptr;
  return masks_[static_cast<size_t>(mask_of_place_[idx])].get();
}

const PlaceMasks::Mask& PlaceMasks::store(int32_t place, Part part, const Words& words) {
  size_t count = 0;
  for (const uint64_t word : words) count += static_cast<size_t>(std::popcount(word));
  Mask mask;
  if (count <= kMaxListedTokens) {
    for (size_t i = 0; i < words.size(); ++i) {
      for (uint64_t rest = words[i]; rest != 0; rest &= rest - 1) {
        mask.tokens.push_back(static_cast<int32_t>(i * 64) + std::countr_zero(rest));
      }
    }
  } else {
    mask.words = words;
  }
  const uint64_t hash = hash_words(words);
  int32_t number = -1;
  const auto [begin, end] = masks_by_hash_.equal_range(hash);
  for (auto known = begin; known != end && number < 0; ++known) {
    if (*masks_[static_cast<size_t>(known->second)] == mask) number = known->second;
  }
  if (number < 0) {
    number = static_cast<int32_t>(masks_.size());
    mask_bytes_ += static_cast<int64_t>(128 + mask.words.size() * 8 + mask.tokens.size() * 4);
    masks_.push_back(std::make_unique<const Mask>(std::move(mask)));
    masks_by_hash_.emplace(hash, number);
  }
  const auto idx = 2 * static_cast<size_t>(place) + static_cast<size_t>(part);
  if (idx >= mask_of_place_.size()) {
    mask_of_place_.resize(2 * static_cast<size_t>(places_.size()), -1);
  }
  mask_of_place_[idx] = number;
  return *masks_[static_cast<size_t>(number)];
}

bool PlaceMasks::add_mask(int32_t place, Part part, int64_t max_work, Words& words) {
  add_special_tokens(place, words);
  if (part == Part::kAll) return add_text_tokens(place, max_work, words);
  return walk(vocabulary_->unplain_tree(), place, 0, max_work, words);
}

void PlaceMasks::add_special_tokens(int32_t place, Words& words) {
  if (places_.may_end(place)) {
    for (const int32_t eos : vocabulary_->eos_ids()) allow_token(words, eos);
  }
  const Automaton& automaton = places_.automaton();
  for (const Item& item : places_.items(place)) {
    for (const Automaton::TokenEdge& edge : automaton.token_edges(item.state)) {
      allow_token(words, edge.token);
    }
  }
}

bool PlaceMasks::add_text_tokens(int32_t place, int64_t max_work, Words& words) {
  const size_t num_items = places_.items(place).size();
  if (num_items >= kManyItems && are_known_alone(place)) {
    return add_each_item(place, max_work, words);
  }
  const int64_t before = places_.work();
  const PlainRun::Length run = plain_run_.length(place);
  places_.add_work(-std::min(places_.work() - before, kUncountedWork));
  if (run.branches && num_items > 1) return add_each_item(place, max_work, words);
  merge(vocabulary_->plain_tokens(run.characters), words);
  if (run.characters < kMaxPlainCharacters && !run.is_exact) {
    return add_from_all(place, run, max_work, words);
  }
  return walk(vocabulary_->unplain_tree(), place, run.characters, max_work, words);
}

// Whether one of the items alone takes all plain tokens, and nearly all that the others add is known.
bool PlaceMasks::are_known_alone(int32_t place) {
  const std::span<const Item> span = places_.items(place);
  const std::vector<Item> items(span.begin(), span.end());
  places_.add_work(static_cast<int64_t>(items.size()));
  int num_unknown = 0;
  bool takes_all_plain = false;
  for (const Item& item : items) {
    const int32_t alone = places_.place_of({&item, 1}, false);
    if (find(alone, Part::kUnplain) != nullptr) {
      takes_all_plain |= plain_run_.length(alone).characters == kMaxPlainCharacters;
    } else if (++num_unknown > kMaxUnknownItems) {
      return false;
    }
  }
  return takes_all_plain;
}

// Together the items would come to a new place with almost every byte. Alone they come to few, and those come
// up again: the mask is what any of them allows.
bool PlaceMasks::add_each_item(int32_t place, int64_t max_work, Words& words) {
  const std::span<const Item> span = places_.items(place);
  const std::vector<Item> items(span.begin(), span.end());
  std::vector<int32_t> alone;
  Part part = Part::kAll;
  for (size_t i = 0; i < items.size(); ++i) {
    // From both ends: the first states of a rule keep many ways open, the last ones finish it.
    const Item& item = items[i % 2 == 0 ? i / 2 : items.size() - 1 - i / 2];
    alone.push_back(places_.place_of({&item, 1}, false));
    if (part == Part::kAll && places_.work() < max_work &&
        plain_run_.length(alone.back()).characters == kMaxPlainCharacters) {
      part = Part::kUnplain;
    }
  }
  if (part == Part::kUnplain) merge(vocabulary_->plain_tokens(kMaxPlainCharacters), words);
  Words found(words.size());
  for (const int32_t one : alone) {
    const Mask* mask = find(one, part);
    if (mask == nullptr) {
      std::fill(found.begin(), found.end(), uint64_t{0});
      if (!add_mask(one, part, max_work, found)) {
        merge(found, words);
        return false;
      }
      mask = &store(one, part, found);
    }
    places_.add_work(32);
    merge(mask->words, words);
    for (const int32_t token : mask->tokens) allow_token(words, token);
  }
  return true;
}

// Walks the tree of all tokens, unless a place was walked before that takes the same short ones.
bool PlaceMasks::add_from_all(int32_t place, const PlainRun::Length& run, int64_t max_work,
                              Words& words) {
  const int64_t before_looks = places_.work();
  keep_last_walk();
  const int32_t behaviour = short_tokens_.empty() ? Behaviours::kUnknown : behaviours_.of(place);
  places_.add_work(before_looks - places_.work());
  if (const auto known = short_tokens_.find(behaviour); known != short_tokens_.end()) {
    merge(known->second, words);
    return add_long_tokens(place, max_work, words);
  }
  Words found(words.size());
  merge(vocabulary_->plain_tokens(run.characters), found);
  const int64_t before = places_.work();
  const bool is_complete = walk_all(place, run, max_work, found);
  merge(found, words);
  if (is_complete && places_.work() - before >= kLargeWalk) last_walk_ = {place, std::move(found)};
  return is_complete;
}

// Finding out how a place behaves costs as much as a walk, and is needed from the second walk on.
void PlaceMasks::keep_last_walk() {
  if (last_walk_.place == Places::kNowhere) return;
  const int32_t behaviour = behaviours_.of(std::exchange(last_walk_.place, Places::kNowhere));
  if (behaviour == Behaviours::kUnknown) return;
  Words& found = last_walk_.words;
  for (const int32_t token : vocabulary_->long_tokens()) forbid_token(found, token);
  mask_bytes_ += static_cast<int64_t>(64 + found.size() * 8);
  short_tokens_.emplace(behaviour, std::move(found));
}

// Where plain tokens go beyond the run, only the rest of each counts, and many have the same rest.
bool PlaceMasks::walk_all(int32_t place, const PlainRun::Length& run, int64_t max_work,
                          Words& words) {
  const int num_plain = run.characters;
  if (num_plain == 0 || run.end == Places::kNowhere) {
    return walk(vocabulary_->tree(), place, num_plain, max_work, words);
  }
  return walk(vocabulary_->plain_tails(num_plain), run.end, 0, max_work, words) &&
         walk(vocabulary_->unplain_tree(), place, num_plain, max_work, words);
}

bool PlaceMasks::add_long_tokens(int32_t place, int64_t max_work, Words& words) {
  for (const int32_t token : vocabulary_->long_tokens()) {
    if (places_.work() >= max_work) return false;
    if (follow(place, vocabulary_->text_bytes(token)) != Places::kNowhere)
      allow_token(words, token);
  }
  return true;
}

void PlaceMasks::add_bytes(int32_t place, int64_t max_work, Words& words) {
  const std::span<const TokenTree::Node> nodes = vocabulary_->tree().nodes();
  for (int32_t at = 1; at < static_cast<int32_t>(nodes.size()) && places_.work() < max_work;) {
    const TokenTree::Node& node = nodes[static_cast<size_t>(at)];
    at = node.subtree_end;
    if (node.num_tokens == 0 || !places_.fits(place, node.byte)) continue;
    allow_all(vocabulary_->tree().node_tokens(node), words);
  }
}

// The place is the one behind the node's prefix. A lower bound, as those that it asks.
bool PlaceMasks::takes_all_below(const TokenTree::Node& node, const TokenTree::TextsBelow& below,
                                 int32_t place) {
  if (char_runs_.takes_all(place, below.characters, below.most_characters)) return true;
  if (node.most_plain == kNotPlain || places_.items(place).size() > kManyItems) return false;
  if (char_runs_.is_too_costly()) return false;
  const int64_t before = places_.work();
  const int num_plain = plain_run_.length(place).characters;
  char_runs_.add_cost(places_.work() - before);
  places_.add_work(before - places_.work());
  return num_plain >= below.most_characters;
}

bool PlaceMasks::walk(const TokenTree& tree, int32_t place, int num_plain, int64_t max_work,
                      Words& words) {
  const std::span<const TokenTree::Node> nodes = tree.nodes();
  const auto end = static_cast<int32_t>(nodes.size());
  path_.assign(1, place);
  // With few tokens it is not worth asking what places do with all texts of some kind.
  const bool is_whole = &tree != &vocabulary_->unplain_tree();
  int64_t num_visited = 0, test_nodes = is_whole ? kFirstTestNodes : 0;
  int32_t at = 1;
  while (at < end && places_.work() + num_visited / 2 < max_work) {
    const TokenTree::Node& node = nodes[static_cast<size_t>(at)];
    ++num_visited;
    // Plain tokens of so few characters are in the mask.
    if (node.most_plain <= num_plain) {
      at = node.subtree_end;
      continue;
    }
    const size_t depth = node.depth;
    const bool is_leaf = node.subtree_end == at + 1;
    const int32_t next = is_leaf ? (places_.fits(path_[depth - 1], node.byte) ? 0 : -1)
                                 : places_.next(path_[depth - 1], node.byte);
    if (next < 0) {
      at = node.subtree_end;
      continue;
    }
    // All that follows in the tree fits, whatever it is.
    const TokenTree::TextsBelow* const below = test_nodes > 0 ? tree.texts_below(node) : nullptr;
    if (below != nullptr && takes_all_below(node, *below, next)) {
      const std::span<const int32_t> tokens = tree.tokens_from(node);
      allow_all(tokens, words);
      num_visited += static_cast<int64_t>(tokens.size() / kTokensPerVisit);
      test_nodes += node.subtree_end - at;
      char_runs_.add_gain((node.subtree_end - at) / 2);
      at = node.subtree_end;
      continue;
    }
    if (below != nullptr) test_nodes -= kNodesPerTest;
    for (const int32_t token : tree.node_tokens(node)) allow_token(words, token);
    if (path_.size() <= depth) path_.resize(2 * depth + 8);
    path_[depth] = next;
    ++at;
  }
  places_.add_work(num_visited / 2);
  return at >= end;
}

int32_t PlaceMasks::follow(int32_t place, std::string_view bytes) {
  for (const char byte : bytes) {
    place = places_.next(place, static_cast<uint8_t>(byte));
    if (place == Places::kNowhere) break;
  }
  return place;
}

int32_t PlaceMasks::advance(int32_t place, int32_t token) {
  const std::string_view bytes = vocabulary_->text_bytes(token);
  const MutexLock lock(mutex_);
  int32_t next = bytes.empty() ? places_.next_token(place, token) : follow(place, bytes);
  if (next == Places::kNowhere && places_.was_cut()) next = advance_each_item(place, bytes);
  watch_memory();
  return next;
}

// A mask follows some items each on its own. Among the others, one of them may have been cut off within the
// token: what a mask allows is accepted.
int32_t PlaceMasks::advance_each_item(int32_t place, std::string_view bytes) {
  if (bytes.empty()) return Places::kNowhere;
  const std::span<const Item> span = places_.items(place);
  const std::vector<Item> items(span.begin(), span.end());
  std::vector<Item> after;
  bool may_end = false;
  for (const Item& item : items) {
    const int32_t next = follow(places_.place_of({&item, 1}, false), bytes);
    if (next == Places::kNowhere) continue;
    may_end |= places_.may_end(next);
    const std::span<const Item> found = places_.items(next);
    after.insert(after.end(), found.begin(), found.end());
  }
  if (after.empty() && !may_end) return Places::kNowhere;
  std::sort(after.begin(), after.end());
  after.erase(std::unique(after.begin(), after.end()), after.end());
  if (after.size() > Places::kMaxItems) after.resize(Places::kMaxItems);
  return places_.place_of(after, may_end);
}

bool PlaceMasks::may_end(int32_t place) {
  const MutexLock lock(mutex_);
  return places_.may_end(place);
}

int64_t PlaceMasks::work() {
  const MutexLock lock(mutex_);
  return places_.work();
}

void PlaceMasks::watch_memory() {
  const int64_t num_bytes = places_.memory_bytes() + plain_run_.memory_bytes() +
                            behaviours_.memory_bytes() + char_runs_.memory_bytes() + mask_bytes_ +
                            static_cast<int64_t>(mask_of_place_.capacity() * 4);
  num_bytes_.store(num_bytes, std::memory_order_relaxed);
  if (num_bytes > max_bytes_) is_full_ = true;
}

std::optional<int32_t> PlaceMove::go_on(int32_t place) {
  // The older masks first, always: so two moves never wait for each other.
  const MutexLock lock(from_->mutex_);
  const MutexLock to_lock(to_->mutex_);
  const std::optional<int32_t> there = transfer_.go_on(place, kMoveItems);
  to_->watch_memory();
  return there;
}

int64_t MaskSource::memory_bytes() const {
  const MutexLock lock(mutex_);
  return current_ == nullptr ? 0 : current_->memory_bytes();
}

std::shared_ptr<PlaceMasks> MaskSource::current() {
  const MutexLock lock(mutex_);
  if (current_ == nullptr || current_->is_full()) {
    current_ = std::make_shared<PlaceMasks>(automaton_, vocabulary_, max_bytes_);
  }
  return current_;
}

}  // namespace fathom::grammar
