#pragma once
// Memory, temperature, power and use of the GPUs that a model lies on.
//
//   Registry::Collector gpus = add_gpu_metrics(registry, std::move(*nvml), {"00000000:3B:00.0"});
//
// The label `gpu` is the place in the list. Read from the driver at each expose(), some milliseconds a GPU; what a GPU
// does not tell at first has no series. Thread-safe.

#include <memory>
#include <string>
#include <vector>

#include "metrics/nvml.h"
#include "metrics/registry.h"

namespace fathom::metrics {

Registry::Collector add_gpu_metrics(Registry& registry, std::unique_ptr<Nvml> nvml,
                                    const std::vector<std::string>& bus_ids);

}  // namespace fathom::metrics
