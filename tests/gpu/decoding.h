#pragma once
// The demo model on the GPU, and decodes of several prompts side by side through its runner.
//
//   const auto runner = make_runner({4, 8});
//   std::vector<Answer> answers = generate(*runner, testing::load_golden(), testing::greedy(kNewTokens));

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "cuda/linear/batch_product.h"
#include "tests/runner/demo_model.h"

namespace fathom::gpu_test {

using core::Batch;
using runner::ModelRunner;
using testing::GoldenPrompt;

inline constexpr int kSlots = 8, kBlocksOfSlot = 8, kNewTokens = 24;
// Larger decodes are of another class, whose rows may differ (docs/contracts/ops.md, section 4).
static_assert(kSlots <= cuda::kMaxStreamedTokens);

inline const model::Model& gpu_demo_model() {
  static const std::unique_ptr<model::Model> model =
      testing::load_demo(cuda::backend(), {.kv_cache_dtype = tensor::DType::kBf16});
  return *model;
}

inline std::unique_ptr<ModelRunner> make_runner(std::vector<int> graph_batch_sizes,
                                                int steps_per_timing = 1) {
  return ModelRunner::create(gpu_demo_model(), {.max_slots = kSlots,
                                                .max_batch_tokens = 1024,
                                                .context_length = 512,
                                                .max_total_tokens = kSlots * 512,
                                                .graph_batch_sizes = std::move(graph_batch_sizes),
                                                .steps_per_timing = steps_per_timing});
}

inline void admit(Batch& batch, int32_t slot, const std::vector<int32_t>& prompt,
                  const core::SamplingParams& sampling) {
  batch.admissions.push_back({.slot = slot, .prompt = prompt, .sampling = sampling, .seed = 17});
  std::vector<int32_t> blocks(kBlocksOfSlot);
  std::iota(blocks.begin(), blocks.end(), kBlocksOfSlot * slot);
  batch.block_appends.push_back({.slot = slot, .kv_group = 0, .block_ids = blocks});
  batch.slices.push_back(
      {.slot = slot, .num_tokens = static_cast<int>(prompt.size()), .tokens = prompt});
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  bool operator==(const Answer&) const = default;
};

// Waits for the oldest step and keeps what it gave each slot.
inline void take_step(ModelRunner& runner, std::vector<Answer>& answers) {
  const core::StepResult step = runner.wait();
  EXPECT_GT(step.forward_seconds, 0);
  EXPECT_GT(step.sampling_seconds, 0);
  for (const core::SliceResult& slice : step.slices) {
    ASSERT_EQ(slice.error, "");
    Answer& answer = answers[static_cast<size_t>(slice.slot)];
    answer.tokens.push_back(slice.tokens.at(0).token);
    answer.logprobs.push_back(slice.tokens.at(0).logprob);
  }
}

// All prompts side by side, one step ahead of their results; each is prefilled in a step of its own, so that only
// the company of decodes differs between runs.
inline std::vector<Answer> generate(ModelRunner& runner, const std::vector<GoldenPrompt>& prompts,
                                    const core::SamplingParams& sampling) {
  std::vector<Answer> answers(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Batch batch{.step_id = runner.next_step_id()};
    admit(batch, static_cast<int32_t>(i), prompts[i].prompt_ids, sampling);
    runner.submit(batch);
    take_step(runner, answers);
  }
  for (int step = 1; step < kNewTokens; ++step) {
    Batch batch{.step_id = runner.next_step_id()};
    for (size_t i = 0; i < prompts.size(); ++i)
      batch.slices.push_back({.slot = static_cast<int32_t>(i)});
    runner.submit(batch);
    if (step > 1) take_step(runner, answers);
  }
  take_step(runner, answers);
  Batch release{.step_id = runner.next_step_id()};
  for (size_t i = 0; i < prompts.size(); ++i) release.releases.push_back(static_cast<int32_t>(i));
  runner.submit(release);
  runner.wait();
  return answers;
}

}  // namespace fathom::gpu_test
