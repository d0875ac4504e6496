#pragma once
// EventQueue: what listeners hear, on its way to the thread that publishes it. Bounded for each lane: one that is full
// begins anew with "cleared", so that nobody believes in blocks whose end was lost.
//
//   EventQueue queue(/*num_lanes=*/2, /*max_events=*/1000);
//   const int64_t num_lost = queue.add(lane, std::move(event));        // never waits for the other thread's work
//   poll(queue.fd());                                                  // readable: something is there
//   std::vector<Event> events = queue.take(lane);
//
// Thread-safe; one thread takes.

#include <vector>

#include "base/mutex.h"
#include "kv_events/lane_events.h"

namespace fathom::kv_events {

class EventQueue {
 public:
  EventQueue(int num_lanes, int max_events);
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // How many events were lost to keep the bound: 0, or all of the lane's with this one.
  int64_t add(int lane, Event event);
  std::vector<Event> take(int lane);

  // Readable after add() or wake(), until clear_wake().
  int fd() const { return fd_; }
  void wake();
  void clear_wake();

 private:
  const size_t max_events_;
  const int fd_;
  Mutex mutex_;
  std::vector<std::vector<Event>> lanes_ FATHOM_GUARDED_BY(mutex_);
  bool is_awake_ FATHOM_GUARDED_BY(mutex_) = false;
};

}  // namespace fathom::kv_events
