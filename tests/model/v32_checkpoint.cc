#include "tests/model/v32_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/startup_error.h"
#include "tensor/dtype.h"
#include "tests/source_tree.h"
#include "tests/weights/scratch_files.h"

namespace fathom::model {
namespace {

uint32_t crc32(std::string_view text) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

// In [-1, 1), as make_golden.py has them.
std::vector<float> uniform(const std::string& name, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  const uint32_t seed = crc32(name);
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t x = (static_cast<uint32_t>(i) * 0x9E3779B9u) ^ seed;
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    x ^= x >> 16;
    values[i] = static_cast<float>(x >> 8) * 0x1p-23f - 1.0f;
  }
  return values;
}

std::vector<float> weights_of(const std::string& name, int64_t count) {
  std::vector<float> values = uniform(name, count);
  float factor = static_cast<float>(0.2 * std::pow(3.0, 0.5)), shift = 0.0f;
  if (name.ends_with(".bias") || name.ends_with("correction_bias")) {
    factor = 0.25f;
  } else if (name.ends_with("norm.weight")) {
    factor = 0.125f;
    shift = 1.0f;
  } else if (name.ends_with("indexer.wk.weight")) {
    factor = 0x1p-5f;
  }
  for (float& value : values) value = value * factor + shift;
  return values;
}

constexpr int64_t kIndexHeads = 32, kHeadDimOfFp8 = 128;

// The shape in golden.json, or with larger keys or more heads.
std::vector<int64_t> shape_of(const std::string& name, std::vector<int64_t> shape,
                              const V32Edits& edits) {
  for (const char* of_heads : {"q_b_proj.", "kv_b_proj."})
    if (name.find(of_heads) != std::string::npos) shape[0] *= edits.head_copies;
  if (name.find("o_proj.") != std::string::npos) shape[1] *= edits.head_copies;
  if (!edits.is_fp8 || name.find(".indexer.") == std::string::npos) return shape;
  if (name.ends_with("wq_b.weight")) shape[0] = kIndexHeads * kHeadDimOfFp8;
  if (name.find(".wk.") != std::string::npos || name.find(".k_norm.") != std::string::npos)
    shape[0] = kHeadDimOfFp8;
  return shape;
}

// What a published checkpoint stores in FP8.
bool is_fp8_matrix(const std::string& name, size_t rank) {
  if (rank != 2 || !name.starts_with("model.layers.")) return false;
  for (const char* plain : {"mlp.gate.weight", "weights_proj", "eh_proj", "embed_tokens"})
    if (name.find(plain) != std::string::npos) return false;
  return true;
}

// Values by blocks of 128x128 with scales of powers of two.
void add_fp8(const std::string& name, const std::vector<int64_t>& shape,
             const std::vector<float>& values, std::vector<weights::FileTensor>& tensors) {
  constexpr int64_t kBlock = 128;
  const int64_t rows = shape[0], cols = shape[1];
  const int64_t row_blocks = (rows + kBlock - 1) / kBlock,
                col_blocks = (cols + kBlock - 1) / kBlock;
  std::vector<tensor::F8E4M3> q(values.size());
  std::vector<float> scales(static_cast<size_t>(row_blocks * col_blocks));
  const auto scale_of = [&](int64_t row, int64_t col) -> float& {
    return scales[static_cast<size_t>(row / kBlock * col_blocks + col / kBlock)];
  };
  for (int64_t i = 0; i < rows * cols; ++i) {
    float& amax = scale_of(i / cols, i % cols);
    amax = std::max(amax, std::fabs(values[static_cast<size_t>(i)]));
  }
  for (float& scale : scales) scale = std::exp2(std::ceil(std::log2(scale / 448.0f)));
  for (int64_t i = 0; i < rows * cols; ++i)
    q[static_cast<size_t>(i)] = tensor::from_float<tensor::F8E4M3>(values[static_cast<size_t>(i)] /
                                                                   scale_of(i / cols, i % cols));
  tensors.push_back({name, "F8_E4M3", shape, weights::bytes_of(q)});
  tensors.push_back(
      {name + "_scale_inv", "F32", {row_blocks, col_blocks}, weights::bytes_of(scales)});
}

json::Value read(const std::string& name) {
  std::ifstream file(source_path("tests/data/v32/" + name));
  std::stringstream text;
  text << file.rdbuf();
  return value_or_throw(json::parse(text.str()));
}

json::Value config_of(const V32Edits& edits) {
  json::Value config = read("config.json");
  for (const char* heads : {"num_attention_heads", "num_key_value_heads"})
    config[heads] = config[heads].get<int>() * edits.head_copies;
  if (edits.index_topk > 0) config["index_topk"] = edits.index_topk;
  if (edits.is_fp8) {
    config["index_head_dim"] = kHeadDimOfFp8;
    config["quantization_config"] = {{"quant_method", "fp8"},
                                     {"fmt", "e4m3"},
                                     {"activation_scheme", "dynamic"},
                                     {"scale_fmt", "ue8m0"},
                                     {"weight_block_size", json::Value::array({128, 128})}};
    config["dtype"] = "bfloat16";
  }
  if (!edits.is_v3) return config;
  config["architectures"] = json::Value::array({"DeepseekV3ForCausalLM"});
  config["model_type"] = "deepseek_v3";
  for (const char* key : {"index_topk", "index_n_heads", "index_head_dim", "layer_types"})
    config.erase(key);
  return config;
}

}  // namespace

V32Checkpoint::V32Checkpoint(const V32Edits& edits) {
  std::vector<weights::FileTensor> tensors;
  for (const auto& [name, dims] : v32_golden()["tensors"].items()) {
    if (edits.is_v3 && name.find(".indexer.") != std::string::npos) continue;
    const auto shape = shape_of(name, dims.get<std::vector<int64_t>>(), edits);
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    std::vector<float> values = weights_of(name, count);
    if (name == "lm_head.weight" && edits.num_likely_tokens > 0) {
      std::fill_n(values.begin(), 2 * shape[1], 0.0f);
      std::fill(values.begin() + (2 + edits.num_likely_tokens) * shape[1], values.end(), 0.0f);
    }
    if (edits.is_fp8 && is_fp8_matrix(name, shape.size())) {
      add_fp8(name, shape, values, tensors);
    } else {
      tensors.push_back({name, "F32", shape, weights::bytes_of(values)});
    }
  }
  weights::write_file(directory_ / "model.safetensors", weights::safetensors_file(tensors));
  weights::write_file(directory_ / "config.json", json::dump(config_of(edits)));
}

const json::Value& v32_golden() {
  static const json::Value golden = read("golden.json");
  return golden;
}

std::vector<int32_t> v32_prompt(int num_tokens) {
  std::vector<int32_t> ids;
  for (const float value : uniform("prompt." + std::to_string(num_tokens), num_tokens))
    ids.push_back(static_cast<int32_t>(std::floor((value + 1.0f) * 0.5f * 254.0f)) + 2);
  return ids;
}

}  // namespace fathom::model
