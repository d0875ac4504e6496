#include "grammar/char_runs.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace fathom::grammar {
namespace {

// Where ways come and go with every character, each place leads to many that nobody would have come to.
constexpr int64_t kFreeWork = 50'000;

}  // namespace

bool CharRuns::takes_all(int32_t place, const FirstBytes& characters, int num_characters) {
  for (int i = 0; i < num_characters; ++i) {
    const Way* const on = way(place);
    if (on == nullptr || !characters.is_in(on->characters)) return false;
    if (on->target == place) return true;
    place = on->target;
  }
  return true;
}

const CharRuns::Way* CharRuns::way(int32_t place) {
  const auto idx = static_cast<size_t>(place);
  if (idx >= way_of_place_.size()) way_of_place_.resize(idx + 1 + idx / 2, -1);
  if (way_of_place_[idx] < 0) {
    if (work_spent_ > kFreeWork + work_gained_) return nullptr;
    const int64_t before = places_.work();
    const Way found = find_way(place);
    work_spent_ += places_.work() - before;
    way_of_place_[idx] = static_cast<int32_t>(ways_.size());
    ways_.push_back(found);
  }
  return &ways_[static_cast<size_t>(way_of_place_[idx])];
}

CharRuns::Way CharRuns::find_way(int32_t place) {
  Way found{.target = usual_target(place)};
  if (found.target == Places::kNowhere) return found;
  seen_.clear();
  bool do_lead = false;
  CharPlace before{.is_broken = true};
  for (int byte = 0; byte <= 0xF4; ++byte) {
    const auto first = static_cast<uint8_t>(byte);
    const CharPlace inside = CharPlace{}.next(first);
    // What no edge tells apart leads to the same place.
    if (inside != before || !places_.are_alike(first, static_cast<uint8_t>(byte - 1))) {
      do_lead = !inside.is_broken && all_lead(places_.next(place, first), inside.num_left,
                                              inside.first, inside.last, found.target);
    }
    if (do_lead) found.characters.add(first);
    before = inside;
  }
  return found;
}

int32_t CharRuns::usual_target(int32_t place) {
  static constexpr std::string_view kUsual = "aemz059AMZ";
  std::array<std::pair<int32_t, int>, kUsual.size()> counts{};
  size_t num_targets = 0;
  for (const char byte : kUsual) {
    const int32_t target = places_.next(place, static_cast<uint8_t>(byte));
    if (target == Places::kNowhere) continue;
    const auto end = counts.begin() + static_cast<int64_t>(num_targets);
    const auto known =
        std::find_if(counts.begin(), end, [&](const auto& count) { return count.first == target; });
    if (known == end) counts[num_targets++] = {target, 0};
    ++known->second;
  }
  if (num_targets == 0) return Places::kNowhere;
  return std::max_element(counts.begin(), counts.begin() + static_cast<int64_t>(num_targets),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

bool CharRuns::all_lead(int32_t at, int num_left, uint8_t first, uint8_t last, int32_t target) {
  if (at == Places::kNowhere) return false;
  if (num_left == 0) return at == target;
  const bool is_any = first == 0x80 && last == 0xBF;
  if (is_any) {
    const auto known = std::ranges::find_if(
        seen_, [&](const Seen& seen) { return seen.at == at && seen.num_left == num_left; });
    if (known != seen_.end()) return known->do_lead;
  }
  bool do_lead = true;
  for (int byte = first; byte <= last && do_lead; ++byte) {
    const auto next = static_cast<uint8_t>(byte);
    if (byte > first && places_.are_alike(next, static_cast<uint8_t>(byte - 1))) continue;
    do_lead = all_lead(places_.next(at, next), num_left - 1, 0x80, 0xBF, target);
  }
  if (is_any) seen_.push_back({at, num_left, do_lead});
  return do_lead;
}

}  // namespace fathom::grammar
