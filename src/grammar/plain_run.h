#pragma once
// PlainRun: how many plain characters (grammar/vocabulary.h) a place takes, whichever they are. Inside a string
// that is all of them, so nearly the whole vocabulary is allowed without looking at it.
//
//   PlainRun run(places);
//   if (run.length(place).characters == kMaxPlainCharacters) ...   // every plain token fits
//
// A lower bound: a place may take longer texts. Used by one thread, with the places; remembers what it saw.

#include <cstdint>
#include <span>
#include <vector>

#include "grammar/endless_text.h"
#include "grammar/places.h"

namespace fathom::grammar {

class PlainRun {
 public:
  explicit PlainRun(Places& places);

  struct Length {
    int characters = 0;     // at most kMaxPlainCharacters
    bool is_exact = false;  // no text of more plain characters than that fits
    // What follows depends on many of the characters: the place has ways that come and go. The length may have
    // been given up at that.
    bool branches = false;
    // Where all texts of so many plain characters lead, if to one place and on the way to one after each character.
    int32_t end = Places::kNowhere;
  };
  Length length(int32_t place);
  int64_t memory_bytes() const {
    return static_cast<int64_t>(targets_.capacity() * sizeof(Targets) +
                                target_places_.capacity() * 4);
  }

 private:
  // Where one plain character leads.
  struct Targets {
    // kNotAll: some of them do not fit; kNone: none does.
    enum class Kind : uint8_t { kUnknown, kAll, kTooMany, kNotAll, kNone };
    Kind kind = Kind::kUnknown;
    uint8_t count = 0;
    uint32_t begin = 0;
  };
  Length find_length(int32_t place);
  Targets targets(int32_t place);
  // Unknown: the length that asks has cost too much.
  Targets find_targets(int32_t place);
  enum class Seen : uint8_t { kNo, kItself, kPart };
  Seen was_seen(int32_t place);

  // A character's bytes: one byte of every kind that edges tell apart.
  using BytePath = std::vector<std::vector<uint8_t>>;

  Places& places_;
  const EndlessText endless_;
  std::vector<BytePath> paths_;
  std::vector<Targets> targets_;  // [places]
  std::vector<int32_t> target_places_;
  std::vector<Length> lengths_;  // [places] -1 characters: not known
  std::vector<int32_t> seen_;
  int64_t max_work_ = 0;  // of the length that is being found
};

}  // namespace fathom::grammar
