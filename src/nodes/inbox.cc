#include "nodes/inbox.h"

#include <utility>

#include "comm/link.h"

namespace fathom::nodes {

void Inbox::put(uint32_t channel, std::vector<std::byte> message) {
  const MutexLock lock(mutex_);
  if (!failure_.empty()) return;
  Channel& place = channels_[channel];
  place.messages.push_back(std::move(message));
  place.changed.notify_one();
}

std::optional<std::vector<std::byte>> Inbox::take(uint32_t channel,
                                                  std::chrono::milliseconds patience) {
  MutexLock lock(mutex_);
  Channel& place = channels_[channel];
  const auto is_over = [&]() FATHOM_REQUIRES(mutex_) {
    return !place.messages.empty() || !failure_.empty();
  };
  if (!place.changed.wait_for(lock, patience, is_over)) return std::nullopt;
  if (place.messages.empty()) throw comm::LinkFailure(failure_);
  std::vector<std::byte> message = std::move(place.messages.front());
  place.messages.pop_front();
  return message;
}

bool Inbox::fail(const std::string& why) {
  const MutexLock lock(mutex_);
  if (!failure_.empty()) return false;
  failure_ = why;
  for (auto& [channel, place] : channels_) place.changed.notify_all();
  return true;
}

std::string Inbox::failure() const {
  const MutexLock lock(mutex_);
  return failure_;
}

}  // namespace fathom::nodes
