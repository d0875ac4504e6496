// The demo model and the fixtures, tensor by tensor, against hashes that NumPy computed
// (tests/data/weights/make_golden.py).

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "base/json.h"
#include "tests/shared_files.h"
#include "tests/source_tree.h"
#include "weights/loader.h"

namespace fathom::weights {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::Tensor;

uint32_t crc32(const void* data, size_t num_bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = (t[i] >> 1) ^ ((t[i] & 1) != 0 ? 0xedb88320u : 0);
    }
    return t;
  }();
  uint32_t crc = 0xffffffffu;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < num_bytes; ++i) crc = (crc >> 8) ^ table[(crc ^ bytes[i]) & 0xff];
  return ~crc;
}

json::Value golden_hashes(const std::string& name) {
  std::ifstream file(source_path("tests/data/weights/") + name + ".json");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Result<json::Value> hashes = json::parse(text);
  EXPECT_TRUE(hashes) << hashes.error().message;
  return hashes ? std::move(*hashes) : json::Value::object();
}

// A float32 or bf16 destination for every tensor of a checkpoint that is no scale.
struct GenericModel {
  GenericModel(const Checkpoint& checkpoint, DType dtype) {
    for (const TensorInfo& info : checkpoint.tensors()) {
      if (info.name.ends_with("_scale_inv")) continue;
      int64_t count = 1;
      for (const int64_t dim : info.shape) count *= dim;
      memory.push_back(std::make_unique<float[]>(static_cast<size_t>(count)));
      void* data = memory.back().get();
      parameters.push_back(
          {.name = info.name,
           .data = info.shape.size() == 1
                       ? Tensor::contiguous(data, dtype, {count})
                       : Tensor::contiguous(data, dtype, {info.shape[0], info.shape[1]})});
    }
  }
  std::vector<std::unique_ptr<float[]>> memory;
  std::vector<Parameter> parameters;
};

void expect_golden(const std::string& directory, const std::string& name) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const json::Value hashes = golden_hashes(name);
  GenericModel f32(*checkpoint, DType::kF32), bf16(*checkpoint, DType::kBf16);
  ASSERT_EQ(f32.parameters.size(), hashes.size());
  const Status loaded = load_parameters(*checkpoint, f32.parameters, {.num_threads = 3});
  ASSERT_TRUE(loaded) << loaded.error().message;
  ASSERT_TRUE(load_parameters(*checkpoint, bf16.parameters, {.num_threads = 3}));
  for (size_t i = 0; i < f32.parameters.size(); ++i) {
    const Tensor& data = f32.parameters[i].data;
    EXPECT_EQ(crc32(data.data(), static_cast<size_t>(data.num_bytes())),
              hashes[f32.parameters[i].name].get<uint32_t>())
        << f32.parameters[i].name;
    const float* exact = data.as<float>();
    const Bf16* rounded = bf16.parameters[i].data.as<Bf16>();
    for (int64_t j = 0; j < data.num_elements(); ++j) {
      ASSERT_EQ(rounded[j].bits, tensor::from_float<Bf16>(exact[j]).bits);
    }
  }
}

TEST(GoldenWeights, demo_model) { expect_golden(source_path("models/demo"), "demo"); }

TEST(GoldenWeights, fixtures) {  // in ../shared
  if (!is_shared("fixtures")) GTEST_SKIP() << not_shared("fixtures");
  for (const std::string name : {"v2", "v2-lite", "v3-fp8", "v3-one-group"}) {
    SCOPED_TRACE(name);
    expect_golden(shared_path("fixtures/" + name), name);
  }
}

}  // namespace
}  // namespace fathom::weights
