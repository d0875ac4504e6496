#include "apps/fathom_bench/report.h"

#include <gtest/gtest.h>

#include <limits>

#include "apps/common/svg_panel.h"
#include "apps/fathom_bench/plot.h"

namespace fathom::apps {
namespace {

std::vector<RequestRecord> records() {
  RequestRecord record;
  record.prompt_tokens = 32;
  record.output_tokens = 3;
  record.ttft = 0.010;
  record.latency = 0.050;
  record.gaps = {0.02, 0.02};
  RequestRecord failed;
  failed.error = "HTTP 429: too many requests";
  return {record, failed};
}

ServingSetup setup() {
  return {.backend = "fathom",
          .dataset_name = "random",
          .request_rate = std::numeric_limits<double>::infinity(),
          .max_concurrency = 32,
          .dataset = {{"random_input_len", 32}}};
}

TEST(ReportText, has_sglangs_form) {
  const std::string text = report_text(setup(), serving_metrics(records(), 2));
  for (const char* line : {"\n============ Serving Benchmark Result ============\n",
                           "\nBackend:                                 fathom    \n",
                           "\nTraffic request rate:                    inf       \n",
                           "\nMax request concurrency:                 32        \n",
                           "\nSuccessful requests:                     1         \n",
                           "\nFailed requests:                         1         \n",
                           "\n  1 x HTTP 429: too many requests\n",
                           "\nBenchmark duration (s):                  2.00      \n",
                           "\nTotal input tokens:                      32        \n",
                           "\nTotal generated tokens:                  3         \n",
                           "\nRequest throughput (req/s):              0.50      \n",
                           "\nOutput token throughput (tok/s):         1.50      \n",
                           "\nPeak output token throughput (tok/s):    3.00      \n",
                           "\n----------------End-to-End Latency----------------\n",
                           "\n---------------Time to First Token----------------\n",
                           "\n-----Time per Output Token (excl. 1st token)------\n",
                           "\n---------------Inter-Token Latency----------------\n",
                           "\nMean TTFT (ms):                          10.00     \n",
                           "\nP99 ITL (ms):                            20.00     \n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find("Accept length"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\n" + std::string(50, '=') + "\n"));
}

TEST(ReportText, says_what_was_not_set) {
  ServingSetup open = setup();
  open.max_concurrency = 0;
  open.request_rate = 2.5;
  const std::string text = report_text(open, serving_metrics({}, 0));
  EXPECT_NE(text.find("Max request concurrency:                 not set"), std::string::npos);
  EXPECT_NE(text.find("Traffic request rate:                    2.5"), std::string::npos);
  EXPECT_EQ(text.find("Failed requests"), std::string::npos);
}

TEST(ReportJson, has_sglangs_keys) {
  const json::Value line = report_json(setup(), serving_metrics(records(), 2));
  for (const char* key :
       {"backend", "dataset_name", "request_rate", "max_concurrency", "random_input_len",
        "server_info", "duration", "completed", "total_input_tokens", "total_output_tokens",
        "total_output_tokens_retokenized", "request_throughput", "input_throughput",
        "output_throughput", "total_throughput", "concurrency", "accept_length",
        "max_output_tokens_per_s", "max_concurrent_requests"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
  for (const char* time : {"e2e_latency", "ttft", "tpot", "itl"}) {
    for (const char* figure : {"mean", "median", "std", "p90", "p95", "p99"}) {
      const std::string key = std::string(figure) + "_" + time + "_ms";
      EXPECT_TRUE(line.contains(key) && line[key].is_number()) << key;
    }
  }
  EXPECT_EQ(line["completed"], 1);
  EXPECT_EQ(line["failed"], 1);
  EXPECT_DOUBLE_EQ(line["mean_ttft_ms"].get<double>(), 10);
  EXPECT_EQ(line["request_rate"], "inf");
  EXPECT_TRUE(line["accept_length"].is_null());
}

TEST(ReportJson, tells_the_accepted_length_of_a_speculating_server) {
  ServingSetup speculating = setup();
  speculating.drafts = {.length = 2.5, .rate = 0.75, .num_verify_steps = 40, .simulated = true};
  const ServingMetrics metrics = serving_metrics(records(), 2);
  EXPECT_EQ(report_json(speculating, metrics)["accept_length"], 2.5);
  EXPECT_EQ(report_json(speculating, metrics)["accept_simulated"], true);
  const std::string text = report_text(speculating, metrics);
  for (const char* part : {"Accept length:", "Accept rate:", "Verify steps:", "simulated"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST(ReportDetails, has_an_entry_for_every_request) {
  const json::Value details = report_details(records());
  for (const auto& item : details.items()) EXPECT_EQ(item.value().size(), 2u) << item.key();
  EXPECT_EQ(details["itls"][0].size(), 2u);
  EXPECT_EQ(details["errors"][0], "");
}

TEST(TickStep, is_one_two_or_five_times_a_power_of_ten) {
  EXPECT_DOUBLE_EQ(tick_step(10, 5), 2);
  EXPECT_DOUBLE_EQ(tick_step(10.1, 5), 5);
  EXPECT_DOUBLE_EQ(tick_step(0.7, 7), 0.1);
  EXPECT_DOUBLE_EQ(tick_step(4000, 5), 1000);
  EXPECT_DOUBLE_EQ(tick_step(0, 5), 1);
}

TEST(ServingPlot, shows_four_diagrams_and_escapes_its_text) {
  const std::string svg =
      serving_plot("a < b & \"c\"", setup(), serving_metrics(records(), 2), records());
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  for (const char* part :
       {"a &lt; b &amp; &quot;c&quot;", "Time to first token", "Inter-token latency",
        "End-to-end latency", "Output rate over time", "1 failed"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf<"), std::string::npos);
}

TEST(ServingPlot, of_nothing_is_a_picture_too) {
  const std::string svg = serving_plot("none", setup(), serving_metrics({}, 0), {});
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace fathom::apps
