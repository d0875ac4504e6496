#include "grammar/plain_run.h"

#include <algorithm>

#include "grammar/expressions/code_points.h"
#include "grammar/vocabulary.h"

namespace fathom::grammar {
namespace {

// Places that one character, and that the texts of one length may lead to: more is given up. Where places have few
// items more is followed for a while (Places::work()); many items come and go with every character, and nobody comes
// to most of those places.
constexpr size_t kMaxTargets = 16;
constexpr size_t kMaxWidth = 16;
constexpr size_t kFewItems = 4;
constexpr size_t kMaxOfFewItems = 64;
constexpr int64_t kMaxWideWork = 20'000;

// One length may cost so much (Places::work()). Where calls of rules lie in each other a single byte can lead to
// thousands of items.
constexpr int64_t kMaxLengthWork = 50'000;

void add_once(std::vector<int32_t>& all, int32_t place) {
  if (std::find(all.begin(), all.end(), place) == all.end()) all.push_back(place);
}

}  // namespace

PlainRun::PlainRun(Places& places) : places_(places), endless_(places.automaton()) {
  for (const Utf8Range& range : utf8_ranges(plain_character_ranges())) {
    BytePath path;
    for (size_t i = 0; i < static_cast<size_t>(range.length); ++i) {
      std::vector<uint8_t> bytes = {range.bytes[i].first};
      for (int byte = range.bytes[i].first; byte <= range.bytes[i].last; ++byte) {
        const auto next = static_cast<uint8_t>(byte);
        if (!places.are_alike(bytes.back(), next)) bytes.push_back(next);
      }
      path.push_back(std::move(bytes));
    }
    paths_.push_back(std::move(path));
  }
}

PlainRun::Targets PlainRun::targets(int32_t place) {
  const auto idx = static_cast<size_t>(place);
  if (targets_.size() <= idx) targets_.resize(static_cast<size_t>(places_.size()));
  if (targets_[idx].kind == Targets::Kind::kUnknown) {
    const Targets found = find_targets(place);  // may look at more places
    targets_[idx] = found;
  }
  return targets_[idx];
}

PlainRun::Targets PlainRun::find_targets(int32_t place) {
  const bool has_few = places_.items(place).size() <= kFewItems;
  const size_t max_targets = has_few ? kMaxOfFewItems : kMaxTargets;
  std::vector<int32_t> found, from, to;
  bool fits_none = true, fits_all = true;
  for (const BytePath& path : paths_) {
    from.assign(1, place);
    for (const std::vector<uint8_t>& bytes : path) {
      to.clear();
      for (const int32_t at : from) {
        if (places_.work() > max_work_) return {};  // says nothing of this place
        for (const uint8_t byte : bytes) {
          const int32_t next = places_.next(at, byte);
          fits_all &= next != Places::kNowhere;
          if (next != Places::kNowhere) add_once(to, next);
        }
      }
      places_.add_work(static_cast<int64_t>(from.size() * bytes.size() / 4));
      fits_none &= to.empty();
      if (!fits_all && !fits_none) return {.kind = Targets::Kind::kNotAll};
      if (to.empty()) break;
      if (to.size() > max_targets) return {.kind = Targets::Kind::kTooMany};
      std::swap(from, to);
    }
    if (fits_none) continue;
    for (const int32_t target : from) add_once(found, target);
    if (found.size() > max_targets) return {.kind = Targets::Kind::kTooMany};
  }
  if (fits_none) return {.kind = Targets::Kind::kNone};
  const auto begin = static_cast<uint32_t>(target_places_.size());
  target_places_.insert(target_places_.end(), found.begin(), found.end());
  return {Targets::Kind::kAll, static_cast<uint8_t>(found.size()), begin};
}

// What takes all that a place does which is looked at already takes at least as much.
PlainRun::Seen PlainRun::was_seen(int32_t place) {
  if (std::ranges::find(seen_, place) != seen_.end()) return Seen::kItself;
  const std::span<const Item> items = places_.items(place);
  const bool has_part = std::ranges::any_of(seen_, [&](int32_t seen) {
    const std::span<const Item> fewer = places_.items(seen);
    if (fewer.size() >= items.size()) return false;
    places_.add_work(static_cast<int64_t>(items.size() / 8));
    return std::ranges::includes(items, fewer);
  });
  return has_part ? Seen::kPart : Seen::kNo;
}

PlainRun::Length PlainRun::length(int32_t place) {
  const auto idx = static_cast<size_t>(place);
  if (idx >= lengths_.size()) {
    lengths_.resize(static_cast<size_t>(places_.size()), {.characters = -1});
  }
  if (lengths_[idx].characters < 0) lengths_[idx] = find_length(place);
  return lengths_[idx];
}

PlainRun::Length PlainRun::find_length(int32_t place) {
  for (const Item& item : places_.items(place)) {
    if (endless_.holds(item.state)) return {.characters = kMaxPlainCharacters};
  }
  const int64_t max_wide_work = places_.work() + kMaxWideWork;
  max_work_ = places_.work() + kMaxLengthWork;
  seen_.assign(1, place);
  std::vector<int32_t> at = {place}, next;
  Length length;
  bool is_exact = true, is_single = true;
  for (; length.characters < kMaxPlainCharacters; ++length.characters) {
    next.clear();
    size_t num_ends = 0;
    for (const int32_t from : at) {
      const Targets after = targets(from);
      num_ends += after.kind == Targets::Kind::kNone ? 1 : 0;
      if (after.kind == Targets::Kind::kNotAll) {
        if (is_single) length.end = from;
        return length;
      }
      if (after.kind == Targets::Kind::kTooMany || after.kind == Targets::Kind::kUnknown) {
        length.branches = true;
        return length;
      }
      for (uint32_t i = 0; i < after.count; ++i) {
        const int32_t target = target_places_[after.begin + i];
        const Seen seen = was_seen(target);
        length.branches |= seen == Seen::kPart;
        is_exact &= seen == Seen::kNo;
        is_single &= seen == Seen::kNo && after.count == 1;
        if (seen != Seen::kNo) continue;
        seen_.push_back(target);
        next.push_back(target);
      }
    }
    if (num_ends > 0) {
      length.is_exact = is_exact && num_ends == at.size();
      return length;
    }
    const bool may_be_wide =
        places_.work() < max_wide_work && std::ranges::all_of(next, [this](int32_t one) {
          return places_.items(one).size() <= kFewItems;
        });
    if (next.size() > (may_be_wide ? kMaxOfFewItems : kMaxWidth)) {
      length.branches = true;
      ++length.characters;
      return length;
    }
    if (next.empty()) break;
    std::swap(at, next);
  }
  length.characters = kMaxPlainCharacters;
  return length;
}

}  // namespace fathom::grammar
