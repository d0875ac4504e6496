// fathom bench one-batch: one static batch through the runner, without engine or scheduler: a prefill, then decode
// steps. The next one is submitted while one computes, as an engine does; with --disable-overlap-schedule each is
// waited for, as SGLang's bench_one_batch does. Lines and JSON keys are that one's; with speculation every step
// verifies drafts and there are figures of these, too.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/bench/decode_floor.h"
#include "apps/bench/static_batch.h"
#include "apps/bench_ops/read_bandwidth.h"
#include "apps/common/count_progress.h"
#include "apps/common/figures.h"
#include "apps/common/result_file.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/progress.h"
#include "apps/flags/flags.h"
#include "base/json.h"

namespace fathom::apps {
namespace {

constexpr int kShownDecodeSteps = 5, kWarmUpOutputTokens = 32;

struct OneBatchFlags {
  EngineFlags engine;
  std::string run_name = "default";
  std::vector<int> batch_size = {1}, input_len = {1024}, output_len = {16};
  std::string result_filename;
  int log_decode_step = 0;
};

struct Timing {
  double prefill_seconds = 0, total_seconds = 0;
  std::vector<double> decode_seconds;
  std::vector<double> decode_throughputs;  // tokens per second of each step
  int64_t decode_tokens = 0;
  core::SpeculationCounts speculation;

  // Of all steps: where drafts are accepted now and then, the median step says little.
  double mean_decode_throughput() const {
    return per_second(static_cast<double>(decode_tokens), total_seconds - prefill_seconds);
  }
};

std::string prompts_of(const StaticBatchShape& shape) {
  const std::string tokens = std::to_string(shape.input_len) + " tokens";
  return shape.batch_size == 1
             ? "computing a prompt of " + tokens
             : "computing " + std::to_string(shape.batch_size) + " prompts of " + tokens;
}

Timing time_batch(runner::Runner& runner, const StaticBatchShape& shape) {
  StaticBatch batch(runner, shape);
  Timing timing;
  {
    const LiveLine line = long_work(prompts_of(shape));
    timing.prefill_seconds = batch.prefill();
  }
  timing.total_seconds = timing.prefill_seconds;
  CountProgress progress("decode steps", shape.output_len - 1);
  while (!batch.done()) {
    const StaticStep step = batch.decode();
    timing.decode_seconds.push_back(step.seconds);
    timing.decode_throughputs.push_back(
        per_second(static_cast<double>(step.num_tokens), step.seconds));
    timing.decode_tokens += step.num_tokens;
    timing.total_seconds += step.seconds;
    progress.add();
  }
  timing.speculation = batch.speculation();
  return timing;
}

// What all ranks read together: each the weights that the whole batch needs of it, and the cache of its lane, which has
// one of num_lanes equal parts of the sequences.
DecodeBytes decode_bytes_of_ranks(const runner::RankGroup& ranks, int num_lanes,
                                  const StaticBatchShape& shape) {
  DecodeBytes sum;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const DecodeBytes bytes =
        decode_bytes(ranks.model(rank), shape.batch_size, shape.input_len + shape.output_len / 2);
    sum.weight_bytes += bytes.weight_bytes;
    sum.cache_bytes += bytes.cache_bytes;
  }
  sum.cache_bytes /= num_lanes;
  return sum;
}

void print_timing(const OneBatchFlags& flags, const StaticBatchShape& shape, const Timing& timing) {
  const double prompt_tokens = static_cast<double>(shape.batch_size) * shape.input_len;
  std::printf("Prefill. latency: %6.5f s, throughput: %9.2f token/s\n", timing.prefill_seconds,
              per_second(prompt_tokens, timing.prefill_seconds));
  for (size_t i = 0; i < timing.decode_seconds.size(); ++i) {
    const bool logged =
        flags.log_decode_step > 0 && i % static_cast<size_t>(flags.log_decode_step) == 0;
    if (i >= kShownDecodeSteps && !logged) continue;
    std::printf("Decode %zu. Batch size: %d, latency: %6.5f s, throughput: %9.2f token/s\n", i,
                shape.batch_size, timing.decode_seconds[i], timing.decode_throughputs[i]);
  }
  if (!timing.decode_seconds.empty()) {
    std::printf(
        "Decode.  median latency: %6.5f s, median throughput: %9.2f token/s, mean: %9.2f token/s\n",
        median(timing.decode_seconds), median(timing.decode_throughputs),
        timing.mean_decode_throughput());
  }
  if (timing.speculation.num_verify_steps > 0) {
    std::printf("Accept length: %.3f, verify steps: %zu%s\n", timing.speculation.accept_length(),
                timing.decode_seconds.size(),
                flags.engine.speculation.simulate_accept_length ? ", acceptance is simulated" : "");
  }
  const double tokens =
      static_cast<double>(shape.batch_size) * (shape.input_len + shape.output_len);
  std::printf("Total. latency: %6.3f s, throughput: %9.2f token/s\n", timing.total_seconds,
              per_second(tokens, timing.total_seconds));
  std::fflush(stdout);
}

// How close the median decode step comes to reading its bytes at the machine's measured bandwidth.
double print_floor(const DecodeBytes& bytes, double gb_per_s, double median_seconds) {
  const double floor_seconds = per_second(static_cast<double>(bytes.total()), gb_per_s * 1e9);
  const double percent = 100 * per_second(floor_seconds, median_seconds);
  std::printf(
      "Floor.  a decode step reads %s of weights and %s of cache: %6.5f s at the measured %.1f "
      "GB/s; reached: %.1f%%\n",
      format_bytes(bytes.weight_bytes).c_str(), format_bytes(bytes.cache_bytes).c_str(),
      floor_seconds, gb_per_s, percent);
  return percent;
}

json::Value result_line(const OneBatchFlags& flags, const StaticBatchShape& shape,
                        const Timing& timing) {
  const double prompt_tokens = static_cast<double>(shape.batch_size) * shape.input_len;
  const double tokens =
      static_cast<double>(shape.batch_size) * (shape.input_len + shape.output_len);
  json::Value line = {{"run_name", flags.run_name},
                      {"batch_size", shape.batch_size},
                      {"input_len", shape.input_len},
                      {"output_len", shape.output_len},
                      {"disable_overlap_schedule", !shape.overlap},
                      {"prefill_latency", timing.prefill_seconds},
                      {"prefill_throughput", per_second(prompt_tokens, timing.prefill_seconds)}};
  if (!timing.decode_seconds.empty()) {
    line["median_decode_latency"] = median(timing.decode_seconds);
    line["median_decode_throughput"] = median(timing.decode_throughputs);
    line["mean_decode_throughput"] = timing.mean_decode_throughput();
  }
  if (timing.speculation.num_verify_steps > 0) {
    line["num_drafts"] = shape.num_drafts;
    line["accept_length"] = timing.speculation.accept_length();
    line["num_decode_steps"] = timing.decode_seconds.size();
    line["accept_simulated"] = flags.engine.speculation.simulate_accept_length.has_value();
  }
  line["total_latency"] = timing.total_seconds;
  line["overall_throughput"] = per_second(tokens, timing.total_seconds);
  return line;
}

std::vector<StaticBatchShape> shapes_of(const OneBatchFlags& flags) {
  std::vector<StaticBatchShape> shapes;
  for (const int batch_size : flags.batch_size) {
    for (const int input_len : flags.input_len) {
      for (const int output_len : flags.output_len) {
        shapes.push_back({.batch_size = batch_size,
                          .input_len = input_len,
                          .output_len = output_len,
                          .seed = flags.engine.model.random_seed,
                          .num_drafts = drafter_shape(flags.engine.speculation).max_drafts(),
                          .overlap = !flags.engine.disable_overlap_schedule});
      }
    }
  }
  return shapes;
}

// A cache (of each lane) and slots (of all) for the largest batch, unless told otherwise: nothing else runs.
void size_for(const std::vector<StaticBatchShape>& shapes, int num_lanes, MemoryFlags& memory) {
  int64_t max_tokens = 0;
  int max_batch_size = 0;
  for (const StaticBatchShape& shape : shapes) {
    max_tokens = std::max(max_tokens, shape.cache_tokens(num_lanes));
    max_batch_size = std::max(max_batch_size, shape.batch_size);
  }
  if (!memory.max_total_tokens) memory.max_total_tokens = max_tokens;
  memory.max_running_requests = std::max(memory.max_running_requests, max_batch_size);
}

int run(OneBatchFlags& flags) {
  const std::vector<StaticBatchShape> shapes = shapes_of(flags);
  size_for(shapes, flags.engine.ranks.num_lanes(), flags.engine.memory);
  ReadyModel ready = make_ready_model(flags.engine);
  for (const StaticBatchShape& shape : shapes) check_fits(shape, ready.runner().info());

  std::printf("Warmup ...\n");
  std::fflush(stdout);
  StaticBatchShape warm_up = shapes.front();
  warm_up.output_len = std::min(warm_up.output_len, kWarmUpOutputTokens);
  print_timing(flags, warm_up, time_batch(ready.runner(), warm_up));
  // The ranks of a CPU read the host's memory, each GPU its own.
  const int num_memories = ready.backend->device_memory ? ready.ranks->size() : 1;
  const double gb_per_s =
      num_memories * measure_read_bandwidth(*ready.backend, flags.engine.device.cpu_threads);
  std::printf("Benchmark ...\n");
  std::fflush(stdout);
  for (const StaticBatchShape& shape : shapes) {
    if (shapes.size() > 1) {
      std::printf("batch_size=%d input_len=%d output_len=%d\n", shape.batch_size, shape.input_len,
                  shape.output_len);
    }
    const Timing timing = time_batch(ready.runner(), shape);
    print_timing(flags, shape, timing);
    json::Value line = result_line(flags, shape, timing);
    // How many experts the rows of drafts reach is not known beforehand.
    if (!timing.decode_seconds.empty() && shape.num_drafts == 0) {
      const DecodeBytes bytes =
          decode_bytes_of_ranks(*ready.ranks, ready.runner().info().num_lanes, shape);
      const double percent = print_floor(bytes, gb_per_s, median(timing.decode_seconds));
      line["decode_weight_bytes"] = bytes.weight_bytes;
      line["decode_cache_bytes"] = bytes.cache_bytes;
      line["read_bandwidth_gb_per_s"] = gb_per_s;
      line["percent_of_read_bandwidth"] = percent;
    }
    line["device"] = std::string(ready.backend->device);
    std::fflush(stdout);
    if (!flags.result_filename.empty()) append_result(flags.result_filename, line);
  }
  return 0;
}

}  // namespace

Command add_bench_one_batch(CLI::App& bench) {
  auto flags = std::make_shared<OneBatchFlags>();
  CLI::App* app = bench.add_subcommand("one-batch", "Time one batch: a prefill, then decode steps");
  const std::string group = "Batch";
  const auto lengths = [&](const char* name, std::vector<int>& values, const char* help) {
    app->add_option(name, values, help)
        ->check(CLI::Range(1, 1 << 24))
        ->type_name("N...")
        ->group(group);
  };
  app->add_option("--run-name", flags->run_name, "Goes into the result file")
      ->type_name("NAME")
      ->group(group);
  lengths("--batch-size", flags->batch_size, "Sequences; several numbers run one after another");
  lengths("--input-len", flags->input_len, "Prompt tokens of each sequence");
  lengths("--output-len", flags->output_len, "Tokens generated for each sequence");
  app->add_option("--result-filename", flags->result_filename,
                  "Append one JSON line per batch to this file")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--log-decode-step", flags->log_decode_step,
                  "Print every Nth decode step; the first five are always printed")
      ->check(CLI::NonNegativeNumber)
      ->type_name("N")
      ->group(group);
  add_overlap_flag(*app, group, flags->engine);
  add_engine_flags(*app, flags->engine);
  // Every step drafts to the full depth: that is what is timed.
  app->remove_option(app->get_option("--speculative-adaptive"));
  set_examples(*app,
               {"fathom bench one-batch --model-path models/demo --batch-size 1 64 "
                "--input-len 512 --output-len 64",
                "fathom bench one-batch --model-path DIR --load-format dummy --num-layers 8"});
  return {.app = app, .run = [flags] { return run(*flags); }};
}

}  // namespace fathom::apps
