#include "comm/link_pair.h"

#include <utility>

namespace fathom::comm {

LinkPair::LinkPair(std::string first, std::string second)
    : names_{std::move(first), std::move(second)} {}

void LinkPair::End::send(uint32_t channel, std::vector<std::byte> message) {
  {
    const MutexLock lock(pair_.mutex_);
    if (!pair_.failures_[node_].empty()) return;
    pair_.arrived_[1 - node_][channel].push_back(std::move(message));
  }
  pair_.changed_.notify_all();
}

std::optional<std::vector<std::byte>> LinkPair::End::receive_for(
    uint32_t channel, std::chrono::milliseconds patience) {
  MutexLock lock(pair_.mutex_);
  std::deque<std::vector<std::byte>>& queue = pair_.arrived_[node_][channel];
  const std::string& failure = pair_.failures_[node_];
  pair_.changed_.wait_for(
      lock, patience, [&]() FATHOM_REQUIRES(mutex_) { return !queue.empty() || !failure.empty(); });
  if (queue.empty() && !failure.empty()) throw LinkFailure(failure);
  if (queue.empty()) return std::nullopt;
  std::vector<std::byte> message = std::move(queue.front());
  queue.pop_front();
  return message;
}

std::string LinkPair::End::failure() const {
  const MutexLock lock(pair_.mutex_);
  return pair_.failures_[node_];
}

void LinkPair::End::fail(const std::string& why) {
  {
    const MutexLock lock(pair_.mutex_);
    if (!pair_.failures_[node_].empty()) return;
    pair_.failures_[node_] = why;
    pair_.failures_[1 - node_] = pair_.names_[node_] + ": " + why;
  }
  pair_.changed_.notify_all();
}

}  // namespace fathom::comm
