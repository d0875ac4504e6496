#include "engine/engine_metrics.h"
#include "tests/source_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace fathom::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(EngineMetrics, AreAllListedInTheDocumentation) {
  std::ifstream file(source_path("docs/metrics.md"));
  std::stringstream page;
  page << file.rdbuf();
  metrics::Registry registry;
  EngineMetrics metrics(registry, {.num_lanes = 2});
  metrics.add_startup({});
  std::istringstream text(registry.expose());
  int num_names = 0;
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string hash, keyword, name;
    words >> hash >> keyword >> name;
    if (keyword != "TYPE") continue;
    ++num_names;
    EXPECT_THAT(page.str(),
                ::testing::AnyOf(HasSubstr("`" + name + "`"), HasSubstr("`" + name + "{")));
  }
  EXPECT_GT(num_names, 70);
}

// The names and labels of the Gateway API's inference extension and of llm-d, as they read them from vLLM.
TEST(EngineMetrics, TellRoutersWhatTheyAskFor) {
  metrics::Registry registry;
  EngineMetrics metrics(registry, {.block_tokens = 64, .num_blocks = 1024});
  const std::string text = registry.expose();
  EXPECT_THAT(text,
              HasSubstr("vllm:cache_config_info{block_size=\"64\",num_gpu_blocks=\"1024\"} 1\n"));
  for (const char* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"})
    EXPECT_THAT(text, HasSubstr("# TYPE " + std::string(name) + " gauge\n"));
}

// What the panels of the dashboard among vLLM's examples ask for, but for one.
TEST(EngineMetrics, TellVllmsDashboardWhatItAsksFor) {
  metrics::Registry registry;
  EngineMetrics metrics(registry, {});
  const std::string text = registry.expose();
  for (const char* name :
       {"e2e_request_latency_seconds histogram", "prompt_tokens_total counter",
        "generation_tokens_total counter", "time_per_output_token_seconds histogram",
        "num_requests_running gauge", "num_requests_waiting gauge",
        "time_to_first_token_seconds histogram", "gpu_cache_usage_perc gauge",
        "request_prompt_tokens histogram", "request_generation_tokens histogram",
        "request_success_total counter", "request_queue_time_seconds histogram",
        "request_prefill_time_seconds histogram", "request_decode_time_seconds histogram"})
    EXPECT_THAT(text, HasSubstr("# TYPE vllm:" + std::string(name) + "\n"));
}

TEST(EngineMetrics, ExportStartUpTimesOnlyOnceTheyWereMeasured) {
  metrics::Registry registry;
  EngineMetrics metrics(registry, {});
  EXPECT_THAT(registry.expose(), Not(HasSubstr("startup")));
  metrics.add_startup({.total_seconds = 2.5, .load_weights_seconds = 1.5});
  EXPECT_THAT(registry.expose(), HasSubstr("sglang:engine_startup_time 2.5\n"));
  EXPECT_THAT(registry.expose(), HasSubstr("sglang:engine_load_weights_time 1.5\n"));
}

TEST(EngineMetrics, CountEveryEndOnceByItsReason) {
  metrics::Registry registry;
  EngineMetrics metrics(registry, {});
  for (const core::FinishReason reason :
       {core::FinishReason::kStop, core::FinishReason::kLength, core::FinishReason::kCancelled,
        core::FinishReason::kFailed, core::FinishReason::kFailed})
    metrics.totals.count_end(reason);
  EXPECT_EQ(metrics.totals.requests_finished.value(), 5);
  EXPECT_EQ(metrics.totals.requests_aborted.value(), 1);
  const std::string text = registry.expose();
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{finished_reason=\"stop\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{finished_reason=\"length\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("fathom:requests_total{finish_reason=\"abort\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("fathom:requests_total{finish_reason=\"error\"} 2\n"));
}

}  // namespace
}  // namespace fathom::engine
