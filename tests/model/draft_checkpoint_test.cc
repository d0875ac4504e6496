// The demo model's draft layer in a checkpoint of its own, as DeepSeek-V3-NextN is published: loaded from there it
// drafts the same, and whatever does not fit is named.

#include "model/draft_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <sstream>

#include "base/json.h"
#include "base/startup_error.h"
#include "cpu/fast/fast_backend.h"
#include "tests/model/golden.h"
#include "tests/model/step_harness.h"
#include "tests/source_tree.h"
#include "tests/weights/scratch_files.h"
#include "weights/file.h"

namespace fathom::model {
namespace {

using ::testing::HasSubstr;
using weights::FileTensor;

const std::string kDemoFolder = source_path("models/demo");
const std::string kModelPrefix = "model.layers.4.", kDraftPrefix = "model.layers.0.";

std::string file_dtype(tensor::DType dtype) {
  switch (dtype) {
    case tensor::DType::kF8E4M3:
      return "F8_E4M3";
    case tensor::DType::kBf16:
      return "BF16";
    default:
      return "F32";
  }
}

FileTensor read_tensor(const weights::TensorInfo& info, const std::string& name) {
  FileTensor tensor{name, file_dtype(info.dtype), info.shape, ""};
  tensor.bytes.resize(static_cast<size_t>(info.num_bytes));
  const weights::File file = value_or_throw(weights::File::open(info.file));
  throw_on_error(file.read_at(info.offset, tensor.bytes.data(), info.num_bytes));
  return tensor;
}

// The draft layer of the demo model under the names of a checkpoint with one layer.
std::vector<FileTensor> draft_tensors() {
  const weights::Checkpoint demo = value_or_throw(weights::Checkpoint::open(kDemoFolder));
  std::vector<FileTensor> tensors;
  for (const weights::TensorInfo& info : demo.tensors()) {
    if (!info.name.starts_with(kModelPrefix)) continue;
    const std::string rest = info.name.substr(kModelPrefix.size());
    if (rest.starts_with("embed_tokens.") || rest.starts_with("shared_head.head.")) continue;
    tensors.push_back(read_tensor(info, kDraftPrefix + rest));
  }
  return tensors;
}

FileTensor& named(std::vector<FileTensor>& tensors, const std::string& name) {
  for (FileTensor& tensor : tensors) {
    if (tensor.name == kDraftPrefix + name) return tensor;
  }
  throw StartupError("no tensor " + name);
}

json::Value draft_config() {
  json::Value config = read_json(kDemoFolder + "/config.json");
  config["architectures"] = {"DeepseekV3ForCausalLMNextN"};
  config["num_hidden_layers"] = 1;
  return config;
}

class DraftCheckpoint : public testing::Test {
 protected:
  void write(const std::vector<FileTensor>& tensors, const json::Value& config = draft_config()) {
    weights::write_file(directory_ / "model.safetensors", weights::safetensors_file(tensors));
    weights::write_file(directory_ / "config.json", json::dump(config));
  }

  // MTP logits of every token of a prompt.
  std::vector<std::vector<float>> mtp_logits(const std::string& draft_directory) {
    const LoadedModel loaded(kDemoFolder, {}, cpu::fast_backend(), draft_directory);
    StepHarness harness(loaded, {.num_blocks = 4, .wants_mtp = true});
    Slice slice{.sequence = harness.add_sequence()};
    for (int32_t i = 0; i < 40; ++i) slice.tokens.push_back(100 + 7 * i);
    slice.next_tokens.assign(slice.tokens.begin() + 1, slice.tokens.end());
    slice.next_tokens.push_back(99);
    return harness.step({slice})[0].mtp_logits;
  }

  // What loading it says.
  std::string refusal() {
    try {
      const LoadedModel loaded(kDemoFolder, {}, cpu::fast_backend(), directory_.path());
    } catch (const StartupError& error) {
      return error.what();
    }
    return "";
  }

  ScratchDirectory directory_;
};

TEST_F(DraftCheckpoint, drafts_as_the_layer_in_the_models_own_checkpoint) {
  const std::vector<std::vector<float>> own = mtp_logits("");
  std::vector<FileTensor> tensors = draft_tensors();
  ASSERT_GT(tensors.size(), 20u);
  write(tensors);
  EXPECT_EQ(mtp_logits(directory_.path()), own);

  // And it is this layer that is used, not the model's own.
  FileTensor& norm = named(tensors, "enorm.weight");
  norm.bytes.assign(norm.bytes.size(), '\0');
  write(tensors);
  EXPECT_NE(mtp_logits(directory_.path()), own);
}

TEST_F(DraftCheckpoint, may_be_a_whole_checkpoint) {
  EXPECT_EQ(mtp_logits(kDemoFolder), mtp_logits(""));
}

TEST_F(DraftCheckpoint, may_repeat_embedding_and_head_if_they_are_the_models) {
  const weights::Checkpoint demo = value_or_throw(weights::Checkpoint::open(kDemoFolder));
  const weights::TensorInfo* embedding = demo.find("model.embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  std::vector<FileTensor> tensors = draft_tensors();
  tensors.push_back(read_tensor(*embedding, kDraftPrefix + "embed_tokens.weight"));
  tensors.push_back(read_tensor(*demo.find("lm_head.weight"), "lm_head.weight"));
  write(tensors);
  EXPECT_EQ(refusal(), "");
  tensors.back().bytes[10] = static_cast<char>(tensors.back().bytes[10] ^ 1);
  write(tensors);
  EXPECT_THAT(refusal(), HasSubstr("tensor \"lm_head.weight\" is not the model's "
                                   "\"lm_head.weight\", which the draft layer shares"));
}

TEST_F(DraftCheckpoint, missing_extra_and_misshapen_tensors_are_named_together) {
  std::vector<FileTensor> tensors = draft_tensors();
  named(tensors, "hnorm.weight").name = kDraftPrefix + "hnorm.bias";
  FileTensor& norm = named(tensors, "shared_head.norm.weight");
  norm.shape[0] /= 2;
  norm.bytes.resize(norm.bytes.size() / 2);
  write(tensors);
  const std::string message = refusal();
  EXPECT_THAT(message, HasSubstr(directory_.path() + " does not fit the model"));
  EXPECT_THAT(message, HasSubstr("missing: tensor \"model.layers.0.hnorm.weight\" [128]"));
  EXPECT_THAT(message, HasSubstr("unexpected: tensor \"model.layers.0.hnorm.bias\""));
  EXPECT_THAT(message,
              HasSubstr("\"model.layers.0.shared_head.norm.weight\" is bf16[64], the model "
                        "needs [128]"));
}

TEST_F(DraftCheckpoint, a_layer_of_another_model_is_refused_by_its_config) {
  json::Value config = draft_config();
  config["num_experts_per_tok"] = 2;
  write(draft_tensors(), config);
  EXPECT_EQ(refusal(), directory_.path() +
                           "/config.json: \"num_experts_per_tok\" is 2, the model's is 4: the "
                           "draft layer was not made for this model");
}

}  // namespace
}  // namespace fathom::model
