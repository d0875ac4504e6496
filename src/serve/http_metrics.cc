#include "serve/http_metrics.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/memory.h"
#include "serve/api_server.h"

namespace fathom::serve {
namespace {

using Value = http::ServerCounters::Counter;

double read(const Value& value) {
  return static_cast<double>(value.load(std::memory_order_relaxed));
}

// A metric and the transport's value that it shows.
struct Gauges {
  std::vector<std::pair<metrics::Gauge*, const Value*>> gauges;
  std::vector<std::pair<metrics::Counter*, const Value*>> counters;
  metrics::Gauge *open_requests = nullptr, *ghosts = nullptr;
};

// What bodies cost, how often there was no memory, and what of the log nobody took.
struct MemoryShown {
  metrics::Gauge *body_memory = nullptr, *body_memory_limit = nullptr;
  metrics::Counter *failures = nullptr, *reserve_uses = nullptr, *dropped_log_lines = nullptr;
};

MemoryShown add_memory(metrics::Registry& registry) {
  return {.body_memory = &registry.gauge(
              {.name = "fathom:body_memory_bytes",
               .help = "Memory that request bodies in work may take, with what is made of them."}),
          .body_memory_limit = &registry.gauge(
              {.name = "fathom:body_memory_limit_bytes", .help = "Its limit, --max-body-memory."}),
          .failures = &registry.counter(
              {.name = "fathom:allocation_failures_total",
               .help = "Requests for memory that failed; each ended one request with 503."}),
          .reserve_uses = &registry.counter(
              {.name = "fathom:memory_reserve_uses_total",
               .help = "Pieces of the reserve that the engine and the event loops needed."}),
          .dropped_log_lines = &registry.counter(
              {.name = "fathom:log_lines_dropped_total",
               .help = "Log lines dropped because whoever reads the log was too slow, or its disk "
                       "had no room."})};
}

void show_memory(const MemoryShown& shown, const http::ServerCounters& http, int64_t limit) {
  const memory::Counts counts = memory::counts();
  shown.body_memory->set(read(http.bodies_bytes) * static_cast<double>(kBodyMemoryPerByte));
  shown.body_memory_limit->set(static_cast<double>(limit));
  shown.failures->set_total(static_cast<double>(counts.num_failures));
  shown.reserve_uses->set_total(static_cast<double>(counts.num_reserve_uses));
  shown.dropped_log_lines->set_total(static_cast<double>(num_dropped_log_lines()));
}

void add_gauges(metrics::Registry& registry, const http::ServerCounters& http, Gauges& out) {
  const auto add = [&](const char* name, const char* help, const Value& value) {
    out.gauges.emplace_back(&registry.gauge({.name = name, .help = help}), &value);
  };
  add("fathom:open_connections", "Connections that are open.", http.open_connections);
  add("fathom:active_exchanges", "HTTP requests that are being answered.", http.active_exchanges);
  add("fathom:open_streams", "Answers that are streams.", http.open_streams);
  add("fathom:send_backlog_bytes", "Bytes queued for clients.", http.backlog_bytes);
  add("fathom:request_bodies_bytes", "Bytes of request bodies held.", http.bodies_bytes);
  out.open_requests = &registry.gauge(
      {.name = "fathom:open_requests", .help = "Generation requests that are being answered."});
  out.ghosts = &registry.gauge(
      {.name = "fathom:ghost_requests",
       .help = "Requests that the engine still works on although nobody waits for them."});
}

void add_counters(metrics::Registry& registry, const http::ServerCounters& http, Gauges& out) {
  const auto add = [&](const metrics::MetricOptions& options, const Value& value) {
    out.counters.emplace_back(&registry.counter(options), &value);
  };
  add({.name = "fathom:http_requests_total",
       .aliases = {{"sglang:http_requests_total"}},
       .help = "HTTP requests whose head was complete and well-formed."},
      http.requests);
  for (size_t i = 1; i < http.responses.size(); ++i) {
    add({.name = "fathom:http_responses_total",
         .aliases = {{"sglang:http_responses_total"}},
         .help = "HTTP answers by class of their status.",
         .labels = {{"status_class", std::to_string(i) + "xx"}}},
        http.responses[i]);
  }
  for (size_t i = 0; i < http.rejected.size(); ++i) {
    add({.name = "fathom:http_rejected_total",
         .help = "Requests and connections that the transport itself refused.",
         .labels = {{"reason", std::string(to_string(static_cast<http::Rejection>(i)))}}},
        http.rejected[i]);
  }
  add({.name = "fathom:client_disconnects_total",
       .help = "Clients that went before their answer was complete."},
      http.client_disconnects);
  add({.name = "fathom:accepted_connections_total", .help = "Connections accepted."},
      http.accepted_connections);
  add({.name = "fathom:closed_idle_connections_total",
       .help = "Idle connections closed to make room for others."},
      http.closed_idle_connections);
  add({.name = "fathom:sent_bytes_total", .help = "Bytes sent."}, http.sent_bytes);
  add({.name = "fathom:received_bytes_total", .help = "Bytes received."}, http.received_bytes);
}

}  // namespace

metrics::Registry::Collector add_http_metrics(metrics::Registry& registry,
                                              const http::ServerCounters& counters,
                                              const answer::GenerationService& generation,
                                              int64_t max_body_memory_bytes) {
  Gauges shown;
  add_gauges(registry, counters, shown);
  add_counters(registry, counters, shown);
  return registry.add_collector([shown = std::move(shown), memory_shown = add_memory(registry),
                                 &counters, &generation, max_body_memory_bytes] {
    show_memory(memory_shown, counters, max_body_memory_bytes);
    for (const auto& [gauge, value] : shown.gauges) gauge->set(read(*value));
    for (const auto& [counter, value] : shown.counters) counter->set_total(read(*value));
    shown.open_requests->set(generation.num_open());
    shown.ghosts->set(generation.num_ghosts());
  });
}

}  // namespace fathom::serve
