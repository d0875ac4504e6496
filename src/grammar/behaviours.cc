#include "grammar/behaviours.h"

namespace fathom::grammar {
namespace {

constexpr int64_t kMaxWork = 60'000;  // for one place, in Places::work()
// After so many places that were too much to look at, no more are looked at.
constexpr int kMaxFailures = 2;

}  // namespace

Behaviours::Behaviours(Places& places) : places_(places) { lists_.add_unshared({}); }

int32_t Behaviours::of(int32_t place) {
  if (num_failures_ >= kMaxFailures) return kUnknown;
  max_work_ = places_.work() + kMaxWork;
  const int32_t found = find(place, kBytes);
  if (found == kUnknown) ++num_failures_;
  return found;
}

int32_t Behaviours::find(int32_t place, int num_bytes) {
  if (num_bytes == 0) return 0;
  if (places_.work() > max_work_) return kUnknown;
  const auto idx = static_cast<size_t>(place);
  const auto length = static_cast<size_t>(num_bytes);
  if (idx >= known_.size()) known_.resize(static_cast<size_t>(places_.size()));
  if (known_[idx] == nullptr) {
    known_[idx] = std::make_unique<ByLength>();
    known_[idx]->fill(kNotSeen);
    memory_bytes_ += static_cast<int64_t>(sizeof(ByLength)) + 16;
  }
  if ((*known_[idx])[length] != kNotSeen) return (*known_[idx])[length];
  const std::span<const uint8_t> bytes = places_.class_bytes();
  places_.add_work(4 + static_cast<int64_t>(bytes.size() / 8));
  std::vector<Item> list;
  int32_t last_target = -2;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int32_t target = places_.next(place, bytes[i]);
    if (target == last_target) continue;
    last_target = target;
    const int32_t after = target == Places::kNowhere ? -1 : find(target, num_bytes - 1);
    if (target != Places::kNowhere && after == kUnknown) return kUnknown;
    if (list.empty() || list.back().node != after) list.push_back({static_cast<int32_t>(i), after});
  }
  return (*known_[idx])[length] = lists_.number_of(list, false);
}

}  // namespace fathom::grammar
