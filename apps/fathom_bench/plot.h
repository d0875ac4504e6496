#pragma once
// A load test as one SVG picture: histograms of the latencies and the output rate over time.
//
//   write(path, serving_plot("32 clients", setup, metrics, records));
//
// Pure functions. The text is escaped; the file needs nothing from outside.

#include <string>
#include <vector>

#include "apps/fathom_bench/report.h"

namespace fathom::apps {

std::string serving_plot(const std::string& title, const ServingSetup& setup,
                         const ServingMetrics& metrics, const std::vector<RequestRecord>& records);

}  // namespace fathom::apps
