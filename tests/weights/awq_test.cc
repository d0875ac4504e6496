// AWQ's matrices: transposed words of eight outputs, with scales and zero points of groups of channels. Kept,
// dequantised, cut for ranks, refused, made up.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tests/weights/scratch_files.h"

namespace fathom::weights {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::F16;
using tensor::Tensor;
using tensor::U4x2;
using testing::HasSubstr;

// Of a word, from its lowest bits on.
constexpr int64_t kOutputs[] = {0, 2, 4, 6, 1, 3, 5, 7};

// Values of four bits [rows, columns] as words i32[rows, columns / 8].
std::string words_of(const std::vector<int>& values, int64_t columns) {
  std::string bytes(values.size() / 2, '\0');
  for (size_t i = 0; i < values.size(); i += 8) {
    uint32_t word = 0;
    for (size_t place = 0; place < 8; ++place)
      word |= static_cast<uint32_t>(values[i + static_cast<size_t>(kOutputs[place])])
              << (4 * place);
    std::memcpy(bytes.data() + i / 2, &word, sizeof(word));
  }
  EXPECT_EQ(columns % 8, 0);
  return bytes;
}

// A matrix [out, in] in a file of its own.
struct AwqMatrix {
  AwqMatrix(int64_t n, int64_t k, int64_t group) : out(n), in(k), channels(group) {
    std::mt19937 engine(7);
    std::uniform_int_distribution<int> four_bits(0, 15), exponent(8, 20), fraction(0, 1023);
    for (int64_t i = 0; i < in * out; ++i) values.push_back(four_bits(engine));
    for (int64_t i = 0; i < in / group * out; ++i) {
      zeros.push_back(four_bits(engine));
      scales.push_back({static_cast<uint16_t>(exponent(engine) << 10 | fraction(engine))});
    }
  }
  std::vector<FileTensor> tensors() const {
    const int64_t groups = in / channels;
    std::string scale_bytes(scales.size() * sizeof(F16), '\0');
    std::memcpy(scale_bytes.data(), scales.data(), scale_bytes.size());
    return {{"w.qweight", "I32", {in, out / 8}, words_of(values, out)},
            {"w.qzeros", "I32", {groups, out / 8}, words_of(zeros, out)},
            {"w.scales", "F16", {groups, out}, scale_bytes}};
  }
  void write() const { write_file(directory / "model.safetensors", safetensors_file(tensors())); }
  size_t group_at(int64_t o, int64_t k) const {
    return static_cast<size_t>(k / channels * out + o);
  }
  int quantised(int64_t o, int64_t k) const { return values[static_cast<size_t>(k * out + o)]; }
  float value(int64_t o, int64_t k) const {
    return static_cast<float>(quantised(o, k) - zeros[group_at(o, k)]) *
           tensor::to_float(scales[group_at(o, k)]);
  }

  ScratchDirectory directory;
  int64_t out, in, channels;
  std::vector<int> values, zeros;  // [in, out], [in / channels, out]
  std::vector<F16> scales;
};

// Memory for a part of such a matrix.
struct AwqPart {
  AwqPart(int64_t n, int64_t k, int64_t group)
      : pairs(static_cast<size_t>(n * k / 2)),
        scales(static_cast<size_t>(2 * n * k / group)),
        data(Tensor::contiguous(pairs.data(), DType::kU4x2, {n, k / 2})),
        scale(Tensor::contiguous(scales.data(), DType::kF16, {n, 2 * k / group})),
        columns(k),
        channels(group) {}
  float value(int64_t o, int64_t k) const {
    const U4x2 pair{pairs[static_cast<size_t>((o * columns + k) / 2)]};
    const int64_t groups = columns / channels;
    const F16* row = scales.data() + o * 2 * groups + k / channels;
    return (static_cast<float>(k % 2 == 0 ? pair.even() : pair.odd()) -
            tensor::to_float(row[groups])) *
           tensor::to_float(row[0]);
  }
  std::vector<uint8_t> pairs;
  std::vector<F16> scales;
  Tensor data, scale;
  int64_t columns, channels;
};

TEST(AwqLoader, keeps_values_scales_and_zero_points) {
  for (const auto& [out, in, channels] : {std::tuple<int64_t, int64_t, int64_t>{8, 32, 32},
                                          {136, 192, 64},
                                          {16, 1408, 128},
                                          {2048, 256, 64}}) {
    const AwqMatrix matrix(out, in, channels);
    matrix.write();
    const AwqPart whole(out, in, channels);
    bool found = false;
    const Status loaded = load_from(
        matrix.directory.path(),
        {{.name = "w.weight", .data = whole.data, .scale = whole.scale, .found = &found}});
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_TRUE(found);
    for (int64_t o = 0; o < out; ++o)
      for (int64_t k = 0; k < in; ++k)
        ASSERT_EQ(whole.value(o, k), matrix.value(o, k)) << o << " " << k;
  }
}

TEST(AwqLoader, dequantises_to_f32_and_bf16_rounded_once) {
  const AwqMatrix matrix(72, 320, 64);
  matrix.write();
  std::vector<float> f32(72 * 320);
  std::vector<Bf16> bf16(f32.size());
  for (const Tensor& to : {Tensor::contiguous(f32.data(), DType::kF32, {72, 320}),
                           Tensor::contiguous(bf16.data(), DType::kBf16, {72, 320})}) {
    const Status loaded = load_from(matrix.directory.path(), {{.name = "w.weight", .data = to}});
    ASSERT_TRUE(loaded) << loaded.error().message;
  }
  for (int64_t i = 0; i < 72 * 320; ++i) {
    const float expected = matrix.value(i / 320, i % 320);
    ASSERT_EQ(f32[static_cast<size_t>(i)], expected) << i;
    ASSERT_EQ(bf16[static_cast<size_t>(i)].bits, tensor::from_float<Bf16>(expected).bits);
  }
}

// Rows that begin inside a word, and of dequantised matrices columns that begin inside a group.
TEST(AwqLoader, gives_ranks_their_parts_of_all) {
  const AwqMatrix matrix(240, 512, 64);
  matrix.write();
  for (const int axis : {0, 1})
    for (const int size : {2, axis == 0 ? 20 : 8, 16})
      for (int rank = 0; rank < size; ++rank) {
        const int64_t rows = axis == 0 ? 240 / size : 240, columns = axis == 1 ? 512 / size : 512;
        const int64_t first_row = axis == 0 ? rank * rows : 0;
        const int64_t first_column = axis == 1 ? rank * columns : 0;
        const weights::Shard shard{.axis = axis, .rank = rank, .size = size};
        std::vector<float> values(static_cast<size_t>(rows * columns));
        const Tensor plain = Tensor::contiguous(values.data(), DType::kF32, {rows, columns});
        std::vector<Parameter> wanted = {{.name = "w.weight", .data = plain, .shard = shard}};
        std::optional<AwqPart> part;
        if (columns % 64 == 0) {
          part.emplace(rows, columns, 64);
          wanted.push_back(
              {.name = "w.weight", .data = part->data, .scale = part->scale, .shard = shard});
        }
        for (const Parameter& parameter : wanted) {
          const Status loaded = load_from(matrix.directory.path(), {parameter});
          ASSERT_TRUE(loaded) << loaded.error().message;
        }
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c) {
            const float expected = matrix.value(first_row + r, first_column + c);
            ASSERT_EQ(values[static_cast<size_t>(r * columns + c)], expected)
                << axis << " " << rank << " of " << size << ": " << r << ", " << c;
            if (part) {
              ASSERT_EQ(part->value(r, c), expected);
            }
          }
      }
}

TEST(AwqLoader, names_what_does_not_fit) {
  const AwqMatrix matrix(16, 128, 64);
  const std::vector<FileTensor> whole = matrix.tensors();
  const FileTensor &weight = whole[0], &zeros = whole[1], &scales = whole[2];
  struct Case {
    std::vector<FileTensor> tensors;
    const char* problem;
  };
  for (const Case& bad : std::vector<Case>{
           {{zeros, scales}, "missing: tensor \"w.qweight\""},
           {{weight, scales}, "missing scale: tensor \"w.qzeros\" for \"w.qweight\", which is i32"},
           {{weight, zeros}, "missing scale: tensor \"w.scales\" for \"w.qweight\""},
           {{{"w.qweight", "I32", {2, 128}, std::string(1024, '\1')}, zeros, scales},
            "wrong shape: tensor \"w.qweight\" is i32[2, 128], must be i32[128, 2]"},
           {{weight, {"w.qzeros", "I32", {4, 2}, std::string(32, '\1')}, scales},
            "wrong shape: tensor \"w.qzeros\" is i32[4, 2], must be i32[2, 2]"},
           {{weight, zeros, {"w.scales", "BF16", {2, 16}, std::string(64, '\1')}},
            "wrong shape: tensor \"w.scales\" is bf16[2, 16], must be f16[2, 16]"},
           {{weight, zeros, {"w.scales", "F16", {2, 16}, std::string(64, '\0')}},
            "holds 0.000000 at [0, 0], scales must be finite and > 0"},
           {{weight, zeros, scales, {"w.bias", "F16", {16}, std::string(32, '\1')}},
            "unexpected: tensor \"w.bias\""},
           {{{"w.weight", "F16", {16, 128}, std::string(4096, '\1')}},
            "config.json has an AWQ quantization_config, but tensor \"w.weight\" is f16[16, "
            "128]"}}) {
    write_file(matrix.directory / "model.safetensors", safetensors_file(bad.tensors));
    const AwqPart part(16, 128, 64);
    const Status loaded = load_from(matrix.directory.path(),
                                    {{.name = "w.weight", .data = part.data, .scale = part.scale}});
    ASSERT_FALSE(loaded) << bad.problem;
    EXPECT_THAT(loaded.error().message, HasSubstr(bad.problem));
  }
  matrix.write();
  std::vector<uint8_t> f8(16 * 128);
  std::vector<float> f8_scale(1);
  const Status loaded =
      load_from(matrix.directory.path(),
                {{.name = "w.weight",
                  .data = Tensor::contiguous(f8.data(), DType::kF8E4M3, {16, 128}),
                  .scale = Tensor::contiguous(f8_scale.data(), DType::kF32, {1, 1})}});
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message,
              HasSubstr("tensor \"w.qweight\" is AWQ's i32[128, 2], the model needs f8_e4m3"));
}

TEST(AwqDummy, has_the_spread_that_was_asked_for) {
  const AwqPart part(1024, 1024, 64);
  ASSERT_TRUE(fill_dummy({{.name = "w.weight", .data = part.data, .scale = part.scale}}, {}));
  double squares = 0;
  for (int64_t o = 0; o < 1024; ++o)
    for (int64_t k = 0; k < 1024; ++k) {
      const auto value = static_cast<double>(part.value(o, k));
      squares += value * value;
    }
  EXPECT_NEAR(std::sqrt(squares / (1024.0 * 1024.0)), 0.02, 0.0004);
}

}  // namespace
}  // namespace fathom::weights
