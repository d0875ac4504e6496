#include "engine/engine_metrics.h"

#include <string>
#include <utility>

namespace fathom::engine {
namespace {

using metrics::Alias;
using metrics::Counter;
using metrics::Gauge;
using metrics::Histogram;
using metrics::Labels;
using metrics::log_buckets;
using metrics::Registry;

std::vector<Alias> aliases(std::initializer_list<const char*> names) {
  std::vector<Alias> result;
  for (const char* name : names) result.push_back({.name = name});
  return result;
}

Gauge& gauge(Registry& registry, const char* name, std::initializer_list<const char*> other_names,
             const char* help) {
  return registry.gauge({.name = name, .aliases = aliases(other_names), .help = help});
}

Counter& counter(Registry& registry, const char* name,
                 std::initializer_list<const char*> other_names, const char* help) {
  return registry.counter({.name = name, .aliases = aliases(other_names), .help = help});
}

struct HistogramNames {
  const char* name;
  std::initializer_list<const char*> aliases;
  const char* help;
};

Histogram& histogram(Registry& registry, const HistogramNames& names,
                     const metrics::LogBuckets& buckets) {
  return registry.histogram(
      {.name = names.name, .aliases = aliases(names.aliases), .help = names.help},
      log_buckets(buckets));
}

Counter& rejections(Registry& registry, const char* reason) {
  return registry.counter({.name = "fathom:rejected_total",
                           .help = "Requests that the engine did not accept, by reason.",
                           .labels = {{"reason", reason}}});
}

Counter& violations(Registry& registry, const char* invariant) {
  return registry.counter({.name = "fathom:invariant_violations_total",
                           .help = "Checks of the engine's own state that failed; any is a bug.",
                           .labels = {{"invariant", invariant}}});
}

Counter& grammar_failures(Registry& registry, const char* why) {
  return registry.counter({.name = "fathom:grammar_failures_total",
                           .help = "Requests that failed because their grammar could not go on.",
                           .labels = {{"why", why}}});
}

// Percentiles of the live page come from these two, so their buckets are narrow.
constexpr metrics::LogBuckets kFirstTokenBuckets{.first = 0.001, .last = 100, .per_decade = 10};
constexpr metrics::LogBuckets kInterTokenBuckets{.first = 0.0001, .last = 10, .per_decade = 10};
constexpr metrics::LogBuckets kRequestBuckets{.first = 0.001, .last = 1000, .per_decade = 5};
constexpr metrics::LogBuckets kStepBuckets{.first = 0.0001, .last = 10, .per_decade = 5};
constexpr metrics::LogBuckets kHostBuckets{.first = 0.000001, .last = 0.1, .per_decade = 5};
constexpr metrics::LogBuckets kTokenBuckets{.first = 1, .last = 1e6, .per_decade = 3};

}  // namespace

EngineLoad::EngineLoad(Registry& registry)
    : num_running(gauge(registry, "fathom:num_running_requests",
                        {"sglang:num_running_reqs", "vllm:num_requests_running"},
                        "Requests that own a slot.")),
      num_waiting(gauge(registry, "fathom:num_waiting_requests",
                        {"sglang:num_queue_reqs", "vllm:num_requests_waiting"},
                        "Requests in the queue, new and retracted.")),
      kv_usage_ratio(gauge(registry, "fathom:kv_usage_ratio",
                           {"sglang:token_usage", "sglang:full_token_usage",
                            "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"},
                           "Part of the KV cache in use by requests, 0 to 1; cached prefixes that "
                           "nobody uses are free.")),
      kv_used_tokens(gauge(registry, "fathom:kv_used_tokens",
                           {"sglang:num_used_tokens", "sglang:kv_used_tokens"},
                           "Rows of the KV cache in blocks that requests use.")),
      kv_available_tokens(gauge(registry, "fathom:kv_available_tokens",
                                {"sglang:kv_available_tokens"},
                                "Rows of the KV cache in free blocks.")),
      kv_evictable_tokens(gauge(registry, "fathom:kv_evictable_tokens",
                                {"sglang:kv_evictable_tokens"},
                                "Rows of cached prefixes that no request uses.")),
      kv_fenced_tokens(gauge(registry, "fathom:kv_fenced_tokens", {},
                             "Rows in blocks given back while a step in flight may write them.")),
      cache_hit_rate(gauge(registry, "fathom:cache_hit_rate", {"sglang:cache_hit_rate"},
                           "Cached part of the prompt tokens admitted in the last interval of a "
                           "second that admitted any, 0 to 1.")),
      generation_tokens_per_second(
          gauge(registry, "fathom:generation_tokens_per_second", {"sglang:gen_throughput"},
                "Tokens generated per second over the last second of work; 0 when idle.")),
      seconds_since_progress(gauge(registry, "fathom:seconds_since_progress", {},
                                   "While there is work: time since a step last ended; else 0.")),
      paused(gauge(registry, "fathom:paused", {},
                   "1 while /pause_generation holds every request, else 0.")) {}

LaneLoad::LaneLoad(Registry& registry, int lane) {
  const metrics::Labels labels = {{"dp_rank", std::to_string(lane)}};
  num_running = &registry.gauge({.name = "fathom:lane_num_running_requests",
                                 .help = "Requests that own a slot of the lane.",
                                 .labels = labels});
  kv_used_tokens =
      &registry.gauge({.name = "fathom:lane_kv_used_tokens",
                       .help = "Rows of the lane's KV cache in blocks that its requests use.",
                       .labels = labels});
}

EngineTotals::EngineTotals(Registry& registry)
    : prompt_tokens(counter(registry, "fathom:prompt_tokens_total",
                            {"sglang:prompt_tokens_total", "vllm:prompt_tokens_total",
                             "vllm:prefix_cache_queries_total"},
                            "Prompt tokens of admitted requests, each request once.")),
      cached_tokens(counter(registry, "fathom:cached_tokens_total",
                            {"sglang:cached_tokens_total", "vllm:prefix_cache_hits_total"},
                            "Prompt tokens found in the prefix cache, each request once.")),
      prefill_tokens(counter(registry, "fathom:prefill_tokens_total", {},
                             "Tokens computed in prefill, those of retracted requests "
                             "again.")),
      generation_tokens(counter(registry, "fathom:generation_tokens_total",
                                {"sglang:generation_tokens_total", "vllm:generation_tokens_total"},
                                "Tokens generated.")),
      wasted_tokens(counter(registry, "fathom:wasted_tokens_total", {},
                            "Tokens sampled after their request had ended.")),
      evicted_tokens(counter(registry, "fathom:evicted_tokens_total",
                             {"sglang:evicted_tokens_total"},
                             "Rows evicted from the prefix cache.")),
      steps(counter(registry, "fathom:steps_total", {}, "Steps submitted to the runner.")),
      retractions(counter(registry, "fathom:retractions_total", {"vllm:num_preemptions_total"},
                          "Times a running request gave its blocks up and was queued again.")),
      requests_received(counter(registry, "fathom:requests_received_total", {},
                                "Requests that the engine accepted.")),
      requests_finished(counter(registry, "fathom:requests_finished_total",
                                {"sglang:num_requests_total"},
                                "Requests that ended, for whatever reason.")),
      requests_aborted(counter(registry, "fathom:aborted_requests_total",
                               {"sglang:num_aborted_requests_total"},
                               "Requests that were cancelled.")),
      rejected_invalid(rejections(registry, "invalid")),
      rejected_queue_full(rejections(registry, "queue_full")),
      rejected_draining(rejections(registry, "draining")),
      queue_timeouts(counter(registry, "fathom:queue_timeouts_total", {},
                             "Requests that failed because they waited too long.")),
      grammar_dead_ends(grammar_failures(registry, "dead_end")),
      grammar_refusals(grammar_failures(registry, "refusal")),
      grammar_without_memory(grammar_failures(registry, "no_memory")),
      integrity_violations(violations(registry, "integrity")),
      accounting_violations(violations(registry, "accounting")) {
  const char* const reasons[] = {"stop", "length", "abort", "error"};
  for (size_t i = 0; i < requests_by_reason.size(); ++i)
    requests_by_reason[i] =
        &registry.counter({.name = "fathom:requests_total",
                           .aliases = {{.name = "vllm:request_success_total",
                                        .labels = Labels{{"finished_reason", reasons[i]}}}},
                           .help = "Requests that ended, by reason.",
                           .labels = {{"finish_reason", reasons[i]}}});
}

void EngineTotals::count_end(core::FinishReason reason) {
  requests_finished.add();
  switch (reason) {
    case core::FinishReason::kStop:
      requests_by_reason[0]->add();
      break;
    case core::FinishReason::kLength:
      requests_by_reason[1]->add();
      break;
    case core::FinishReason::kCancelled:
      requests_by_reason[2]->add();
      requests_aborted.add();
      break;
    default:
      requests_by_reason[3]->add();
  }
}

SpeculationMetrics::SpeculationMetrics(Registry& registry)
    : num_drafts(gauge(registry, "fathom:spec_num_drafts", {},
                       "Drafts asked for after each token now; 0 = plain decoding.")),
      accept_length(gauge(registry, "fathom:spec_accept_length", {"sglang:spec_accept_length"},
                          "Tokens that a verifying step of a request yielded on average over the "
                          "last second of work; 0 when none verified.")),
      accept_rate(gauge(registry, "fathom:spec_accept_rate", {"sglang:spec_accept_rate"},
                        "Accepted part of the drafts verified over the last second of work.")),
      verify_slices(counter(registry, "fathom:spec_verify_total",
                            {"sglang:spec_verify_calls_total", "vllm:spec_decode_num_drafts_total"},
                            "Steps that verified drafts, each counted once per request.")),
      proposed_drafts(
          counter(registry, "fathom:spec_proposed_drafts_total", {}, "Drafts proposed.")),
      verified_drafts(counter(registry, "fathom:spec_verified_drafts_total",
                              {"vllm:spec_decode_num_draft_tokens_total"}, "Drafts verified.")),
      accepted_drafts(counter(registry, "fathom:spec_accepted_drafts_total",
                              {"vllm:spec_decode_num_accepted_tokens_total"},
                              "Drafts accepted, those behind the end of a request left out.")) {}

StepTimeMetrics::StepTimeMetrics(Registry& registry)
    : bound_seconds(gauge(registry, "fathom:max_step_seconds", {},
                          "--max-step-ms: how long a step in which requests decode shall take "
                          "at most; 0 = no bound.")),
      longest_seconds(gauge(registry, "fathom:longest_step_seconds", {},
                            "The longest step in which requests decoded, of the last second or "
                            "two; 0 when idle or without a bound.")),
      predicted_seconds(gauge(registry, "fathom:predicted_step_seconds", {},
                              "What had been predicted for that step.")),
      error(gauge(registry, "fathom:step_prediction_error_ratio", {},
                  "Mean difference of measured and predicted time of steps, as a part of the "
                  "prediction, lately.")),
      steps(counter(registry, "fathom:stream_steps_total", {},
                    "With a bound: steps in which requests decoded.")),
      cut_steps(counter(registry, "fathom:cut_steps_total", {},
                        "Of these, steps that computed fewer prompt tokens for the bound.")),
      steps_over(counter(registry, "fathom:steps_over_bound_total", {},
                         "Of these, steps that took longer than the bound.")) {}

RequestHistograms::RequestHistograms(Registry& registry)
    : time_to_first_token_seconds(
          histogram(registry,
                    {"fathom:time_to_first_token_seconds",
                     {"sglang:time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
                     "From the engine's acceptance of a request to its first token."},
                    kFirstTokenBuckets)),
      inter_token_latency_seconds(
          histogram(registry,
                    {"fathom:inter_token_latency_seconds",
                     {"sglang:inter_token_latency_seconds", "vllm:inter_token_latency_seconds",
                      "vllm:time_per_output_token_seconds"},
                     "Between two tokens of a request."},
                    kInterTokenBuckets)),
      e2e_latency_seconds(
          histogram(registry,
                    {"fathom:e2e_request_latency_seconds",
                     {"sglang:e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"},
                     "From the engine's acceptance of a request to its end."},
                    kRequestBuckets)),
      queue_seconds(histogram(registry,
                              {"fathom:queue_time_seconds",
                               {"sglang:queue_time_seconds", "vllm:request_queue_time_seconds"},
                               "From the engine's acceptance of a request to its first admission."},
                              kRequestBuckets)),
      prefill_seconds(histogram(registry,
                                {"fathom:request_prefill_seconds",
                                 {"vllm:request_prefill_time_seconds"},
                                 "From a request's first admission to its first token."},
                                kRequestBuckets)),
      decode_seconds(histogram(registry,
                               {"fathom:request_decode_seconds",
                                {"vllm:request_decode_time_seconds"},
                                "From a request's first token to its end."},
                               kRequestBuckets)),
      prompt_tokens(histogram(registry,
                              {"fathom:request_prompt_tokens",
                               {"sglang:prompt_tokens_histogram", "vllm:request_prompt_tokens"},
                               "Prompt tokens of accepted requests."},
                              kTokenBuckets)),
      generation_tokens(
          histogram(registry,
                    {"fathom:request_generation_tokens",
                     {"sglang:generation_tokens_histogram", "vllm:request_generation_tokens"},
                     "Generated tokens of ended requests."},
                    kTokenBuckets)) {}

StepHistograms::StepHistograms(Registry& registry)
    : step_seconds(histogram(
          registry, {"fathom:step_seconds", {}, "The runner's time for one step."}, kStepBuckets)),
      forward_seconds(
          histogram(registry,
                    {"fathom:step_forward_seconds",
                     {},
                     "Of it, the model's layers and logits; on a GPU by its own clock."},
                    kStepBuckets)),
      sampling_seconds(histogram(registry,
                                 {"fathom:step_sampling_seconds",
                                  {},
                                  "Of it, the choice of tokens, and drafts; on a GPU by its own "
                                  "clock."},
                                 kStepBuckets)),
      mask_wait_seconds(histogram(registry,
                                  {"fathom:step_mask_wait_seconds",
                                   {},
                                   "Of it, the wait for grammar masks between the two."},
                                  kStepBuckets)),
      plan_seconds(histogram(
          registry, {"fathom:step_plan_seconds", {}, "Host time to plan one step."}, kHostBuckets)),
      commit_seconds(histogram(
          registry, {"fathom:step_commit_seconds", {}, "Host time to commit one step's results."},
          kHostBuckets)),
      hand_over_seconds(
          histogram(registry,
                    {"fathom:step_hand_over_seconds",
                     {},
                     "Host time to hand one step's updates to the server and to count them."},
                    kHostBuckets)),
      mask_seconds(
          histogram(registry,
                    {"fathom:mask_seconds",
                     {},
                     "A worker's time for one job of grammar masks, of one request or a few."},
                    kHostBuckets)) {}

EngineMetrics::EngineMetrics(Registry& registry, const EngineDimensions& dimensions)
    : registry_(registry),
      load(registry),
      totals(registry),
      speculation(registry),
      step_time(registry),
      requests(registry),
      steps(registry) {
  const auto constant = [&](const char* name, const char* alias, const char* help, int64_t value) {
    gauge(registry, name, {alias}, help).set(static_cast<double>(value));
  };
  constant("fathom:max_total_tokens", "sglang:max_total_num_tokens", "Rows of the KV cache.",
           dimensions.num_blocks * dimensions.block_tokens);
  constant("fathom:block_tokens", "sglang:page_size", "Rows of one block.",
           dimensions.block_tokens);
  constant("fathom:num_blocks", "sglang:num_pages", "Blocks of the KV cache.",
           dimensions.num_blocks);
  registry
      .gauge({.name = "fathom:cache_config_info",
              .aliases = {{"vllm:cache_config_info"}},
              .help = "1; the KV cache's blocks as labels, where routers look for them.",
              .labels = {{"block_size", std::to_string(dimensions.block_tokens)},
                         {"num_gpu_blocks", std::to_string(dimensions.num_blocks)}}})
      .set(1);
  constant("fathom:max_context_tokens", "sglang:context_len",
           "Most tokens of a request, prompt and answer.", dimensions.max_context_tokens);
  for (int lane = 0; dimensions.num_lanes > 1 && lane < dimensions.num_lanes; ++lane)
    lanes.emplace_back(registry, lane);
}

void EngineMetrics::add_startup(const StartupTimes& times) {
  gauge(registry_, "fathom:startup_seconds", {"sglang:engine_startup_time"},
        "From the start of the process until requests were accepted.")
      .set(times.total_seconds);
  gauge(registry_, "fathom:load_weights_seconds", {"sglang:engine_load_weights_time"},
        "Time to load the weights.")
      .set(times.load_weights_seconds);
}

}  // namespace fathom::engine
