#pragma once
// A load test's figures as SGLang's bench_serving prints and writes them.
//
//   std::fputs(report_text(setup, metrics).c_str(), stdout);
//   append_json_line(path, report_json(setup, metrics));
//
// Pure functions.

#include <string>

#include "apps/fathom_bench/acceptance.h"
#include "apps/fathom_bench/statistics.h"
#include "base/json.h"

namespace fathom::apps {

// What was asked for.
struct ServingSetup {
  std::string backend = {}, dataset_name = {}, tag = {};
  double request_rate = 0;  // infinite: all at once
  int max_concurrency = 0;  // 0 = not set
  int64_t output_tokens_retokenized = 0;
  json::Value dataset = json::Value::object();      // its settings, as flat keys
  json::Value server_info = json::Value::object();  // as the server told it after the run
  Acceptance drafts = {};                           // of a server that speculates
};

std::string report_text(const ServingSetup& setup, const ServingMetrics& metrics);
json::Value report_json(const ServingSetup& setup, const ServingMetrics& metrics);
// Lengths, times and errors of each request, for --output-details.
json::Value report_details(const std::vector<RequestRecord>& records);

}  // namespace fathom::apps
