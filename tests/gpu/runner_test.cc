// ModelRunner on the GPU: decodes that run launch by launch, as graphs of their size and as padded graphs give the
// same bits, alone and in company, and those are the reference's tokens.

#include <gmock/gmock.h>

#include <map>
#include <memory>

#include "tests/gpu/decoding.h"
#include "tests/gpu/gpu.h"

namespace fathom::gpu_test {
namespace {

class GpuRunner : public GpuTest {};

TEST_F(GpuRunner, gives_the_same_bits_with_and_without_graphs_alone_and_in_company) {
  const std::vector<GoldenPrompt> prompts = testing::load_golden();
  ASSERT_LE(prompts.size(), size_t{kSlots});
  core::SamplingParams sampled = testing::greedy(kNewTokens);
  sampled.temperature = 0.8f;
  sampled.top_p = 0.9f;
  core::SamplingParams penalised = testing::greedy(kNewTokens);
  penalised.frequency_penalty = 0.5f;
  penalised.repetition_penalty = 1.2f;
  const std::map<std::string, core::SamplingParams> ways = {
      {"greedy", testing::greedy(kNewTokens)}, {"sampled", sampled}, {"penalised", penalised}};
  const std::map<std::string, std::vector<int>> graphs = {
      {"no graphs", {}}, {"each size", {1, 2, 3, 4, 5, 6, 7, 8}}, {"padded", {8}}};
  std::map<std::string, std::vector<Answer>> first;
  for (const auto& [name, sizes] : graphs) {
    const std::unique_ptr<ModelRunner> runner = make_runner(sizes);
    for (const auto& [way, params] : ways) {
      SCOPED_TRACE(name + ", " + way);
      const std::vector<Answer> together = generate(*runner, prompts, params);
      EXPECT_EQ(first.try_emplace(way, together).first->second, together);
      for (size_t i = 0; i < prompts.size(); i += 3)
        EXPECT_EQ(generate(*runner, {prompts[i]}, params)[0], together[i]) << "prompt " << i;
    }
  }
  // Which tokens bf16 may change is model_test.cc's matter: here most prompts are answered as in float32.
  int same = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<int32_t>& golden = prompts[i].greedy_ids;
    const auto count = static_cast<std::ptrdiff_t>(std::min<size_t>(golden.size(), kNewTokens));
    same += std::equal(golden.begin(), golden.begin() + count, first["greedy"][i].tokens.begin());
  }
  EXPECT_GE(same, 6);
}

TEST_F(GpuRunner, masks_that_come_late_limit_the_rows_of_a_graph) {
  const std::vector<GoldenPrompt> prompts = testing::load_golden();
  const std::unique_ptr<ModelRunner> runner = make_runner({4});
  Batch batch{.step_id = runner->next_step_id()};
  for (int32_t slot = 0; slot < 2; ++slot)
    admit(batch, slot, prompts[static_cast<size_t>(slot)].prompt_ids, testing::greedy(8));
  runner->submit(batch);
  runner->wait();
  const auto words = static_cast<size_t>((runner->info().vocab_size + 63) / 64);
  for (const int32_t only : {5, 130, 77}) {
    Batch decode{.step_id = runner->next_step_id()};
    decode.slices.push_back({.slot = 0, .wants_mask = true});
    decode.slices.push_back({.slot = 1});
    runner->submit(decode);
    std::vector<uint64_t> mask(words, 0);
    mask[static_cast<size_t>(only) / 64] = uint64_t{1} << (only % 64);
    runner->set_masks({.step_id = decode.step_id, .masks = {{.slice_idx = 0, .words = mask}}});
    const core::StepResult result = runner->wait();
    EXPECT_EQ(result.slices.at(0).tokens.at(0).token, only);
    EXPECT_NE(result.slices.at(1).tokens.at(0).token, only);
  }
}

}  // namespace
}  // namespace fathom::gpu_test
