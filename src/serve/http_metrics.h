#pragma once
// The transport's counters and the open requests under metric names.
//
//   metrics::Registry::Collector collector = add_http_metrics(registry, http.counters(), generation);
//
// The collector is destroyed before the counters and the service.

#include "answer/generation_service.h"
#include "http/server_counters.h"
#include "metrics/registry.h"

namespace fathom::serve {

metrics::Registry::Collector add_http_metrics(metrics::Registry& registry,
                                              const http::ServerCounters& counters,
                                              const answer::GenerationService& generation,
                                              int64_t max_body_memory_bytes);

}  // namespace fathom::serve
