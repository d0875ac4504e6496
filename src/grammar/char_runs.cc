#include "grammar/char_runs.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace fathom::grammar {
namespace {

// Where ways come and go with every character, each place leads to many that nobody would have come to.
constexpr int64_t kFreeWork = 50'000;
// The share of all work that may go without a gain: what was no use for a while is tried again.
constexpr int64_t kShareOfWork = 16;

}  // namespace

bool CharRuns::takes_all(int32_t place, const FirstBytes& characters, int num_characters) {
  for (int i = 0; i < num_characters; ++i) {
    Way* const on = way(place);
    if (on == nullptr || !all_lead_on(place, characters, *on)) return false;
    if (on->target == place) return true;
    place = on->target;
  }
  return true;
}

bool CharRuns::is_too_costly() const {
  return places_.work() > max_work_ ||
         work_spent_ > kFreeWork + work_gained_ + places_.work() / kShareOfWork;
}

CharRuns::Way* CharRuns::way(int32_t place) {
  const auto idx = static_cast<size_t>(place);
  if (idx >= way_of_place_.size()) way_of_place_.resize(idx + 1 + idx / 2, -1);
  if (way_of_place_[idx] < 0) {
    if (is_too_costly()) return nullptr;
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
  for (uint8_t byte = 0; byte < 0x80 && places_.work() <= max_work_; ++byte) {
    found.looked_at.add(byte);
    if (places_.next(place, byte) == found.target) found.characters.add(byte);
  }
  return found;
}

bool CharRuns::all_lead_on(int32_t place, const FirstBytes& characters, Way& on) {
  if (characters.is_in(on.characters)) return true;
  if (on.target == Places::kNowhere) return false;
  for (int first = 0; first < 256; ++first) {
    const auto byte = static_cast<uint8_t>(first);
    if (!characters.has(byte) || on.characters.has(byte)) continue;
    if (on.looked_at.has(byte) || is_too_costly()) return false;
    const int64_t before = places_.work();
    look_at(place, byte, on);
    work_spent_ += places_.work() - before;
    if (!on.characters.has(byte)) return false;
  }
  return true;
}

void CharRuns::look_at(int32_t place, uint8_t byte, Way& on) {
  if (seen_place_ != place) seen_.clear();
  seen_place_ = place;
  const CharPlace inside = CharPlace{}.next(byte);
  const bool do_lead = !inside.is_broken && all_lead(places_.next(place, byte), inside.num_left,
                                                     inside.first, inside.last, on.target);
  for (int first = 0x80; first < 256; ++first) {
    const auto other = static_cast<uint8_t>(first);
    if (!places_.are_alike(other, byte) || CharPlace{}.next(other) != inside) continue;
    on.looked_at.add(other);
    if (do_lead) on.characters.add(other);
  }
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
  if (at == Places::kNowhere || places_.work() > max_work_) return false;
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
