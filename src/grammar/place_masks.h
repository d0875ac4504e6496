#pragma once
// PlaceMasks: the places of one grammar with their masks over one vocabulary, shared by all sequences that follow
// the grammar. A mask is the walk of the vocabulary's tree and the places together, less the plain tokens that
// the place is known to take (grammar/plain_run.h).
//
//   const std::shared_ptr<PlaceMasks> masks = source.current();
//   int32_t place = masks->start();
//   masks->fill(place, words);
//   place = masks->advance(place, token);
//
// Work on one mask is bounded. What is not found by then is left out: fewer texts remain possible, never a wrong
// one, and the next mask of that place goes further. Thread-safe: one lock, held for a look-up most of the time.
// Automaton must outlive it.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "grammar/behaviours.h"
#include "grammar/char_runs.h"
#include "grammar/place_transfer.h"
#include "grammar/places.h"
#include "grammar/plain_run.h"
#include "grammar/vocabulary.h"

namespace fathom::grammar {

class PlaceMasks {
 public:
  PlaceMasks(const Automaton& automaton, std::shared_ptr<const Vocabulary> vocabulary,
             int64_t max_bytes);

  int32_t start() const { return start_; }
  // Sets the words to the place's mask, the end of the text included. False: the work's bound cut it.
  bool fill(int32_t place, std::span<uint64_t> words);
  // Places::kNowhere: the token does not fit.
  int32_t advance(int32_t place, int32_t token);
  bool may_end(int32_t place);

  // More memory than allowed: each place in use moves on to new masks (PlaceMove).
  bool is_full() const { return is_full_; }
  // Without waiting for who fills a mask, so as of the last one.
  int64_t memory_bytes() const { return num_bytes_.load(std::memory_order_relaxed); }

  const std::shared_ptr<const Vocabulary>& vocabulary() const { return vocabulary_; }
  // Places::work() so far.
  int64_t work();

 private:
  friend class PlaceMove;
  struct Mask {
    std::vector<uint64_t> words;  // bit per token; empty where `tokens` is shorter
    std::vector<int32_t> tokens;  // the same as ids
    bool operator==(const Mask&) const = default;
  };
  using Words = std::vector<uint64_t>;
  enum class Part : uint8_t { kAll, kUnplain };  // of a mask: all of it, or what is no plain token

  const Mask* find(int32_t place, Part part) const FATHOM_REQUIRES(mutex_);
  const Mask& store(int32_t place, Part part, const Words& words) FATHOM_REQUIRES(mutex_);
  // These add to the words. False: max_work was reached before all was found.
  bool add_mask(int32_t place, Part part, int64_t max_work, Words& words) FATHOM_REQUIRES(mutex_);
  bool add_text_tokens(int32_t place, int64_t max_work, Words& words) FATHOM_REQUIRES(mutex_);
  bool are_known_alone(int32_t place) FATHOM_REQUIRES(mutex_);
  bool add_each_item(int32_t place, int64_t max_work, Words& words) FATHOM_REQUIRES(mutex_);
  bool add_from_all(int32_t place, const PlainRun::Length& run, int64_t max_work, Words& words)
      FATHOM_REQUIRES(mutex_);
  void keep_last_walk() FATHOM_REQUIRES(mutex_);
  bool walk_all(int32_t place, const PlainRun::Length& run, int64_t max_work, Words& words)
      FATHOM_REQUIRES(mutex_);
  bool takes_all_below(const TokenTree::Node& node, const TokenTree::TextsBelow& below,
                       int32_t place) FATHOM_REQUIRES(mutex_);
  bool walk(const TokenTree& tree, int32_t place, int num_plain, int64_t max_work, Words& words)
      FATHOM_REQUIRES(mutex_);
  void add_special_tokens(int32_t place, Words& words) FATHOM_REQUIRES(mutex_);
  bool add_long_tokens(int32_t place, int64_t max_work, Words& words) FATHOM_REQUIRES(mutex_);
  void add_bytes(int32_t place, int64_t max_work, Words& words) FATHOM_REQUIRES(mutex_);
  int32_t advance_each_item(int32_t place, std::string_view bytes) FATHOM_REQUIRES(mutex_);
  int32_t follow(int32_t place, std::string_view bytes) FATHOM_REQUIRES(mutex_);
  void watch_memory() FATHOM_REQUIRES(mutex_);

  const std::shared_ptr<const Vocabulary> vocabulary_;
  const int64_t max_bytes_;
  Mutex mutex_;
  std::atomic<bool> is_full_ = false;
  std::atomic<int64_t> num_bytes_ = 0;
  Places places_;
  PlainRun plain_run_ FATHOM_GUARDED_BY(mutex_);
  Behaviours behaviours_ FATHOM_GUARDED_BY(mutex_);
  CharRuns char_runs_ FATHOM_GUARDED_BY(mutex_);
  int32_t start_;
  std::vector<int32_t> mask_of_place_ FATHOM_GUARDED_BY(mutex_);  // [places, parts] -1: not known
  std::vector<std::unique_ptr<const Mask>> masks_ FATHOM_GUARDED_BY(mutex_);
  std::unordered_multimap<uint64_t, int32_t> masks_by_hash_
      FATHOM_GUARDED_BY(mutex_);  // many places have the same mask
  std::unordered_map<int32_t, Words> short_tokens_ FATHOM_GUARDED_BY(mutex_);  // by behaviour
  struct Walk {
    int32_t place = Places::kNowhere;
    Words words;
  };
  // A large one, of all tokens, that is not yet in short_tokens_.
  Walk last_walk_ FATHOM_GUARDED_BY(mutex_);
  int64_t mask_bytes_ FATHOM_GUARDED_BY(mutex_) = 0;
  std::vector<int32_t> path_ FATHOM_GUARDED_BY(mutex_);  // [depth] of a walk
};

// A sequence's way from masks that are full to newer ones of the same grammar, a slice of it at a time. Until it is
// there the sequence goes on with the old ones. Used by one thread.
class PlaceMove {
 public:
  PlaceMove(std::shared_ptr<PlaceMasks> from, std::shared_ptr<PlaceMasks> to)
      : from_(std::move(from)), to_(std::move(to)), transfer_(from_->places_, to_->places_) {}

  // The sequence's place there, once everything is.
  std::optional<int32_t> go_on(int32_t place);
  const std::shared_ptr<PlaceMasks>& target() const { return to_; }

 private:
  std::shared_ptr<PlaceMasks> from_, to_;
  PlaceTransfer transfer_;
};

// The masks in use: new ones once they are full. Thread-safe.
class MaskSource {
 public:
  MaskSource(const Automaton& automaton, std::shared_ptr<const Vocabulary> vocabulary,
             int64_t max_bytes)
      : automaton_(automaton), vocabulary_(std::move(vocabulary)), max_bytes_(max_bytes) {}
  std::shared_ptr<PlaceMasks> current();
  int64_t memory_bytes() const;
  const std::shared_ptr<const Vocabulary>& vocabulary() const { return vocabulary_; }

 private:
  const Automaton& automaton_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const int64_t max_bytes_;
  mutable Mutex mutex_;
  std::shared_ptr<PlaceMasks> current_ FATHOM_GUARDED_BY(mutex_);
};

}  // namespace fathom::grammar
