// The planned scratch against what steps really use, on dummy weights: never less, hardly more, and final.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <random>
#include <span>

#include "base/startup_error.h"
#include "config/model_config.h"
#include "model/model.h"
#include "runner/step_executor.h"
#include "tests/model/backends.h"
#include "tests/shared_files.h"
#include "tests/source_tree.h"
#include "weights/loader.h"

namespace fathom::runner {
namespace {

using core::Batch;
using model::AttentionForm;

config::ModelConfig demo_config() {
  config::ModelConfig config =
      value_or_throw(config::load_model_config(source_path("models/demo")));
  return value_or_throw(config::with_num_layers(std::move(config), 2));
}

// Most contexts have more rows than are kept.
config::ModelConfig sparse_config() {
  config::ModelConfig config = demo_config();
  config.index_config = {.n_heads = 5, .head_dim = 128, .topk = 48};
  return config;
}

config::ModelConfig bf16_config() {
  config::ModelConfig config = demo_config();
  config.quantization_config.reset();
  config.q_lora_rank.reset();
  config.num_attention_heads = 18;  // two groups of heads, one of them not full
  return config;
}

config::ModelConfig dense_config() {
  config::ModelConfig config = bf16_config();
  config.n_routed_experts = 0;
  return config;
}

config::ModelConfig fixture_config(const std::string& variant) {
  const std::string directory = shared_path("fixtures/" + variant);
  if (!std::filesystem::exists(directory)) return {};
  return value_or_throw(config::load_model_config(directory));
}

struct ModelCase {
  std::string name;
  config::ModelConfig config;  // hidden_size 0: not on this machine
  AttentionForm form = AttentionForm::kAuto;
};

std::vector<ModelCase> model_cases() {
  std::vector<ModelCase> cases = {
      {"fp8", demo_config()},
      {"bf16", bf16_config()},
      {"dense", dense_config()},
      {"sparse", sparse_config()},
      {"sparse_absorbed_only", sparse_config(), AttentionForm::kAbsorbed},
      {"absorbed_only", demo_config(), AttentionForm::kAbsorbed},
      {"expanded_only", demo_config(), AttentionForm::kExpanded}};
  for (const std::string variant : {"v2", "v2-lite", "v3-fp8", "v3-one-group"})
    cases.push_back({variant, fixture_config(variant)});
  return cases;
}

// Expanded attention goes through the cache in pieces of this; the second one's steps are shorter.
constexpr int kExpandChunkTokens = 128;
const StepExecutorConfig kSteps[] = {
    {.max_slots = 1, .max_batch_tokens = 40, .max_context_tokens = 64},
    {.max_slots = 2, .max_batch_tokens = 16, .max_context_tokens = 320},
    {.max_slots = 3, .max_batch_tokens = 64, .max_context_tokens = 256},
    {.max_slots = 6, .max_batch_tokens = 48, .max_context_tokens = 64}};

struct BackendCase {
  std::string name;
  const ops::Backend* backend;
  int num_threads;
  std::span<const StepExecutorConfig> steps;
};

// The reference takes its time and has one thread; under sanitizers it is left out.
std::vector<BackendCase> backend_cases() {
  const std::span<const StepExecutorConfig> steps = kSteps;
  std::vector<BackendCase> cases;
  for (const model::BackendCase& each : model::all_backends()) {
    const bool is_slow = &each.backend() == &cpu::reference_backend();
    cases.push_back({std::string(each.name) + "_1_thread", &each.backend(), 1,
                     is_slow ? steps.first(2) : steps});
    if (!is_slow)
      cases.push_back({std::string(each.name) + "_3_threads", &each.backend(), 3, steps});
  }
  return cases;
}

class ScratchPlan : public ::testing::TestWithParam<BackendCase> {
 protected:
  std::unique_ptr<model::Model> load(const ModelCase& test) const {
    std::unique_ptr<model::Model> model = model::Model::create(
        test.config, {.load_mtp = false, .attention_form = test.form}, *GetParam().backend);
    throw_on_error(weights::fill_dummy(model->parameters(), {.num_threads = 1}));
    model->finish_loading(*stream());
    return model;
  }
  std::unique_ptr<ops::Stream> stream() const {
    return GetParam().backend->make_stream({.num_threads = GetParam().num_threads});
  }
};

int blocks_of(const StepExecutorConfig& config) {
  return static_cast<int>((config.max_context_tokens + 63) / 64);
}

// Slot s has blocks of its own.
void add(Batch& batch, const StepExecutorConfig& config, int64_t num_cached, int64_t num_tokens) {
  const auto slot = static_cast<int32_t>(batch.slices.size());
  core::SlotAdmission admission{
      .slot = slot,
      .num_cached_tokens = static_cast<int32_t>(num_cached),
      .prompt = std::vector<int32_t>(static_cast<size_t>(num_cached + num_tokens), 3)};
  admission.sampling.top_p = 0.9f;
  admission.sampling.num_top_logprobs = 5;
  admission.sampling.return_prompt_logprobs = true;
  batch.admissions.push_back(admission);
  std::vector<int32_t> blocks(static_cast<size_t>(blocks_of(config)));
  std::iota(blocks.begin(), blocks.end(), slot * blocks_of(config));
  batch.block_appends.push_back({.slot = slot, .kv_group = 0, .block_ids = blocks});
  batch.slices.push_back({.slot = slot,
                          .num_tokens = static_cast<int>(num_tokens),
                          .tokens = std::vector<int32_t>(static_cast<size_t>(num_tokens), 3)});
  batch.releases.push_back(slot);
}

// As many sequences of at most this many query tokens as fit, at the end of the context or at its start.
Batch filled(const StepExecutorConfig& config, int64_t most_tokens, bool late) {
  Batch batch;
  int64_t left = config.max_batch_tokens;
  for (int slot = 0; slot < config.max_slots && left > 0; ++slot) {
    const int64_t tokens = std::min({left, most_tokens, config.max_context_tokens});
    add(batch, config, late ? config.max_context_tokens - tokens : 0, tokens);
    left -= tokens;
  }
  return batch;
}

std::vector<Batch> largest_batches(const StepExecutorConfig& config) {
  Batch longest_decode;
  add(longest_decode, config, config.max_context_tokens - 1, 1);
  return {filled(config, config.max_batch_tokens, false),
          filled(config, config.max_batch_tokens, true),
          filled(config, 64, true),  // prompts of which most is cached
          filled(config, 1, true), longest_decode};
}

Batch random_batch(const StepExecutorConfig& config, std::mt19937& random) {
  const auto draw = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  Batch batch;
  int64_t left = config.max_batch_tokens;
  for (int64_t slots = draw(1, config.max_slots); slots > 0 && left > 0; --slots) {
    const int64_t tokens = draw(1, std::min(left, config.max_context_tokens));
    add(batch, config, draw(0, config.max_context_tokens - tokens), tokens);
    left -= tokens;
  }
  return batch;
}

// Runs batches on an executor with a cache.
void run_all(StepExecutor& executor, const model::Model& model, const StepExecutorConfig& config,
             const std::vector<Batch>& batches) {
  executor.set_kv(model::KvStorage::allocate(
      model.kv_groups().at(0), config.max_slots * blocks_of(config), model.backend()));
  MaskMailbox no_masks;
  for (const Batch& batch : batches) {
    executor.enqueue(batch, no_masks, 0);
    EXPECT_EQ(executor.collect(0).slices.size(), batch.slices.size());
  }
}

TEST_P(ScratchPlan, is_what_the_largest_steps_use_and_no_step_grows_it) {
  for (const ModelCase& test : model_cases()) {
    if (test.config.hidden_size == 0) continue;
    const std::unique_ptr<model::Model> model = load(test);
    for (const StepExecutorConfig& config : GetParam().steps) {
      SCOPED_TRACE(test.name + ", " + std::to_string(config.max_batch_tokens) + " tokens");
      const std::unique_ptr<ops::Stream> growing = stream(), planned = stream();
      StepExecutor unplanned(*model, config, *growing);
      run_all(unplanned, *model, config, largest_batches(config));

      StepExecutor executor(*model, config, *planned);
      executor.plan_scratch();
      const StepMemory memory = executor.memory(), used = unplanned.memory();
      EXPECT_GE(memory.scratch_bytes, used.scratch_bytes);
      EXPECT_LE(static_cast<double>(memory.scratch_bytes),
                1.01 * static_cast<double>(used.scratch_bytes));
      EXPECT_LE(static_cast<double>(memory.total_bytes()),
                1.01 * static_cast<double>(used.total_bytes()));

      std::vector<Batch> batches;
      std::mt19937 random(5);
      for (int i = 0; i < 3; ++i) batches.push_back(random_batch(config, random));
      run_all(executor, *model, config, batches);
      EXPECT_EQ(executor.memory().scratch_bytes, memory.scratch_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ScratchPlan, ::testing::ValuesIn(backend_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fathom::runner
