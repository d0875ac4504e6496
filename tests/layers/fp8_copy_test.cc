// The copy of a matrix in FP8: blocks of 128x128, also those that are cut off, as quantize_blocks() makes them.

#include "layers/fp8_copy.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cpu/reference/reference_backend.h"
#include "weights/convert.h"

namespace fathom::layers {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::F8E4M3;
using tensor::Tensor;

TEST(Fp8Copy, has_the_values_and_scales_of_the_whole_matrix_quantised) {
  constexpr int64_t kRows = 300, kColumns = 200;  // three and two blocks
  const ops::Backend& backend = cpu::reference_backend();
  constexpr int64_t kBytes = 1 << 18;
  alignas(tensor::Arena::kAlignmentBytes) static std::byte memory[kBytes];
  tensor::Arena arena(memory, kBytes);
  std::vector<weights::Parameter> parameters;
  WeightBuilder builder(arena, {.plain = DType::kBf16}, backend, parameters);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<Bf16> values(kRows * kColumns);
  std::vector<float> floats(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = tensor::from_float<Bf16>(normal(random));
    floats[i] = tensor::to_float(values[i]);
  }
  const Tensor matrix = Tensor::contiguous(values.data(), DType::kBf16, {kRows, kColumns});
  const ops::Weight copy = allocate_fp8_copy(matrix, builder);
  EXPECT_TRUE(parameters.empty());
  EXPECT_EQ(copy.data.describe(), "f8_e4m3[300, 200]");
  EXPECT_EQ(copy.scale.describe(), "f32[3, 2]");
  fill_fp8_copy(matrix, copy, *backend.make_stream({.num_threads = 1}));

  std::vector<F8E4M3> expected(values.size());
  std::vector<float> scales(6);
  weights::quantize_blocks(floats.data(), kRows, kColumns, weights::BlockScale::kAny,
                           {.q = expected.data(), .scale = scales.data()});
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t column = 0; column < kColumns; ++column)
      ASSERT_EQ(tensor::to_float(copy.data.row<F8E4M3>(row)[column]),
                tensor::to_float(expected[static_cast<size_t>(row * kColumns + column)]))
          << row << ", " << column;
  for (int64_t i = 0; i < 6; ++i)
    EXPECT_EQ(copy.scale.row<float>(i / 2)[i % 2], scales[static_cast<size_t>(i)]) << i;
}

}  // namespace
}  // namespace fathom::layers
