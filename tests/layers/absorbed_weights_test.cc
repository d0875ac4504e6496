// W_UK and W_UV out of kv_b_proj, above all that the values of an FP8 checkpoint come back.

#include "layers/absorbed_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cpu/reference/reference_backend.h"
#include "tests/source_tree.h"
#include "weights/checkpoint.h"
#include "weights/loader.h"

namespace fathom::layers {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::F8E4M3;
using tensor::num_scale_blocks;
using tensor::Tensor;

struct Sizes {
  int64_t heads, nope, value, rank;
  int64_t head_rows() const { return nope + value; }
};

// kv_b_proj and what is derived from it, in host memory.
class Absorbed {
 public:
  explicit Absorbed(const Sizes& sizes)
      : kv_b(room(DType::kBf16, {sizes.heads, sizes.head_rows(), sizes.rank})),
        fp8{.w_uk = weight(sizes.heads, sizes.rank, sizes.nope),
            .w_uv = weight(sizes.heads, sizes.value, sizes.rank)},
        sizes_(sizes) {}

  void derive(weights::BlockScale kind) { derive_absorbed_fp8(kv_b, fp8, kind, *stream_); }
  ops::Stream& stream() { return *stream_; }
  Tensor room(DType dtype, std::initializer_list<int64_t> shape) {
    int64_t bytes = tensor::dtype_bytes(dtype);
    for (const int64_t dim : shape) bytes *= dim;
    memory_.emplace_back(static_cast<size_t>(bytes), std::byte{0xff});
    return Tensor::contiguous(memory_.back().data(), dtype, shape);
  }

  // Element (row, k) of a head of kv_b_proj, where its part has it.
  struct Place {
    const ops::Weight& part;
    int64_t out, in;
  };
  Place place(int64_t row, int64_t k) const {
    if (row < sizes_.nope) return {fp8.w_uk, k, row};
    return {fp8.w_uv, row - sizes_.nope, k};
  }
  F8E4M3 value(int64_t head, int64_t row, int64_t k) const {
    const Place at = place(row, k);
    return at.part.data.row<F8E4M3>(head, at.out)[at.in];
  }
  float scale(int64_t head, int64_t row, int64_t k) const {
    const Place at = place(row, k);
    return at.part.scale.row<float>(head, at.out / 128)[at.in / 128];
  }
  float kv_b_value(int64_t head, int64_t row, int64_t k) const {
    return tensor::to_float(kv_b.row<Bf16>(head, row)[k]);
  }

 private:
  ops::Weight weight(int64_t heads, int64_t out, int64_t in) {
    return {.data = room(DType::kF8E4M3, {heads, out, in}),
            .scale = room(DType::kF32, {heads, num_scale_blocks(out), num_scale_blocks(in)})};
  }
  std::vector<std::vector<std::byte>> memory_;
  std::unique_ptr<ops::Stream> stream_ = cpu::reference_backend().make_stream({});

 public:
  Tensor kv_b;
  AbsorbedWeights fp8;

 private:
  Sizes sizes_;
};

// A checkpoint's kv_b_proj: e4m3 values, the largest of a block `top`, and scales of its blocks.
struct Stored {
  std::vector<uint8_t> q;
  std::vector<float> scale;
};

Stored make_stored(const Sizes& sizes, uint8_t top, bool powers_of_two) {
  const int64_t rows = sizes.heads * sizes.head_rows();
  std::mt19937 random(11);
  Stored stored;
  for (int64_t i = 0; i < rows * sizes.rank; ++i)
    stored.q.push_back(static_cast<uint8_t>(random() % (top + 1u) | (random() % 2 << 7)));
  for (int64_t row = 0; row < rows; row += 128)
    for (int64_t k = 0; k < sizes.rank; k += 128) {
      stored.q[static_cast<size_t>(row * sizes.rank + k)] = top;
      const float scale = 3e-4f * (1 + static_cast<float>(random() % 1000) / 999.0f);
      stored.scale.push_back(powers_of_two ? std::exp2(std::round(std::log2(scale))) : scale);
    }
  return stored;
}

float scale_of(const Stored& stored, const Sizes& sizes, int64_t row, int64_t k) {
  return stored.scale[static_cast<size_t>(row / 128 * num_scale_blocks(sizes.rank) + k / 128)];
}

void fill_kv_b(const Stored& stored, const Sizes& sizes, const Tensor& kv_b) {
  for (int64_t row = 0; row < sizes.heads * sizes.head_rows(); ++row)
    for (int64_t k = 0; k < sizes.rank; ++k) {
      const F8E4M3 q{stored.q[static_cast<size_t>(row * sizes.rank + k)]};
      const float value = tensor::to_float(q) * scale_of(stored, sizes, row, k);
      kv_b.as<Bf16>()[row * sizes.rank + k] = tensor::from_float<Bf16>(value);
    }
}

constexpr Sizes kAligned{.heads = 2, .nope = 128, .value = 256, .rank = 256};

TEST(AbsorbedWeights, of_an_fp8_checkpoint_are_its_own_values) {
  const Stored stored = make_stored(kAligned, 0x7e, /*powers_of_two=*/false);
  Absorbed absorbed(kAligned);
  fill_kv_b(stored, kAligned, absorbed.kv_b);
  absorbed.derive(weights::BlockScale::kAny);
  for (int64_t row = 0; row < kAligned.heads * kAligned.head_rows(); ++row)
    for (int64_t k = 0; k < kAligned.rank; ++k) {
      const int64_t head = row / kAligned.head_rows(), of_head = row % kAligned.head_rows();
      const uint8_t q = stored.q[static_cast<size_t>(row * kAligned.rank + k)];
      ASSERT_EQ(absorbed.value(head, of_head, k).bits, q) << row << " " << k;
      const float scale = scale_of(stored, kAligned, row, k);
      ASSERT_NEAR(absorbed.scale(head, of_head, k), scale, scale * 0x1p-8f);
    }
}

// 0x72: the largest value is 160, for which a power of two is no tight scale.
TEST(AbsorbedWeights, with_scales_of_powers_of_two_are_exact_whatever_the_largest_value) {
  for (const uint8_t top : {uint8_t{0x7e}, uint8_t{0x72}}) {
    const Stored stored = make_stored(kAligned, top, /*powers_of_two=*/true);
    Absorbed absorbed(kAligned);
    fill_kv_b(stored, kAligned, absorbed.kv_b);
    absorbed.derive(weights::BlockScale::kPowerOfTwo);
    for (int64_t row = 0; row < kAligned.heads * kAligned.head_rows(); ++row)
      for (int64_t k = 0; k < kAligned.rank; ++k) {
        const int64_t head = row / kAligned.head_rows(), of_head = row % kAligned.head_rows();
        const F8E4M3 q{stored.q[static_cast<size_t>(row * kAligned.rank + k)]};
        ASSERT_EQ(
            tensor::to_float(absorbed.value(head, of_head, k)) * absorbed.scale(head, of_head, k),
            tensor::to_float(q) * scale_of(stored, kAligned, row, k));
      }
  }
}

// Each block's scale is that of its own head: heads of 112 rows would share blocks in the checkpoint.
TEST(AbsorbedWeights, of_odd_sizes_round_every_value_once) {
  constexpr Sizes kOdd{.heads = 3, .nope = 40, .value = 72, .rank = 130};
  Absorbed absorbed(kOdd);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < absorbed.kv_b.num_elements(); ++i) {
    const float of_head = i >= absorbed.kv_b.stride(0) ? 1.0f : 1000.0f;
    absorbed.kv_b.as<Bf16>()[i] = tensor::from_float<Bf16>(of_head * normal(random));
  }
  absorbed.derive(weights::BlockScale::kAny);
  for (int64_t head = 0; head < kOdd.heads; ++head)
    for (int64_t row = 0; row < kOdd.head_rows(); ++row)
      for (int64_t k = 0; k < kOdd.rank; ++k) {
        const float value = absorbed.kv_b_value(head, row, k), scale = absorbed.scale(head, row, k);
        ASSERT_EQ(absorbed.value(head, row, k).bits,
                  tensor::from_float<F8E4M3>(value / scale).bits);
        ASSERT_LT(scale, head == 0 ? 100.0f : 0.1f);
      }
}

TEST(AbsorbedWeights, w_uk_in_its_own_type_is_transposed) {
  constexpr Sizes kSmall{.heads = 2, .nope = 3, .value = 5, .rank = 7};
  Absorbed absorbed(kSmall);
  const Tensor w_uk = absorbed.room(DType::kBf16, {2, 7, 3});
  for (int64_t i = 0; i < absorbed.kv_b.num_elements(); ++i)
    absorbed.kv_b.as<Bf16>()[i].bits = static_cast<uint16_t>(i);
  derive_w_uk(absorbed.kv_b, w_uk, absorbed.stream());
  for (int64_t head = 0; head < 2; ++head)
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t k = 0; k < 7; ++k)
        ASSERT_EQ(w_uk.row<Bf16>(head, k)[row].bits, absorbed.kv_b.row<Bf16>(head, row)[k].bits);
}

// The demo checkpoint, as the loader dequantises it.
TEST(AbsorbedWeights, of_the_demo_model_are_the_values_of_its_checkpoint) {
  constexpr Sizes kDemo{.heads = 8, .nope = 128, .value = 128, .rank = 512};
  const std::string name = "model.layers.2.self_attn.kv_b_proj.weight";
  Absorbed absorbed(kDemo);
  const Tensor matrix = absorbed.kv_b.reshape({2048, 512});
  const Tensor q = absorbed.room(DType::kF8E4M3, {2048, 512});
  const Tensor scale = absorbed.room(DType::kF32, {16, 4});
  Result<weights::Checkpoint> checkpoint = weights::Checkpoint::open(source_path("models/demo"));
  ASSERT_TRUE(checkpoint);
  for (const std::vector<weights::Parameter>& wanted :
       {std::vector<weights::Parameter>{{.name = name, .data = matrix, .scale = {}}},
        std::vector<weights::Parameter>{{.name = name, .data = q, .scale = scale}}})
    ASSERT_TRUE(weights::load_parameters(*checkpoint, wanted, {.ignored_prefixes = {""}}));
  absorbed.derive(weights::BlockScale::kAny);
  for (int64_t row = 0; row < 2048; ++row)
    for (int64_t k = 0; k < kDemo.rank; ++k) {
      const int64_t head = row / kDemo.head_rows(), of_head = row % kDemo.head_rows();
      ASSERT_EQ(absorbed.value(head, of_head, k).bits, q.row<F8E4M3>(row)[k].bits);
      const float stored = scale.row<float>(row / 128)[k / 128];
      ASSERT_NEAR(absorbed.scale(head, of_head, k), stored, stored * 0x1p-8f);
    }
}

}  // namespace
}  // namespace fathom::layers
