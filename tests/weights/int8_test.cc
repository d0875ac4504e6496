// INT8 matrices with scales of blocks and of channels: kept, dequantised, cut for ranks, refused, made up.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "tests/weights/scratch_files.h"

namespace fathom::weights {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::Tensor;
using testing::HasSubstr;

// A matrix with scales of its own in one file.
struct Int8Matrix {
  Int8Matrix(int64_t n, int64_t k, bool channels, bool bf16_scales = false)
      : rows(n), columns(k), of_channels(channels) {
    for (const uint8_t bits : random_f8(n * k, 3)) values.push_back(static_cast<int8_t>(bits));
    const FileTensor of_scales =
        random_scales(scale_name("w.weight", channels), {scale_rows(), scale_columns()},
                      bf16_scales ? "BF16" : "F32", scales);
    write_file(directory / "model.safetensors",
               safetensors_file({{"w.weight", "I8", {n, k}, bytes_of(values)}, of_scales}));
  }
  int64_t scale_rows() const { return of_channels ? rows : (rows + 127) / 128; }
  int64_t scale_columns() const { return of_channels ? 1 : (columns + 127) / 128; }
  float value(int64_t row, int64_t column) const {
    const int64_t at = of_channels ? row : row / 128 * scale_columns() + column / 128;
    return static_cast<float>(values[static_cast<size_t>(row * columns + column)]) *
           scales[static_cast<size_t>(at)];
  }

  ScratchDirectory directory;
  int64_t rows, columns;
  bool of_channels;
  std::vector<int8_t> values;
  std::vector<float> scales;
};

// Memory for a part of such a matrix.
struct Int8Part {
  Int8Part(int64_t rows, int64_t columns, std::pair<int64_t, int64_t> scale_shape)
      : values(static_cast<size_t>(rows * columns)),
        scales(static_cast<size_t>(scale_shape.first * scale_shape.second)),
        data(Tensor::contiguous(values.data(), DType::kI8, {rows, columns})),
        scale(Tensor::contiguous(scales.data(), DType::kF32,
                                 {scale_shape.first, scale_shape.second})) {}
  std::vector<int8_t> values;
  std::vector<float> scales;
  Tensor data, scale;
};

TEST(Int8Loader, keeps_values_and_scales_as_they_are) {
  for (const bool of_channels : {false, true})
    for (const bool bf16_scales : {false, true}) {
      if (bf16_scales && !of_channels) continue;
      const Int8Matrix matrix(300, 200, of_channels, bf16_scales);
      const Int8Part whole(300, 200, {matrix.scale_rows(), matrix.scale_columns()});
      const Status loaded =
          load_from(matrix.directory.path(),
                    {{.name = "w.weight", .data = whole.data, .scale = whole.scale}});
      ASSERT_TRUE(loaded) << loaded.error().message;
      EXPECT_EQ(whole.values, matrix.values);
      EXPECT_EQ(whole.scales, matrix.scales);
    }
}

TEST(Int8Loader, dequantises_to_f32_and_bf16) {
  for (const bool of_channels : {false, true})
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{1, 1}, {129, 127}, {300, 261}, {1500, 4100}}) {
      const Int8Matrix matrix(rows, columns, of_channels);
      std::vector<float> f32(static_cast<size_t>(rows * columns));
      std::vector<Bf16> bf16(f32.size());
      for (const Tensor& to : {Tensor::contiguous(f32.data(), DType::kF32, {rows, columns}),
                               Tensor::contiguous(bf16.data(), DType::kBf16, {rows, columns})})
        ASSERT_TRUE(load_from(matrix.directory.path(), {{.name = "w.weight", .data = to}}));
      for (int64_t i = 0; i < rows * columns; ++i) {
        const float expected = matrix.value(i / columns, i % columns);
        ASSERT_EQ(f32[static_cast<size_t>(i)], expected) << i;
        ASSERT_EQ(bf16[static_cast<size_t>(i)].bits, tensor::from_float<Bf16>(expected).bits);
      }
    }
}

// Scales of channels go with rows, and stay whole where columns are cut, anywhere.
TEST(Int8Loader, gives_ranks_their_parts_and_the_scales_of_these) {
  for (const bool of_channels : {false, true})
    for (const int axis : {0, 1}) {
      const Int8Matrix matrix(256, 512, of_channels);
      for (int rank = 0; rank < 2; ++rank) {
        const int64_t rows = axis == 0 ? 128 : 256, columns = axis == 1 ? 256 : 512;
        const Int8Part part(
            rows, columns,
            of_channels ? std::pair{rows, int64_t{1}} : std::pair{rows / 128, columns / 128});
        ASSERT_TRUE(load_from(matrix.directory.path(),
                              {{.name = "w.weight",
                                .data = part.data,
                                .scale = part.scale,
                                .shard = {.axis = axis, .rank = rank, .size = 2}}}));
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c) {
            const int64_t scale = of_channels ? r : r / 128 * (columns / 128) + c / 128;
            ASSERT_EQ(static_cast<float>(part.values[static_cast<size_t>(r * columns + c)]) *
                          part.scales[static_cast<size_t>(scale)],
                      matrix.value(r + (axis == 0 ? rank * rows : 0),
                                   c + (axis == 1 ? rank * columns : 0)))
                << of_channels << axis << rank << " " << r << ", " << c;
          }
      }
    }
}

TEST(Int8Loader, names_what_does_not_fit) {
  const Int8Matrix of_blocks(256, 200, /*channels=*/false);
  const Int8Part part(256, 200, {256, 1});
  EXPECT_THAT(load_from(of_blocks.directory.path(),
                        {{.name = "w.weight", .data = part.data, .scale = part.scale}})
                  .error()
                  .message,
              HasSubstr("missing scale: tensor \"w.weight_scale\" for \"w.weight\", which is "
                        "i8[256, 200]"));
  ScratchDirectory directory;
  write_file(directory / "model.safetensors",
             safetensors_file({{"w.weight", "BF16", {256, 200}, std::string(256 * 400, '\0')}}));
  EXPECT_THAT(
      load_from(directory.path(), {{.name = "w.weight", .data = part.data, .scale = part.scale}})
          .error()
          .message,
      HasSubstr("config.json has an INT8 quantization_config, but tensor \"w.weight\" is "
                "bf16[256, 200]"));
  const std::string ones(256 * 200, '\1');
  for (const auto& [scale, problem] : std::vector<std::pair<FileTensor, const char*>>{
           {{"w.weight_scale", "F32", {2, 2}, std::string(16, '\0')},
            "wrong scale: tensor \"w.weight_scale\" is f32[2, 2], must be f32[256, 1]"},
           {{"w.weight_scale", "F32", {256, 1}, std::string(1024, '\0')},
            "holds 0.000000 at [0, 0], scales must be finite and > 0"}}) {
    write_file(directory / "model.safetensors",
               safetensors_file({{"w.weight", "I8", {256, 200}, ones}, scale}));
    EXPECT_THAT(
        load_from(directory.path(), {{.name = "w.weight", .data = part.data, .scale = part.scale}})
            .error()
            .message,
        HasSubstr(problem));
  }
}

TEST(Int8Dummy, has_all_values_and_the_spread_that_was_asked_for) {
  for (const bool of_channels : {false, true}) {
    const Int8Part part(
        1024, 1024,
        of_channels ? std::pair<int64_t, int64_t>{1024, 1} : std::pair<int64_t, int64_t>{8, 8});
    ASSERT_TRUE(fill_dummy({{.name = "w.weight", .data = part.data, .scale = part.scale}}, {}));
    double squares = 0;
    int8_t least = 0, most = 0;
    for (const int8_t v : part.values) {
      squares += v * v;
      least = std::min(least, v);
      most = std::max(most, v);
    }
    EXPECT_EQ(least, -127);
    EXPECT_EQ(most, 127);
    const double spread = std::sqrt(squares / static_cast<double>(part.values.size()));
    for (const float scale : part.scales)
      ASSERT_NEAR(spread * static_cast<double>(scale), 0.02, 0.0004);
  }
}

}  // namespace
}  // namespace fathom::weights
