#pragma once
// What the transport has done so far, for metrics: plain atomics that anybody reads at any time.
//
//   metrics.set("open_connections", server.counters().open_connections.load(std::memory_order_relaxed));
//
// Thread-safe. Owned by the Server, which outlives everything that reads them.

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace fathom::http {

// Why the transport itself answered a request or closed a connection; a label of a metric.
enum class Rejection {
  kMalformed,     // 400: not HTTP as we accept it
  kTooLarge,      // 413, 414, 431
  kTimeout,       // 408: head or body did not come in time
  kUnauthorized,  // 401, 403
  kNotFound,      // 404, 405
  kUnsupported,   // 415, 417
  kOverloaded,    // 503: connections or bodies
  kStalled,       // an answer was not taken in time: cut
  kCount,
};
std::string_view to_string(Rejection rejection);

struct ServerCounters {
  using Counter = std::atomic<int64_t>;
  Counter accepted_connections{0};
  Counter open_connections{0};         // now
  Counter active_exchanges{0};         // now: dispatched to a handler and not yet answered
  Counter open_streams{0};             // now
  Counter backlog_bytes{0};            // now: queued for clients, not yet taken by sockets
  Counter bodies_bytes{0};             // now: request bodies held
  Counter requests{0};                 // heads that were complete and well-formed
  std::array<Counter, 6> responses{};  // by class: [2] = 2xx
  Counter client_disconnects{0};       // clients that went before their answer was complete
  Counter closed_idle_connections{0};  // to make room for others
  Counter accept_pauses{0};            // accept() ran out of descriptors
  Counter sent_bytes{0}, received_bytes{0};
  std::array<Counter, static_cast<size_t>(Rejection::kCount)> rejected{};

  Counter& rejected_for(Rejection reason) { return rejected[static_cast<size_t>(reason)]; }
};

}  // namespace fathom::http
