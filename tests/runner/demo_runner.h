#pragma once
// A ModelRunner of the demo model, batch by batch, with graphs and without. model_runner_test.cc says which cases of
// graphs there are.

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/failpoint.h"
#include "runner/model_runner.h"
#include "tests/runner/demo_model.h"

namespace fathom::runner {

using core::Batch;

inline RunnerConfig small_config() {
  return {.max_slots = 4,
          .max_batch_tokens = 64,
          .context_length = 512,
          .max_total_tokens = 2048,
          .num_threads = testing::kNumThreads,
          .steps_per_timing = 1};
}

// How decodes run: without graphs, with one for each number of requests, and always padded to the largest.
struct GraphCase {
  const char* name;
  std::vector<int> batch_sizes;
  bool has_new_code = false;  // behind every step, so that steps are captured again between any two
};

// A runner for all tests of a case: the slots are free between tests.
class DemoRunner : public ::testing::TestWithParam<GraphCase> {
 protected:
  void SetUp() override {
    std::unique_ptr<ModelRunner>& runner = runners_[GetParam().name];
    if (runner == nullptr) {
      RunnerConfig config = small_config();
      config.graph_batch_sizes = GetParam().batch_sizes;
      if (GetParam().has_new_code)
        config.code_version = [] { return CodeVersion{.number = num_steps_, .is_final = false}; };
      runner = ModelRunner::create(testing::fast_demo_model(), config);
    }
    runner_ = runner.get();
  }
  static void TearDownTestSuite() { runners_.clear(); }
  void TearDown() override {
    disarm_failpoints();
    Batch release = next_batch();
    release.releases = taken_slots_;
    run(release);
  }

  static Batch next_batch() { return {.step_id = runner_->next_step_id()}; }
  static core::StepResult run(const Batch& batch) {
    runner_->submit(batch);
    ++num_steps_;
    return runner_->wait();
  }
  // Slot s owns blocks 8s .. 8s+7.
  void admit(Batch& batch, int32_t slot, const std::vector<int32_t>& prompt,
             const core::SamplingParams& sampling, uint64_t seed = 0) {
    batch.admissions.push_back(
        {.slot = slot, .prompt = prompt, .sampling = sampling, .seed = seed});
    std::vector<int32_t> blocks(8);
    std::iota(blocks.begin(), blocks.end(), 8 * slot);
    batch.block_appends.push_back({.slot = slot, .kv_group = 0, .block_ids = blocks});
    taken_slots_.push_back(slot);
  }
  // Runs a prompt in one slice and then decodes.
  std::vector<int32_t> generate(int32_t slot, const std::vector<int32_t>& prompt,
                                const core::SamplingParams& sampling, uint64_t seed = 0) {
    Batch batch = next_batch();
    admit(batch, slot, prompt, sampling, seed);
    batch.slices.push_back(
        {.slot = slot, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
    std::vector<int32_t> tokens = {run(batch).slices.at(0).tokens.at(0).token};
    while (static_cast<int>(tokens.size()) < sampling.max_new_tokens) {
      Batch decode = next_batch();
      decode.slices.push_back({.slot = slot});
      tokens.push_back(run(decode).slices.at(0).tokens.at(0).token);
    }
    return tokens;
  }

  inline static std::map<std::string, std::unique_ptr<ModelRunner>> runners_;
  inline static ModelRunner* runner_ = nullptr;
  inline static std::atomic<int64_t> num_steps_ = 0;
  std::vector<int32_t> taken_slots_;
};

}  // namespace fathom::runner
