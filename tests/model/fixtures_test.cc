// The four tiny variants against Hugging Face transformers in float32. Reads ../shared/fixtures and skips
// when it is not there.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/model/backends.h"
#include "tests/model/error_table.h"
#include "tests/model/golden.h"
#include "tests/model/step_harness.h"
#include "tests/shared_files.h"

namespace fathom::model {
namespace {

using tensor::DType;

constexpr double kMaxLogitError = 1e-3;
constexpr ModelOptions kInFloat32 = {.dequantize = true, .weight_dtype = DType::kF32};

struct FixturePrompt {
  std::string key;
  std::vector<int32_t> ids, greedy;
  json::Value argmax;  // null for the longest
};

struct Fixture {
  explicit Fixture(const std::string& variant)
      : name("fixtures/" + variant + "/golden.safetensors"),
        directory(shared_path("fixtures/" + variant)) {}

  std::vector<FixturePrompt> prompts() const {
    std::vector<FixturePrompt> list;
    for (const json::Value& entry : read_json(directory + "/golden.json")) {
      list.push_back({.key = std::to_string(list.size()),
                      .ids = entry["ids"].get<std::vector<int32_t>>(),
                      .greedy = entry["greedy"].get<std::vector<int32_t>>(),
                      .argmax = entry["argmax"]});
    }
    return list;
  }
  GoldenTensors tensors() const { return GoldenTensors(directory + "/golden.safetensors"); }

  std::string name, directory;
};

struct Case {
  const char* variant;
  BackendCase backend;
  size_t max_prompt_tokens;
};

class FixturesTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!is_shared(fixture_.name)) GTEST_SKIP() << not_shared(fixture_.name);
  }
  Fixture fixture_{GetParam().variant};
};

void expect_argmax_everywhere(const FixturePrompt& prompt, const SliceOutput& out) {
  if (prompt.argmax.is_null()) return;
  std::vector<int32_t> got;
  for (const std::vector<float>& logits : out.logits) got.push_back(argmax(logits));
  EXPECT_EQ(got, prompt.argmax.get<std::vector<int32_t>>());
}

void expect_hidden_states(const FixturePrompt& prompt, const GoldenTensors& golden,
                          const SliceOutput& out, const LastTokenTap& tap, ErrorTable& table) {
  const std::string name = prompt.key + ".last_hidden";
  // The reference's last entry is the state after the final norm, in place of the last layer's output.
  const size_t num_layers = tap.rows.size() - 1;
  for (size_t i = 0; i <= num_layers; ++i) {
    const std::vector<float>& got = i == num_layers ? out.hidden.back() : tap.rows[i];
    const std::vector<float> expected = golden.read_row(name, static_cast<int64_t>(i));
    EXPECT_LE(max_abs_difference(got, expected), kMaxLogitError) << name << " " << i;
    table.add(std::to_string(prompt.ids.size()) + " tokens, hidden", got, expected);
  }
}

TEST_P(FixturesTest, float32_logits_hidden_states_and_greedy_tokens_equal_the_reference) {
  const LoadedModel loaded(fixture_.directory, kInFloat32, GetParam().backend.backend());
  const GoldenTensors golden = fixture_.tensors();
  ErrorTable table(std::string(GetParam().variant) + ", float32, " + GetParam().backend.name);
  for (const FixturePrompt& prompt : fixture_.prompts()) {
    if (prompt.ids.size() > GetParam().max_prompt_tokens) continue;
    SCOPED_TRACE(std::to_string(prompt.ids.size()) + " tokens");
    StepHarness harness(loaded, {.max_batch_tokens = 4500, .num_blocks = 80});
    LastTokenTap tap;
    Slice slice{.sequence = harness.add_sequence(), .tokens = prompt.ids};
    const SliceOutput out = harness.step({slice}, &tap)[0];
    const std::vector<float> expected = golden.read(prompt.key + ".last_logits");
    EXPECT_LE(max_abs_difference(out.logits.back(), expected), kMaxLogitError);
    table.add(std::to_string(prompt.ids.size()) + " tokens, logits", out.logits.back(), expected);
    expect_hidden_states(prompt, golden, out, tap, table);
    expect_argmax_everywhere(prompt, out);

    std::vector<int32_t> greedy = {argmax(out.logits.back())};
    while (greedy.size() < prompt.greedy.size()) {
      const Slice decode{.sequence = slice.sequence, .tokens = {greedy.back()}};
      greedy.push_back(argmax(harness.step({decode})[0].logits.back()));
    }
    EXPECT_EQ(greedy, prompt.greedy);
  }
  table.print();
}

TEST(Fixtures, bf16_weights_give_the_reference_logits_where_the_checkpoint_is_bf16) {
  for (const char* variant : {"v2-lite", "v2", "v3-one-group"}) {
    const Fixture fixture(variant);
    if (!is_shared(fixture.name)) GTEST_SKIP() << not_shared(fixture.name);
    const LoadedModel loaded(fixture.directory, {}, kFast.backend());
    const FixturePrompt prompt = fixture.prompts()[2];
    StepHarness harness(loaded, {});
    const SliceOutput out =
        harness.step({{.sequence = harness.add_sequence(), .tokens = prompt.ids}})[0];
    EXPECT_LE(max_abs_difference(out.logits.back(), fixture.tensors().read("2.last_logits")),
              kMaxLogitError)
        << variant;
  }
}

// The clear backend is too slow for the long prompts.
std::vector<Case> all_cases() {
  constexpr size_t kShort = 64, kAll = kIsSanitized ? 333 : 4500;
  std::vector<Case> cases;
  for (const BackendCase& backend : all_backends())
    for (const char* variant : {"v2-lite", "v2", "v3-fp8", "v3-one-group"})
      cases.push_back(
          {variant, backend, &backend.backend() == &cpu::reference_backend() ? kShort : kAll});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllVariants, FixturesTest, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           std::string name =
                               std::string(info.param.variant) + "_" + info.param.backend.name;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace fathom::model
