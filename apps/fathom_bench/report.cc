#include "apps/fathom_bench/report.h"

#include <cmath>
#include <cstdio>
#include <string_view>

namespace fathom::apps {
namespace {

constexpr int kReportWidth = 50;

std::string centred(const std::string& title, char fill) {
  const int room = kReportWidth - static_cast<int>(title.size());
  const int left = room > 0 ? room / 2 : 0;
  const int right = room > left ? room - left : 0;
  return std::string(static_cast<size_t>(left), fill) + title +
         std::string(static_cast<size_t>(right), fill) + "\n";
}

std::string line(const std::string& label, const std::string& value) {
  char text[160];
  std::snprintf(text, sizeof text, "%-40s %-10s\n", label.c_str(), value.c_str());
  return text;
}

std::string line(const std::string& label, double value) {
  char text[48];
  std::snprintf(text, sizeof text, "%.2f", value);
  return line(label, std::string(text));
}

std::string line(const std::string& label, int64_t value) {
  return line(label, std::to_string(value));
}

std::string latency_section(const std::string& title, const std::string& name,
                            const Distribution& times) {
  return centred(title, '-') + line("Mean " + name + " (ms):", times.mean) +
         line("Median " + name + " (ms):", times.median) +
         line("P90 " + name + " (ms):", times.p90) + line("P95 " + name + " (ms):", times.p95) +
         line("P99 " + name + " (ms):", times.p99);
}

std::string rate_text(double rate) {
  if (std::isinf(rate)) return "inf";
  char text[48];
  std::snprintf(text, sizeof text, "%g", rate);
  return text;
}

std::string failure_lines(const ServingMetrics& metrics) {
  if (metrics.failures.empty()) return {};
  std::string text = line("Failed requests:", int64_t{metrics.num_failed()});
  for (const auto& [reason, count] : metrics.failures) {
    text += "  " + std::to_string(count) + " x " + reason + "\n";
  }
  return text;
}

std::string rates_section(const ServingMetrics& metrics) {
  return line("Request throughput (req/s):", metrics.request_throughput) +
         line("Input token throughput (tok/s):", metrics.input_throughput) +
         line("Output token throughput (tok/s):", metrics.output_throughput) +
         line("Peak output token throughput (tok/s):", metrics.max_output_tokens_per_s) +
         line("Peak concurrent requests:", int64_t{metrics.max_concurrent_requests}) +
         line("Total token throughput (tok/s):", metrics.total_throughput) +
         line("Concurrency:", metrics.concurrency);
}

void add_distribution(json::Value& result, const std::string& name, const Distribution& times) {
  result["mean_" + name + "_ms"] = times.mean;
  result["median_" + name + "_ms"] = times.median;
  result["std_" + name + "_ms"] = times.std;
  result["p90_" + name + "_ms"] = times.p90;
  result["p95_" + name + "_ms"] = times.p95;
  result["p99_" + name + "_ms"] = times.p99;
}

std::string drafts_section(const Acceptance& drafts) {
  if (!drafts.length) return "";
  std::string text = line("Accept length:", *drafts.length);
  if (drafts.rate) text += line("Accept rate:", *drafts.rate);
  if (drafts.num_verify_steps) text += line("Verify steps:", *drafts.num_verify_steps);
  if (drafts.simulated) text += line("Acceptance:", std::string("simulated"));
  return text;
}

// Null where the server does not speculate.
void add_drafts(json::Value& result, const Acceptance& drafts) {
  const auto or_null = [](const auto& value) {
    return value ? json::Value(*value) : json::Value(nullptr);
  };
  result["accept_length"] = or_null(drafts.length);
  result["accept_rate"] = or_null(drafts.rate);
  result["spec_verify_ct"] = or_null(drafts.num_verify_steps);
  result["accept_simulated"] = drafts.length ? json::Value(drafts.simulated) : json::Value(nullptr);
}

}  // namespace

std::string report_text(const ServingSetup& setup, const ServingMetrics& metrics) {
  std::string text = "\n" + centred(" Serving Benchmark Result ", '=');
  text += line("Backend:", setup.backend);
  text += line("Traffic request rate:", rate_text(setup.request_rate));
  text += line("Max request concurrency:",
               setup.max_concurrency > 0 ? std::to_string(setup.max_concurrency) : "not set");
  text += line("Successful requests:", int64_t{metrics.completed});
  text += failure_lines(metrics);
  text += line("Benchmark duration (s):", metrics.duration_seconds);
  text += line("Total input tokens:", metrics.total_input_tokens);
  text += line("Total input text tokens:", metrics.total_input_tokens);
  text += line("Total generated tokens:", metrics.total_output_tokens);
  text += line("Total generated tokens (retokenized):", setup.output_tokens_retokenized);
  text += rates_section(metrics);
  text += drafts_section(setup.drafts);
  text += latency_section("End-to-End Latency", "E2E Latency", metrics.e2e_latency_ms);
  text += latency_section("Time to First Token", "TTFT", metrics.ttft_ms);
  text += latency_section("Time per Output Token (excl. 1st token)", "TPOT", metrics.tpot_ms);
  text += latency_section("Inter-Token Latency", "ITL", metrics.itl_ms);
  text += line("Max ITL (ms):", metrics.itl_ms.max);
  return text + std::string(kReportWidth, '=') + "\n";
}

json::Value report_json(const ServingSetup& setup, const ServingMetrics& metrics) {
  json::Value result = {{"tag", setup.tag},
                        {"backend", setup.backend},
                        {"dataset_name", setup.dataset_name},
                        {"request_rate", rate_text(setup.request_rate)},
                        {"max_concurrency", nullptr}};
  if (std::isfinite(setup.request_rate)) result["request_rate"] = setup.request_rate;
  if (setup.max_concurrency > 0) result["max_concurrency"] = setup.max_concurrency;
  for (const auto& item : setup.dataset.items()) result[item.key()] = item.value();
  result["server_info"] = setup.server_info;
  result["duration"] = metrics.duration_seconds;
  result["completed"] = metrics.completed;
  result["failed"] = metrics.num_failed();
  result["total_input_tokens"] = metrics.total_input_tokens;
  result["total_input_text_tokens"] = metrics.total_input_tokens;
  result["total_output_tokens"] = metrics.total_output_tokens;
  result["total_output_tokens_retokenized"] = setup.output_tokens_retokenized;
  result["request_throughput"] = metrics.request_throughput;
  result["input_throughput"] = metrics.input_throughput;
  result["output_throughput"] = metrics.output_throughput;
  result["total_throughput"] = metrics.total_throughput;
  add_distribution(result, "e2e_latency", metrics.e2e_latency_ms);
  add_distribution(result, "ttft", metrics.ttft_ms);
  add_distribution(result, "tpot", metrics.tpot_ms);
  add_distribution(result, "itl", metrics.itl_ms);
  result["max_itl_ms"] = metrics.itl_ms.max;
  result["concurrency"] = metrics.concurrency;
  add_drafts(result, setup.drafts);
  result["max_output_tokens_per_s"] = metrics.max_output_tokens_per_s;
  result["max_concurrent_requests"] = metrics.max_concurrent_requests;
  return result;
}

json::Value report_details(const std::vector<RequestRecord>& records) {
  json::Value details = {
      {"input_lens", json::Value::array()}, {"output_lens", json::Value::array()},
      {"ttfts", json::Value::array()},      {"itls", json::Value::array()},
      {"latencies", json::Value::array()},  {"errors", json::Value::array()}};
  for (const RequestRecord& record : records) {
    details["input_lens"].push_back(record.prompt_tokens);
    details["output_lens"].push_back(record.output_tokens);
    details["ttfts"].push_back(record.ttft);
    details["itls"].push_back(record.gaps);
    details["latencies"].push_back(record.latency);
    details["errors"].push_back(record.error);
  }
  return details;
}

}  // namespace fathom::apps
