#include "serve/response_metrics.h"

namespace fathom::serve {

metrics::Registry::Collector add_response_metrics(metrics::Registry& registry,
                                                  const api::ResponseStore& store) {
  metrics::Gauge& held = registry.gauge({.name = "fathom:stored_responses",
                                         .help = "Responses that a later request can go on with."});
  metrics::Gauge& num_bytes = registry.gauge(
      {.name = "fathom:stored_responses_bytes", .help = "What they take of memory, about."});
  metrics::Counter& stored = registry.counter(
      {.name = "fathom:responses_stored_total", .help = "Responses put into the store."});
  metrics::Counter& evicted =
      registry.counter({.name = "fathom:responses_evicted_total",
                        .help = "Responses that left the store to make room for others."});
  return registry.add_collector([&held, &num_bytes, &stored, &evicted, &store] {
    const api::ResponseStore::Counts counts = store.counts();
    held.set(static_cast<double>(counts.num_responses));
    num_bytes.set(static_cast<double>(counts.num_bytes));
    stored.set_total(static_cast<double>(counts.num_stored));
    evicted.set_total(static_cast<double>(counts.num_evicted));
  });
}

}  // namespace fathom::serve
