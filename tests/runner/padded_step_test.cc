// Steps that are padded to a captured size on memory full of NaN: every buffer is filled with it when it is allocated,
// workspace and logits again before every step, so the rows that are nobody's compute with garbage all the way down.
// What comes out has the bits of the same steps unpadded, in memory as the system gives it.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

#include "base/trace.h"
#include "tests/runner/demo_model.h"

namespace fathom::runner {
namespace {

using core::Batch;
using core::Outputs;

constexpr int kPaddedSlots = 8, kSequences = 3, kBlocksOfSlot = 8, kDecodeSteps = 6;

// What the poisoned backend has given out and not taken back.
std::mutex poisoned_mutex;
std::map<void*, int64_t> poisoned_buffers;  // guarded by poisoned_mutex

void* allocate_poisoned(int64_t bytes) {
  void* const data = cpu::fast_backend().allocate(bytes);
  if (data == nullptr) return nullptr;
  std::memset(data, 0xff, static_cast<size_t>(bytes));  // NaN in every type of activation
  const std::lock_guard lock(poisoned_mutex);
  poisoned_buffers[data] = bytes;
  return data;
}

void deallocate_poisoned(void* data) {
  {
    const std::lock_guard lock(poisoned_mutex);
    poisoned_buffers.erase(data);
  }
  cpu::fast_backend().deallocate(data);
}

const ops::Backend& poisoned_backend() {
  static const ops::Backend backend = [] {
    ops::Backend poisoned = cpu::fast_backend();
    poisoned.allocate = allocate_poisoned;
    poisoned.deallocate = deallocate_poisoned;
    return poisoned;
  }();
  return backend;
}

// The one buffer of this size. REQUIRES: no step in flight uses it.
void poison_again(int64_t bytes) {
  int num_found = 0;
  const std::lock_guard lock(poisoned_mutex);
  for (const auto& [data, num_bytes] : poisoned_buffers) {
    if (num_bytes != bytes) continue;
    std::memset(data, 0xff, static_cast<size_t>(bytes));
    ++num_found;
  }
  EXPECT_EQ(num_found, 1) << "buffers of " << bytes << " bytes";
}

// As it is served, with FP8 activations, which take their scale from the largest value of a row.
const model::Model& model_on(const ops::Backend& backend) {
  static std::map<const ops::Backend*, std::unique_ptr<model::Model>> models;
  std::unique_ptr<model::Model>& model = models[&backend];
  if (model == nullptr) model = fathom::testing::load_demo(backend, {});
  return *model;
}

core::SamplingParams params_of(int slot) {
  core::SamplingParams params = fathom::testing::greedy(100);
  params.return_logprobs = true;
  params.num_top_logprobs = 4;
  if (slot > 0) params.temperature = 0.8f;
  if (slot == 2) {
    params.frequency_penalty = 0.5f;
    params.repetition_penalty = 1.2f;
    params.logit_bias = {{17, 3.0f}};
  }
  return params;
}

// One step with the prompts, then steps that go on from there; with drafts all but the second sequence verify as many
// as there may be, so the second is filled up.
std::vector<core::StepResult> run_steps(ModelRunner& runner, bool poisons) {
  const int max_drafts = runner.info().drafter.max_drafts();
  const bool is_chain = runner.info().drafter.top_k == 1;
  std::vector<core::StepResult> results;
  const auto run = [&](const Batch& batch) {
    if (poisons) {
      poison_again(runner.plan().measured.step.workspace_bytes);
      poison_again(runner.plan().measured.step.logits_bytes);
    }
    runner.submit(batch);
    results.push_back(runner.wait());
  };
  const auto golden = fathom::testing::load_golden();
  Batch first{.step_id = runner.next_step_id()};
  for (int32_t slot = 0; slot < kSequences; ++slot) {
    const std::vector<int32_t>& prompt = golden[static_cast<size_t>(slot)].prompt_ids;
    first.admissions.push_back({.slot = slot,
                                .prompt = prompt,
                                .sampling = params_of(slot),
                                .seed = static_cast<uint64_t>(7 + slot)});
    std::vector<int32_t> blocks(kBlocksOfSlot);
    std::iota(blocks.begin(), blocks.end(), kBlocksOfSlot * slot);
    first.block_appends.push_back({.slot = slot, .kv_group = 0, .block_ids = blocks});
    first.slices.push_back({.slot = slot,
                            .num_tokens = static_cast<int>(prompt.size()),
                            .tokens = prompt,
                            .num_drafts_to_propose = max_drafts});
  }
  run(first);
  for (int step = 0; step < kDecodeSteps; ++step) {
    Batch batch{.step_id = runner.next_step_id()};
    for (int32_t slot = 0; slot < kSequences; ++slot) {
      const int num_drafts = is_chain && slot == 1 ? std::min(1, max_drafts) : max_drafts;
      batch.slices.push_back({.slot = slot,
                              .num_tokens = 1 + num_drafts,
                              .outputs = num_drafts == 0 ? Outputs::kLast : Outputs::kAll,
                              .num_drafts_to_propose = max_drafts});
    }
    run(batch);
  }
  return results;
}

void expect_same_tokens(const std::vector<core::SampledToken>& actual,
                        const std::vector<core::SampledToken>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].token, expected[i].token) << "token " << i;
    EXPECT_EQ(actual[i].logprob, expected[i].logprob) << "token " << i;
    EXPECT_EQ(actual[i].top_logprobs, expected[i].top_logprobs) << "token " << i;
  }
}

struct PaddedCase {
  const char* name;
  DrafterInfo drafter;
};
class PaddedStep : public ::testing::TestWithParam<PaddedCase> {};
INSTANTIATE_TEST_SUITE_P(
    drafters, PaddedStep,
    ::testing::Values(PaddedCase{"plain", {}},
                      PaddedCase{"chain", {.num_steps = 3, .top_k = 1, .num_draft_tokens = 4}},
                      PaddedCase{"tree", {.num_steps = 2, .top_k = 3, .num_draft_tokens = 6}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(PaddedStep, gives_the_bits_of_an_unpadded_one_whatever_the_memory_holds) {
  RunnerConfig config{.max_slots = kPaddedSlots,
                      .max_batch_tokens = 1024,
                      .context_length = kBlocksOfSlot * 64,
                      .max_total_tokens = kSequences * kBlocksOfSlot * 64,
                      .num_threads = fathom::testing::kNumThreads,
                      .drafter = GetParam().drafter};
  const std::vector<core::StepResult> expected =
      run_steps(*ModelRunner::create(model_on(cpu::fast_backend()), config), false);
  config.graph_batch_sizes = {kPaddedSlots};
  const std::unique_ptr<ModelRunner> padded =
      ModelRunner::create(model_on(poisoned_backend()), config);
  ASSERT_TRUE(trace::start({}));
  const std::vector<core::StepResult> actual = run_steps(*padded, true);
  const std::string trace = trace::stop();
  int num_replayed = 0;
  for (size_t at = 0; (at = trace.find("\"replay\"", at)) != std::string::npos; ++at)
    ++num_replayed;
  EXPECT_EQ(num_replayed, kDecodeSteps);
  ASSERT_EQ(actual.size(), expected.size());
  int num_accepted = 0;
  for (size_t step = 0; step < expected.size(); ++step)
    for (size_t i = 0; i < kSequences; ++i) {
      SCOPED_TRACE("step " + std::to_string(step) + ", sequence " + std::to_string(i));
      const core::SliceResult &got = actual[step].slices.at(i), &want = expected[step].slices.at(i);
      EXPECT_EQ(got.error, "");
      EXPECT_FALSE(got.tokens.empty());
      expect_same_tokens(got.tokens, want.tokens);
      EXPECT_EQ(got.num_verified_drafts, want.num_verified_drafts);
      EXPECT_EQ(got.drafts, want.drafts);
      num_accepted += static_cast<int>(got.tokens.size()) - 1;
    }
  EXPECT_EQ(num_accepted > 0, GetParam().drafter.num_steps > 0);
}

}  // namespace
}  // namespace fathom::runner
