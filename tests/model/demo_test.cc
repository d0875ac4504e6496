// The demo checkpoint (FP8, one MTP layer) against its reference outputs: Hugging Face transformers in
// float32 on dequantised weights.

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/model/backends.h"
#include "tests/model/error_table.h"
#include "tests/model/golden.h"
#include "tests/model/step_harness.h"
#include "tests/source_tree.h"

namespace fathom::model {
namespace {

using tensor::DType;

constexpr double kMaxError = 1e-3;
const std::string kDemo = source_path("models/demo");
const std::string kGolden = source_path("tests/data/demo/golden");

struct Prompt {
  std::vector<int32_t> ids, greedy, mtp_argmax;
  std::vector<float> logprobs;
};

std::vector<Prompt> prompts() {
  std::vector<Prompt> list;
  for (const json::Value& entry : read_json(kGolden + ".json")) {
    list.push_back({.ids = entry["prompt_ids"].get<std::vector<int32_t>>(),
                    .greedy = entry["greedy_ids"].get<std::vector<int32_t>>(),
                    .mtp_argmax = entry["mtp_argmax"].get<std::vector<int32_t>>(),
                    .logprobs = entry["prompt_logprobs"].get<std::vector<float>>()});
  }
  return list;
}

// The prompt as one slice; after its last token comes the first greedy token.
Slice prompt_slice(const Prompt& prompt, int sequence) {
  Slice slice{.sequence = sequence, .tokens = prompt.ids};
  slice.next_tokens.assign(prompt.ids.begin() + 1, prompt.ids.end());
  slice.next_tokens.push_back(prompt.greedy[0]);
  return slice;
}

std::vector<float> prompt_logprobs(const Prompt& prompt, const SliceOutput& out) {
  std::vector<float> values;
  for (size_t i = 0; i + 1 < prompt.ids.size(); ++i) {
    double sum = 0;
    const std::vector<float>& logits = out.logits[i];
    const double max = logits[static_cast<size_t>(argmax(logits))];
    for (const float logit : logits) sum += std::exp(logit - max);
    const double chosen = logits[static_cast<size_t>(prompt.ids[i + 1])];
    values.push_back(static_cast<float>(chosen - max - std::log(sum)));
  }
  return values;
}

struct PromptRun {
  SliceOutput out;
  std::vector<std::vector<float>> layers;  // of the last token
};

std::vector<PromptRun> run_prompts(const LoadedModel& loaded) {
  std::vector<PromptRun> runs;
  for (const Prompt& prompt : prompts()) {
    StepHarness harness(loaded, {.num_blocks = 8, .wants_mtp = true});
    LastTokenTap tap;
    SliceOutput out = harness.step({prompt_slice(prompt, harness.add_sequence())}, &tap)[0];
    runs.push_back({.out = std::move(out), .layers = std::move(tap.rows)});
  }
  return runs;
}

// One table row per figure, over all prompts.
void add_errors(const std::vector<PromptRun>& runs, ErrorTable& table) {
  const GoldenTensors golden(kGolden + ".safetensors");
  const std::vector<Prompt> list = prompts();
  for (size_t k = 0; k < list.size(); ++k) {
    const std::string key = std::to_string(k);
    const PromptRun& run = runs[k];
    table.add("logits", run.out.logits.back(), golden.read("logits." + key));
    // The reference's last entry is the state after the final norm, in place of the last layer's output.
    const size_t num_layers = run.layers.size() - 1;
    for (size_t i = 0; i <= num_layers; ++i) {
      table.add("hidden states", i == num_layers ? run.out.hidden.back() : run.layers[i],
                golden.read_row("hidden." + key, static_cast<int64_t>(i)));
    }
    table.add("prompt log-probabilities", prompt_logprobs(list[k], run.out), list[k].logprobs);
    table.add("MTP logits", run.out.mtp_logits.back(), golden.read("mtp_logits." + key));
  }
}

std::vector<int32_t> argmax_rows(const std::vector<std::vector<float>>& rows) {
  std::vector<int32_t> ids;
  for (const std::vector<float>& row : rows) ids.push_back(argmax(row));
  return ids;
}

class DemoTest : public testing::TestWithParam<BackendCase> {};

TEST_P(DemoTest, float32_outputs_and_mtp_drafts_equal_the_reference) {
  const LoadedModel loaded(kDemo, {.dequantize = true, .weight_dtype = DType::kF32},
                           GetParam().backend());
  const std::vector<PromptRun> runs = run_prompts(loaded);
  ErrorTable table(std::string("demo, float32, ") + GetParam().name);
  add_errors(runs, table);
  table.print();
  EXPECT_LE(table.max_error(), kMaxError);
  for (size_t k = 0; k < runs.size(); ++k) {
    EXPECT_EQ(argmax_rows(runs[k].out.mtp_logits), prompts()[k].mtp_argmax) << "prompt " << k;
  }
}

TEST_P(DemoTest, greedy_tokens_equal_the_reference) {
  const LoadedModel loaded(kDemo, {.dequantize = true, .weight_dtype = DType::kF32},
                           GetParam().backend());
  for (const Prompt& prompt : prompts()) {
    StepHarness harness(loaded, {.num_blocks = 8});
    EXPECT_EQ(harness.generate(prompt.ids, 64, 512, loaded.model().config().eos_token_ids.at(0)),
              prompt.greedy);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, DemoTest, testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace fathom::model
