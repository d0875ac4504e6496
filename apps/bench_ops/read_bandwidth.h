#pragma once
// The bandwidth that a benchmark holds its figures to, in GB/s: of the backend's memory, by `num_threads` of a CPU (0:
// as many as it has). Takes seconds, and says so on standard error. The reference backend is held to what the fast one
// could do on the same machine.

#include "ops/backend.h"

namespace fathom::apps {

double measure_read_bandwidth(const ops::Backend& backend, int num_threads);

}  // namespace fathom::apps
