#include "kv_events/event_queue.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

namespace fathom::kv_events {
namespace {

bool is_readable(const EventQueue& queue, int timeout_ms = 0) {
  pollfd file{.fd = queue.fd(), .events = POLLIN, .revents = 0};
  return poll(&file, 1, timeout_ms) == 1;
}

Event event_of(uint64_t name) { return {.kind = Event::Kind::kRemoved, .names = {name}}; }

TEST(KvEventQueue, wakes_once_for_what_waits) {
  EventQueue queue(2, 10);
  EXPECT_FALSE(is_readable(queue));
  EXPECT_EQ(queue.add(1, event_of(5)), 0);
  EXPECT_EQ(queue.add(1, event_of(6)), 0);
  EXPECT_TRUE(is_readable(queue));
  queue.clear_wake();
  EXPECT_FALSE(is_readable(queue));
  EXPECT_TRUE(queue.take(0).empty());
  const std::vector<Event> events = queue.take(1);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].names.front(), 6u);
  queue.add(0, event_of(7));
  EXPECT_TRUE(is_readable(queue));
}

TEST(KvEventQueue, begins_anew_when_it_is_full) {
  EventQueue queue(2, 3);
  for (uint64_t name = 1; name <= 3; ++name) EXPECT_EQ(queue.add(0, event_of(name)), 0);
  EXPECT_EQ(queue.add(0, event_of(4)), 4);
  EXPECT_EQ(queue.add(0, event_of(5)), 0);
  EXPECT_EQ(queue.add(1, event_of(1)), 0);  // the other lane has its own
  const std::vector<Event> events = queue.take(0);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Event::Kind::kCleared);
  EXPECT_EQ(events[1].names.front(), 5u);
}

TEST(KvEventQueue, loses_nothing_between_two_threads) {
  constexpr uint64_t kEvents = 20'000;
  EventQueue queue(1, kEvents);
  std::thread writer([&] {
    for (uint64_t name = 1; name <= kEvents; ++name) queue.add(0, event_of(name));
  });
  uint64_t last = 0;
  bool in_order = true;
  while (last < kEvents && is_readable(queue, 10'000)) {
    queue.clear_wake();
    for (const Event& event : queue.take(0)) in_order &= event.names.front() == ++last;
  }
  writer.join();
  EXPECT_TRUE(in_order);
  EXPECT_EQ(last, kEvents);
}

}  // namespace
}  // namespace fathom::kv_events
