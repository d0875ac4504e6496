// The vectorised conversions against the scalar ones of tensor/dtype.h, over every pattern.

#include "weights/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace fathom::weights {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::F16;
using tensor::F8E4M3;

void expect_same(float got, float expected, uint32_t pattern) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << pattern;
  } else {
    EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected)) << pattern;
  }
}

template <class T>
void check_all_halves(DType dtype) {
  std::vector<T> halves(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) halves[bits].bits = static_cast<uint16_t>(bits);
  std::vector<float> f32(65536);
  std::vector<Bf16> bf16(65536);
  convert(halves.data(), dtype, f32.data(), DType::kF32, 65536);
  convert(halves.data(), dtype, bf16.data(), DType::kBf16, 65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float expected = tensor::to_float(halves[bits]);
    expect_same(f32[bits], expected, bits);
    expect_same(tensor::to_float(bf16[bits]), tensor::to_float(tensor::from_float<Bf16>(expected)),
                bits);
  }
}

TEST(Convert, every_half_becomes_its_float) {
  check_all_halves<F16>(DType::kF16);
  check_all_halves<Bf16>(DType::kBf16);
}

TEST(Convert, floats_round_to_bf16_as_the_scalar_code_does) {
  constexpr uint32_t kSeed = 5;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  std::vector<float> floats;
  for (const uint32_t bits : {0u, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u,
                              0x7f7fffffu, 0x3f808000u, 0x3f818000u, 0x3f808001u, 0x00000001u}) {
    floats.push_back(std::bit_cast<float>(bits));
  }
  for (int i = 0; i < 100'000; ++i)
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  std::vector<Bf16> out(floats.size());
  convert(floats.data(), DType::kF32, out.data(), DType::kBf16,
          static_cast<int64_t>(floats.size()));
  for (size_t i = 0; i < floats.size(); ++i) {
    expect_same(tensor::to_float(out[i]), tensor::to_float(tensor::from_float<Bf16>(floats[i])),
                std::bit_cast<uint32_t>(floats[i]));
  }
}

TEST(Convert, every_f8_value_is_multiplied_by_the_scale_of_its_block) {
  std::vector<F8E4M3> values(1024);
  for (size_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<uint8_t>(i);
  const std::vector<float> scales = {1.0f, 0.0123f, 3e-39f, 1e38f, 2.0f, 0.5f, 7.25f, 1e-3f};
  for (const int64_t count : {1, 127, 128, 129, 1000, 1024}) {
    std::vector<float> f32(1024, -1.0f);
    std::vector<Bf16> bf16(1024);
    dequantize(values.data(), scales.data(), f32.data(), DType::kF32, count);
    dequantize(values.data(), scales.data(), bf16.data(), DType::kBf16, count);
    for (size_t i = 0; i < 1024; ++i) {
      if (static_cast<int64_t>(i) >= count) {
        EXPECT_EQ(f32[i], -1.0f);
        EXPECT_EQ(bf16[i].bits, 0);
        continue;
      }
      const float expected = tensor::to_float(values[i]) * scales[i / 128];
      expect_same(f32[i], expected, static_cast<uint32_t>(i));
      expect_same(tensor::to_float(bf16[i]), tensor::to_float(tensor::from_float<Bf16>(expected)),
                  static_cast<uint32_t>(i));
    }
  }
}

// A row of blocks of 128, each of which begins with 448, so that its scale is 1.
TEST(Convert, values_round_to_f8_as_the_scalar_code_does) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float v = std::bit_cast<float>(bits << 16);
    if (std::fabs(v) > 448.0f) continue;
    if (values.size() % 128 == 0) values.push_back(448.0f);
    values.push_back(v);
    if (values.size() % 128 == 0) values.push_back(448.0f);
    values.push_back(std::nextafter(v, v < 0 ? 0.0f : 448.0f));  // beside a tie
  }
  for (uint32_t bits = 0; bits < 0x7e; ++bits) {
    const auto half_way = [](uint32_t f8) {
      const F8E4M3 low{static_cast<uint8_t>(f8)}, high{static_cast<uint8_t>(f8 + 1)};
      return (tensor::to_float(low) + tensor::to_float(high)) / 2;
    };
    if (values.size() % 128 == 0) values.push_back(448.0f);
    values.push_back(half_way(bits));
  }
  const auto count = static_cast<int64_t>(values.size());
  std::vector<F8E4M3> q(values.size());
  std::vector<float> scale(static_cast<size_t>(num_scale_blocks(count)));
  quantize_blocks(values.data(), 1, count, BlockScale::kAny, {q.data(), scale.data()});
  for (const float s : scale) ASSERT_EQ(s, 1.0f);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(q[i].bits, tensor::from_float<F8E4M3>(values[i]).bits) << values[i];
}

TEST(Convert, every_block_of_a_matrix_has_its_own_scale) {
  constexpr int64_t kRows = 130, kColumns = 300;
  std::vector<float> matrix(kRows * kColumns);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (float& v : matrix) v = normal(random);
  for (int64_t c = 0; c < kColumns; ++c) matrix[static_cast<size_t>(129 * kColumns + c)] = 0;
  matrix[5] = std::nanf("");
  for (const BlockScale kind : {BlockScale::kAny, BlockScale::kPowerOfTwo}) {
    std::vector<F8E4M3> q(matrix.size());
    std::vector<float> scale(2 * 3);
    quantize_blocks(matrix.data(), kRows, kColumns, kind, {q.data(), scale.data()});
    std::vector<float> largest(scale.size(), 1e-10f);
    const auto block_of = [](int64_t r, int64_t c) {
      return static_cast<size_t>(r / 128 * 3 + c / 128);
    };
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kColumns; ++c)
        largest[block_of(r, c)] = std::fmax(
            largest[block_of(r, c)], std::fabs(matrix[static_cast<size_t>(r * kColumns + c)]));
    for (size_t block = 0; block < scale.size(); ++block) {
      const float least = largest[block] / 448.0f;
      if (kind == BlockScale::kAny) {
        EXPECT_EQ(scale[block], least);
      } else {
        EXPECT_EQ(std::exp2(std::round(std::log2(scale[block]))), scale[block]);
        EXPECT_GE(scale[block], least);
        EXPECT_LT(scale[block] / 2, least);
      }
    }
    EXPECT_TRUE(std::isnan(tensor::to_float(q[5])));
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < kColumns; ++c) {
        const auto i = static_cast<size_t>(r * kColumns + c);
        if (i == 5) continue;
        const float expected = matrix[i] / scale[block_of(r, c)];
        ASSERT_EQ(q[i].bits, tensor::from_float<F8E4M3>(expected).bits) << r << " " << c;
      }
  }
}

TEST(Convert, knows_which_conversions_exist) {
  EXPECT_TRUE(can_convert(DType::kF16, DType::kBf16));
  EXPECT_TRUE(can_convert(DType::kF32, DType::kF32));
  EXPECT_FALSE(can_convert(DType::kF8E4M3, DType::kF32));
  EXPECT_FALSE(can_convert(DType::kI64, DType::kF32));
  EXPECT_FALSE(can_convert(DType::kF32, DType::kF16));
}

}  // namespace
}  // namespace fathom::weights
