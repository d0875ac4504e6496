#pragma once
// What the process takes of the machine, under the names that every client library of Prometheus has: process_*.
//
//   Registry::Collector process = add_process_metrics(registry);
//
// Read from /proc at each expose(); what cannot be read there stays 0. Thread-safe.

#include "metrics/registry.h"

namespace fathom::metrics {

Registry::Collector add_process_metrics(Registry& registry);

}  // namespace fathom::metrics
