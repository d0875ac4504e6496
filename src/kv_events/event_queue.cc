#include "kv_events/event_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"

namespace fathom::kv_events {

EventQueue::EventQueue(int num_lanes, int max_events)
    : max_events_(static_cast<size_t>(max_events)),
      fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      lanes_(static_cast<size_t>(num_lanes)) {
  FATHOM_CHECK(fd_ >= 0, "eventfd failed");
}

EventQueue::~EventQueue() { close(fd_); }

int64_t EventQueue::add(int lane, Event event) {
  int64_t num_lost = 0;
  bool wakes = false;
  {
    const MutexLock lock(mutex_);
    std::vector<Event>& events = lanes_.at(static_cast<size_t>(lane));
    if (events.size() >= max_events_) {
      num_lost = static_cast<int64_t>(events.size()) + 1;
      events.clear();
      event = Event{.kind = Event::Kind::kCleared};
    }
    events.push_back(std::move(event));
    wakes = !std::exchange(is_awake_, true);
  }
  if (wakes) wake();
  return num_lost;
}

std::vector<Event> EventQueue::take(int lane) {
  const MutexLock lock(mutex_);
  return std::exchange(lanes_.at(static_cast<size_t>(lane)), {});
}

void EventQueue::wake() {
  const uint64_t one = 1;
  // Fails only when it is readable anyway.
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof one);
}

void EventQueue::clear_wake() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t num_read = read(fd_, &count, sizeof count);
  const MutexLock lock(mutex_);
  is_awake_ = false;
}

}  // namespace fathom::kv_events
