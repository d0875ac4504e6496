// INT4 matrices, two values in a byte that checkpoints call i8, with scales of 128 channels of an output: kept,
// dequantised, cut for ranks, refused, made up.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/weights/scratch_files.h"

namespace fathom::weights {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::I4x2;
using tensor::Tensor;
using testing::HasSubstr;

// A matrix with its scales, and a scale of activations, in one file.
struct Int4Matrix {
  Int4Matrix(int64_t n, int64_t k, bool bf16_scales = false) : rows(n), columns(k) {
    pairs = random_f8(n * k / 2, 3);
    const FileTensor of_scales =
        random_scales("w.weight_scale_inv", {n, blocks()}, bf16_scales ? "BF16" : "F32", scales);
    write_file(directory / "model.safetensors",
               safetensors_file({{"w.weight", "I8", {n, k / 2}, bytes_of(pairs)},
                                 of_scales,
                                 {"w.input_scale", "BF16", {1}, std::string(2, '\1')}}));
  }
  int64_t blocks() const { return num_scale_blocks(columns); }
  int quantised(int64_t row, int64_t column) const {
    const I4x2 pair{pairs[static_cast<size_t>((row * columns + column) / 2)]};
    return column % 2 == 0 ? pair.even() : pair.odd();
  }
  float value(int64_t row, int64_t column) const {
    return static_cast<float>(quantised(row, column)) *
           scales[static_cast<size_t>(row * blocks() + column / 128)];
  }

  ScratchDirectory directory;
  int64_t rows, columns;
  std::vector<uint8_t> pairs;
  std::vector<float> scales;
};

// Memory for a part of such a matrix.
struct Int4Part {
  Int4Part(int64_t rows, int64_t columns)
      : pairs(static_cast<size_t>(rows * columns / 2)),
        scales(static_cast<size_t>(rows * num_scale_blocks(columns))),
        data(Tensor::contiguous(pairs.data(), DType::kI4x2, {rows, columns / 2})),
        scale(Tensor::contiguous(scales.data(), DType::kF32, {rows, num_scale_blocks(columns)})) {}
  std::vector<uint8_t> pairs;
  std::vector<float> scales;
  Tensor data, scale;
};

TEST(Int4Values, are_twos_complement_with_the_even_one_in_the_low_bits) {
  for (int even = -8; even < 8; ++even)
    for (int odd = -8; odd < 8; ++odd) {
      const I4x2 pair{static_cast<uint8_t>((even + 16) % 16 + (odd + 16) % 16 * 16)};
      EXPECT_EQ(pair.even(), even);
      EXPECT_EQ(pair.odd(), odd);
    }
}

TEST(Int4Loader, keeps_values_and_scales_as_they_are) {
  for (const bool bf16_scales : {false, true}) {
    const Int4Matrix matrix(300, 200, bf16_scales);
    const Int4Part whole(300, 200);
    const Status loaded = load_from(
        matrix.directory.path(), {{.name = "w.weight", .data = whole.data, .scale = whole.scale}});
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(whole.pairs, matrix.pairs);
    EXPECT_EQ(whole.scales, matrix.scales);
  }
}

TEST(Int4Loader, dequantises_to_f32_and_bf16) {
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{1, 2}, {129, 126}, {300, 262}, {1500, 8200}}) {
    const Int4Matrix matrix(rows, columns);
    std::vector<float> f32(static_cast<size_t>(rows * columns));
    std::vector<Bf16> bf16(f32.size());
    for (const Tensor& to : {Tensor::contiguous(f32.data(), DType::kF32, {rows, columns}),
                             Tensor::contiguous(bf16.data(), DType::kBf16, {rows, columns})}) {
      const Status loaded = load_from(matrix.directory.path(), {{.name = "w.weight", .data = to}});
      ASSERT_TRUE(loaded) << loaded.error().message;
    }
    for (int64_t i = 0; i < rows * columns; ++i) {
      const float expected = matrix.value(i / columns, i % columns);
      ASSERT_EQ(f32[static_cast<size_t>(i)], expected) << i;
      ASSERT_EQ(bf16[static_cast<size_t>(i)].bits, tensor::from_float<Bf16>(expected).bits);
    }
  }
}

TEST(Int4Loader, gives_ranks_their_parts_and_the_scales_of_these) {
  const Int4Matrix matrix(250, 512);
  for (const int axis : {0, 1})
    for (const int size : {2, axis == 0 ? 5 : 8})
      for (int rank = 0; rank < size; ++rank) {
        const int64_t rows = axis == 0 ? 250 / size : 250, columns = axis == 1 ? 512 / size : 512;
        const int64_t first_row = axis == 0 ? rank * rows : 0;
        const int64_t first_column = axis == 1 ? rank * columns : 0;
        const weights::Shard shard{.axis = axis, .rank = rank, .size = size};
        const Int4Part part(rows, columns);
        std::vector<float> values(static_cast<size_t>(rows * columns));
        const Tensor plain = Tensor::contiguous(values.data(), DType::kF32, {rows, columns});
        for (const Parameter& parameter :
             {Parameter{.name = "w.weight", .data = part.data, .scale = part.scale, .shard = shard},
              Parameter{.name = "w.weight", .data = plain, .shard = shard}}) {
          const Status loaded = load_from(matrix.directory.path(), {parameter});
          ASSERT_TRUE(loaded) << loaded.error().message;
        }
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c) {
            const I4x2 pair{part.pairs[static_cast<size_t>((r * columns + c) / 2)]};
            const int q = c % 2 == 0 ? pair.even() : pair.odd();
            const float scale =
                part.scales[static_cast<size_t>(r * num_scale_blocks(columns) + c / 128)];
            const float expected = matrix.value(first_row + r, first_column + c);
            ASSERT_EQ(static_cast<float>(q) * scale, expected)
                << axis << " " << rank << " of " << size << ": " << r << ", " << c;
            ASSERT_EQ(values[static_cast<size_t>(r * columns + c)], expected);
          }
      }
}

TEST(Int4Loader, names_what_does_not_fit) {
  ScratchDirectory directory;
  const Int4Part part(256, 200);
  struct Case {
    std::vector<FileTensor> tensors;
    const char* problem;
  };
  const FileTensor weight{"w.weight", "I8", {256, 100}, std::string(256 * 100, '\1')};
  for (const Case& bad : std::vector<Case>{
           {{weight}, "missing scale: tensor \"w.weight_scale_inv\" for \"w.weight\""},
           {{weight, {"w.weight_scale_inv", "F32", {2, 2}, std::string(16, '\1')}},
            "wrong scale: tensor \"w.weight_scale_inv\" is f32[2, 2], must be f32[256, 2]"},
           {{weight, {"w.weight_scale_inv", "F32", {256, 2}, std::string(2048, '\0')}},
            "holds 0.000000 at [0, 0], scales must be finite and > 0"},
           {{{"w.weight", "F8_E4M3", {256, 200}, std::string(256 * 200, '\1')},
             {"w.weight_scale_inv", "F32", {2, 2}, std::string(16, '\1')}},
            "wrong shape: tensor \"w.weight\" is f8_e4m3[256, 200], the model needs [256, 100]"},
           {{{"w.weight", "F8_E4M3", {256, 100}, std::string(256 * 100, '\1')},
             {"w.weight_scale_inv", "F32", {2, 1}, std::string(8, '\1')}},
            "wrong dtype: tensor \"w.weight\" is f8_e4m3[256, 100], the model needs i4x2"}}) {
    write_file(directory / "model.safetensors", safetensors_file(bad.tensors));
    const Status loaded =
        load_from(directory.path(), {{.name = "w.weight", .data = part.data, .scale = part.scale}});
    ASSERT_FALSE(loaded) << bad.problem;
    EXPECT_THAT(loaded.error().message, HasSubstr(bad.problem));
  }
}

TEST(Int4Dummy, has_all_values_and_the_spread_that_was_asked_for) {
  const Int4Part part(1024, 1024);
  ASSERT_TRUE(fill_dummy({{.name = "w.weight", .data = part.data, .scale = part.scale}}, {}));
  double squares = 0;
  std::vector<int> counts(16);
  for (const uint8_t bits : part.pairs) {
    const I4x2 pair{bits};
    for (const int v : {pair.even(), pair.odd()}) {
      squares += v * v;
      ++counts[static_cast<size_t>(v + 8)];
    }
  }
  for (const int count : counts) EXPECT_NEAR(count, 1024 * 1024 / 16, 4000);
  const double spread = std::sqrt(squares / (1024.0 * 1024.0));
  for (const float scale : part.scales)
    ASSERT_NEAR(spread * static_cast<double>(scale), 0.02, 0.0004);
}

}  // namespace
}  // namespace fathom::weights
