// Loading small checkpoints written here: every pair of dtypes, strides, partial FP8 blocks, problems
// listed together, files that fail or change on the way, any number of threads.

#include "weights/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/failpoint.h"
#include "tests/weights/scratch_files.h"

namespace fathom::weights {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::F16;
using tensor::F8E4M3;
using tensor::Tensor;
using testing::HasSubstr;
using testing::Not;

std::string one_file(const ScratchDirectory& directory, const std::vector<FileTensor>& tensors) {
  write_file(directory / "model.safetensors", safetensors_file(tensors));
  return directory.path();
}

Status load(const std::string& directory, const std::vector<Parameter>& parameters,
            const LoadOptions& options = {}) {
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory);
  return checkpoint ? load_parameters(*checkpoint, parameters, options) : checkpoint.error();
}

template <class T>
std::string encoded(const std::vector<float>& values) {
  std::vector<T> out;
  for (const float v : values) out.push_back(tensor::from_float<T>(v));
  return bytes_of(out);
}

TEST(Loader, converts_every_dtype_to_f32_and_bf16) {
  std::vector<float> values = random_floats(5 * 7, 1);
  values[3] = 0.0f, values[4] = -0.0f, values[5] = 1e-40f, values[6] = 3e38f, values[7] = 1e-7f;
  ScratchDirectory directory;
  one_file(directory, {{"a", "F32", {5, 7}, encoded<float>(values)},
                       {"b", "BF16", {5, 7}, encoded<Bf16>(values)},
                       {"c", "F16", {5, 7}, encoded<F16>(values)}});
  std::vector<float> as_f32[3];
  std::vector<Bf16> as_bf16[3];
  std::vector<Parameter> to_f32, to_bf16;
  for (int i = 0; i < 3; ++i) {
    as_f32[i].resize(35), as_bf16[i].resize(35);
    const std::string name(1, static_cast<char>('a' + i));
    to_f32.push_back(
        {.name = name, .data = Tensor::contiguous(as_f32[i].data(), DType::kF32, {5, 7})});
    to_bf16.push_back(
        {.name = name, .data = Tensor::contiguous(as_bf16[i].data(), DType::kBf16, {5, 7})});
  }
  ASSERT_TRUE(load(directory.path(), to_f32));
  ASSERT_TRUE(load(directory.path(), to_bf16));
  for (size_t i = 0; i < 35; ++i) {
    const float stored[3] = {values[i], tensor::to_float(tensor::from_float<Bf16>(values[i])),
                             tensor::to_float(tensor::from_float<F16>(values[i]))};
    for (int from = 0; from < 3; ++from) {
      EXPECT_EQ(std::bit_cast<uint32_t>(as_f32[from][i]), std::bit_cast<uint32_t>(stored[from]));
      EXPECT_EQ(as_bf16[from][i].bits, tensor::from_float<Bf16>(stored[from]).bits);
    }
  }
}

// An f8 matrix with scales, in a checkpoint of its own.
struct Fp8Matrix {
  Fp8Matrix(int64_t n, int64_t k, uint32_t seed)
      : rows(n), columns(k), bits(random_f8(n * k, seed)) {
    scales = random_floats(scale_rows() * scale_columns(), seed + 1);
    for (float& s : scales) s = 0.001f + s * s;
    one_file(directory,
             {{"w.weight", "F8_E4M3", {n, k}, bytes_of(bits)},
              {"w.weight_scale_inv", "F32", {scale_rows(), scale_columns()}, bytes_of(scales)}});
  }
  int64_t scale_rows() const { return (rows + 127) / 128; }
  int64_t scale_columns() const { return (columns + 127) / 128; }
  float value(int64_t row, int64_t column) const {
    const F8E4M3 q{bits[static_cast<size_t>(row * columns + column)]};
    const auto block = static_cast<size_t>(row / 128 * scale_columns() + column / 128);
    return tensor::to_float(q) * scales[block];
  }
  ScratchDirectory directory;
  int64_t rows, columns;
  std::vector<uint8_t> bits;
  std::vector<float> scales;
};

TEST(Loader, dequantises_exactly_with_partial_blocks) {
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {128, 128}, {576, 192}, {129, 127}, {61, 300}}) {
    const Fp8Matrix matrix(rows, columns, 7);
    std::vector<float> f32(static_cast<size_t>(rows * columns));
    std::vector<Bf16> bf16(f32.size());
    ASSERT_TRUE(load(matrix.directory.path(),
                     {{.name = "w.weight",
                       .data = Tensor::contiguous(f32.data(), DType::kF32, {rows, columns})}}));
    ASSERT_TRUE(load(matrix.directory.path(),
                     {{.name = "w.weight",
                       .data = Tensor::contiguous(bf16.data(), DType::kBf16, {rows, columns})}}));
    for (int64_t row = 0, i = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column, ++i) {
        const float expected = matrix.value(row, column);
        ASSERT_EQ(f32[static_cast<size_t>(i)], expected) << row << ", " << column;
        ASSERT_EQ(bf16[static_cast<size_t>(i)].bits, tensor::from_float<Bf16>(expected).bits);
      }
    }
  }
}

TEST(Loader, large_matrices_are_cut_at_scale_blocks) {
  const Fp8Matrix matrix(1500, 4100, 11);  // 6 MB: more than one piece
  std::vector<float> f32(static_cast<size_t>(matrix.rows * matrix.columns));
  ASSERT_TRUE(load(
      matrix.directory.path(),
      {{.name = "w.weight", .data = Tensor::contiguous(f32.data(), DType::kF32, {1500, 4100})}}));
  for (int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
    ASSERT_EQ(f32[static_cast<size_t>(i)], matrix.value(i / 4100, i % 4100)) << i;
  }
}

TEST(Loader, keeps_f8_bytes_and_scales) {
  const Fp8Matrix matrix(576, 192, 3);
  std::vector<uint8_t> bits(576 * 192);
  std::vector<float> scales(5 * 2);
  ASSERT_TRUE(load(matrix.directory.path(),
                   {{.name = "w.weight",
                     .data = Tensor::contiguous(bits.data(), DType::kF8E4M3, {576, 192}),
                     .scale = Tensor::contiguous(scales.data(), DType::kF32, {5, 2})}}));
  EXPECT_EQ(bits, matrix.bits);
  EXPECT_EQ(scales, matrix.scales);
}

// Two parameters side by side in one wider matrix, on host memory or through a copy function.
void load_into_slices(const LoadOptions& options) {
  const Fp8Matrix matrix(200, 150, 5);
  constexpr int64_t kWidth = 400;
  std::vector<float> fused(200 * kWidth, -7.0f);
  std::vector<uint8_t> fused_bits(200 * kWidth, 0xee);
  std::vector<float> fused_scales(2 * 4, -7.0f);
  const Tensor f32 = Tensor::contiguous(fused.data(), DType::kF32, {200, kWidth});
  const Tensor f8 = Tensor::contiguous(fused_bits.data(), DType::kF8E4M3, {200, kWidth});
  const Tensor scale = Tensor::contiguous(fused_scales.data(), DType::kF32, {2, 4});
  ASSERT_TRUE(
      load(matrix.directory.path(),
           {{.name = "w.weight", .data = f32.slice(1, 10, 160)},
            {.name = "w.weight", .data = f32.slice(1, 200, 350)},
            {.name = "w.weight", .data = f8.slice(1, 128, 278), .scale = scale.slice(1, 1, 3)}},
           options));
  for (int64_t row = 0; row < 200; ++row) {
    for (int64_t column = 0; column < kWidth; ++column) {
      const float got = fused[static_cast<size_t>(row * kWidth + column)];
      const bool first = column >= 10 && column < 160, second = column >= 200 && column < 350;
      const float expected = first    ? matrix.value(row, column - 10)
                             : second ? matrix.value(row, column - 200)
                                      : -7.0f;
      ASSERT_EQ(got, expected) << row << ", " << column;
      const uint8_t bits = fused_bits[static_cast<size_t>(row * kWidth + column)];
      const bool inside = column >= 128 && column < 278;
      ASSERT_EQ(bits, inside ? matrix.bits[static_cast<size_t>(row * 150 + column - 128)] : 0xee);
    }
    const auto block = static_cast<size_t>(row / 128);
    EXPECT_EQ(fused_scales[block * 4], -7.0f);
    EXPECT_EQ(fused_scales[block * 4 + 1], matrix.scales[block * 2]);
    EXPECT_EQ(fused_scales[block * 4 + 2], matrix.scales[block * 2 + 1]);
    EXPECT_EQ(fused_scales[block * 4 + 3], -7.0f);
  }
}

TEST(Loader, fills_slices_of_fused_matrices_and_nothing_else) { load_into_slices({}); }

TEST(Loader, sends_everything_through_the_copy_function) {
  std::atomic<int64_t> copied{0};
  LoadOptions options;
  options.copy = [&](void* to, const void* from, int64_t num_bytes) {
    std::memcpy(to, from, static_cast<size_t>(num_bytes));
    copied += num_bytes;
  };
  load_into_slices(options);
  EXPECT_EQ(copied, 2 * 200 * 150 * 4 + 200 * 150 + 4 * 4);
}

TEST(Loader, gives_the_same_bytes_for_any_number_of_threads) {
  const Fp8Matrix matrix(3000, 4096, 13);
  std::vector<float> expected;
  for (const int num_threads : {1, 2, 5, 16}) {
    std::vector<float> f32(3000 * 4096);
    ASSERT_TRUE(load(
        matrix.directory.path(),
        {{.name = "w.weight", .data = Tensor::contiguous(f32.data(), DType::kF32, {3000, 4096})}},
        {.num_threads = num_threads}));
    if (expected.empty()) expected = f32;
    EXPECT_EQ(f32, expected) << num_threads;
  }
}

TEST(Loader, reports_progress_up_to_the_last_byte) {
  const Fp8Matrix matrix(3000, 4096, 17);
  std::vector<float> f32(3000 * 4096);
  std::vector<LoadProgress> reports;
  const LoadOptions options{.num_threads = 3,
                            .on_progress = [&](const LoadProgress& p) { reports.push_back(p); }};
  ASSERT_TRUE(load(
      matrix.directory.path(),
      {{.name = "w.weight", .data = Tensor::contiguous(f32.data(), DType::kF32, {3000, 4096})}},
      options));
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.back().bytes_done, reports.back().bytes_total);
  EXPECT_EQ(reports.back().bytes_total, 3000 * 4096 + 24 * 32 * 4);
  for (size_t i = 1; i < reports.size(); ++i) {
    EXPECT_GE(reports[i].bytes_done, reports[i - 1].bytes_done);
    EXPECT_GE(reports[i].seconds, reports[i - 1].seconds);
  }
}

TEST(Loader, lists_all_problems_together) {
  ScratchDirectory directory;
  const std::string four(4, '\0'), sixteen(16, '\0');
  one_file(directory, {{"shape", "F32", {2, 2}, sixteen},
                       {"rank", "F32", {4}, sixteen},
                       {"dtype", "I32", {4}, sixteen},
                       {"not_f8", "F32", {2, 2}, sixteen},
                       {"bare.weight", "F8_E4M3", {2, 2}, four},
                       {"odd.weight", "F8_E4M3", {2, 2}, four},
                       {"odd.weight_scale_inv", "F32", {2, 2}, sixteen},
                       {"plain.weight", "F32", {2, 2}, sixteen},
                       {"plain.weight_scale_inv", "F32", {1, 1}, four},
                       {"stranger", "F32", {1}, four},
                       {"cut.layer.weight", "F32", {1}, four},
                       {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", {1}, four}});
  std::vector<float> f32(16), scale(4);
  std::vector<uint8_t> f8(16);
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return Tensor::contiguous(f32.data(), DType::kF32, {rows, columns});
  };
  bool found = true;
  const Status loaded =
      load(directory.path(),
           {{.name = "absent", .data = matrix(3, 4)},
            {.name = "maybe", .data = matrix(3, 4), .optional = true, .found = &found},
            {.name = "shape", .data = matrix(2, 3)},
            {.name = "rank", .data = matrix(2, 2)},
            {.name = "dtype", .data = Tensor::contiguous(f32.data(), DType::kF32, {4})},
            {.name = "not_f8",
             .data = Tensor::contiguous(f8.data(), DType::kF8E4M3, {2, 2}),
             .scale = Tensor::contiguous(scale.data(), DType::kF32, {1, 1})},
            {.name = "bare.weight", .data = matrix(2, 2)},
            {.name = "odd.weight", .data = matrix(2, 2)},
            {.name = "plain.weight", .data = matrix(2, 2)}},
           {.ignored_prefixes = {"cut."}});
  ASSERT_FALSE(loaded);
  EXPECT_FALSE(found);
  const std::string& message = loaded.error().message;
  for (const char* part :
       {"does not fit the model, some of whose FP8 matrices are not FP8",
        ": 1 missing, 2 wrong shape, 2 wrong dtype, 1 missing scale, 1 wrong "
        "scale, 1 extra scale, 1 unexpected",
        "missing: tensor \"absent\" [3, 4]",
        "wrong shape: tensor \"shape\" is f32[2, 2], the model needs [2, 3]",
        "wrong shape: tensor \"rank\" is f32[4], the model needs [2, 2]",
        "wrong dtype: tensor \"dtype\" is i32[4], the model needs f32, bf16 or f16",
        "wrong dtype: tensor \"not_f8\" is f32[2, 2], the model needs f8_e4m3",
        "missing scale: tensor \"bare.weight_scale_inv\" for \"bare.weight\"",
        "wrong scale: tensor \"odd.weight_scale_inv\" is f32[2, 2], must be f32[1, 1]",
        "extra scale: tensor \"plain.weight_scale_inv\" for \"plain.weight\"",
        "unexpected: tensor \"stranger\" f32[1]"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
  EXPECT_THAT(message, Not(HasSubstr("cut.layer")));
  EXPECT_THAT(message, Not(HasSubstr("inv_freq")));
}

// config.json still says FP8, the conversion to bf16 has only replaced the weights.
TEST(Loader, says_that_the_fp8_section_of_a_converted_checkpoint_is_left_over) {
  ScratchDirectory directory;
  std::vector<FileTensor> tensors;
  std::vector<Parameter> parameters;
  std::vector<uint8_t> f8(4);
  std::vector<float> scale(1);
  for (int i = 0; i < 300; ++i) {
    const std::string name = "layer." + std::to_string(i) + ".weight";
    tensors.push_back({name, "BF16", {2, 2}, std::string(8, '\0')});
    parameters.push_back({.name = name,
                          .data = Tensor::contiguous(f8.data(), DType::kF8E4M3, {2, 2}),
                          .scale = Tensor::contiguous(scale.data(), DType::kF32, {1, 1})});
  }
  one_file(directory, tensors);
  EXPECT_EQ(load(directory.path(), parameters).error().message,
            directory.path() +
                ": config.json has an FP8 quantization_config, but tensor \"layer.0.weight\" is "
                "bf16[2, 2], as are all of the 300 matrices that it speaks of: remove "
                "quantization_config from config.json");
  // One FP8 matrix among them: the section is true, and both can be computed in bf16.
  tensors[7] = {tensors[7].name, "F8_E4M3", {2, 2}, std::string(4, '\0')};
  tensors.push_back({tensors[7].name + "_scale_inv", "F32", {1, 1}, std::string(4, '\0')});
  one_file(directory, tensors);
  EXPECT_THAT(load(directory.path(), parameters).error().message,
              HasSubstr("some of whose FP8 matrices are not FP8 here (--dequantize reads both): "
                        "299 wrong dtype"));
}

TEST(Loader, shows_twenty_problems_and_counts_the_rest) {
  ScratchDirectory directory;
  one_file(directory, {{"only", "F32", {1}, std::string(4, '\0')}});
  std::vector<float> f32(4);
  std::vector<Parameter> parameters;
  for (int i = 0; i < 500; ++i) {
    parameters.push_back({.name = "absent." + std::to_string(i),
                          .data = Tensor::contiguous(f32.data(), DType::kF32, {4})});
  }
  const Status loaded = load(directory.path(), parameters);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("500 missing, 1 unexpected"));
  EXPECT_THAT(loaded.error().message, HasSubstr("... and 481 more"));
  EXPECT_EQ(std::count(loaded.error().message.begin(), loaded.error().message.end(), '\n'), 21);
}

TEST(Loader, refuses_scales_that_are_not_finite_and_positive) {
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    ScratchDirectory directory;
    std::vector<float> scales(6, 0.5f);
    scales[5] = bad;
    one_file(directory, {{"w.weight", "F8_E4M3", {300, 200}, bytes_of(random_f8(300 * 200, 1))},
                         {"w.weight_scale_inv", "F32", {3, 2}, bytes_of(scales)}});
    std::vector<float> f32(300 * 200), scale(6);
    std::vector<uint8_t> f8(300 * 200);
    const Tensor data = Tensor::contiguous(f32.data(), DType::kF32, {300, 200});
    const Tensor kept = Tensor::contiguous(f8.data(), DType::kF8E4M3, {300, 200});
    const Tensor kept_scale = Tensor::contiguous(scale.data(), DType::kF32, {3, 2});
    for (const Parameter& parameter :
         {Parameter{.name = "w.weight", .data = data},
          Parameter{.name = "w.weight", .data = kept, .scale = kept_scale}}) {
      const Status loaded = load(directory.path(), {parameter});
      ASSERT_FALSE(loaded) << bad;
      EXPECT_THAT(loaded.error().message, HasSubstr("tensor \"w.weight_scale_inv\" holds "));
      EXPECT_THAT(loaded.error().message, HasSubstr("at [2, 1], scales must be finite and > 0"));
    }
  }
}

TEST(Loader, a_file_that_shrank_or_grew_since_opening_is_an_error) {
  for (const int64_t change : {-1, -4000, 1}) {
    const Fp8Matrix matrix(100, 100, 19);
    std::vector<float> f32(100 * 100);
    const Result<Checkpoint> checkpoint = Checkpoint::open(matrix.directory.path());
    ASSERT_TRUE(checkpoint);
    const std::string path = matrix.directory / "model.safetensors";
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
    std::filesystem::resize_file(path, static_cast<uintmax_t>(size + change));
    const Status loaded = load_parameters(
        *checkpoint,
        {{.name = "w.weight", .data = Tensor::contiguous(f32.data(), DType::kF32, {100, 100})}},
        {});
    ASSERT_FALSE(loaded);
    EXPECT_THAT(loaded.error().message, HasSubstr("the file changed"));
  }
}

TEST(Loader, a_file_that_shrinks_while_it_is_read_is_an_error_and_no_signal) {
  ScratchDirectory directory;
  constexpr int64_t kCount = 8 << 20;  // 32 MiB: several pieces
  one_file(directory, {{"w", "F32", {kCount}, std::string(kCount * 4, '\0')}});
  const Result<Checkpoint> checkpoint = Checkpoint::open(directory.path());
  ASSERT_TRUE(checkpoint);
  std::vector<float> f32(kCount);
  LoadOptions options{.num_threads = 1};
  options.copy = [&](void* to, const void* from, int64_t num_bytes) {
    std::memcpy(to, from, static_cast<size_t>(num_bytes));
    std::filesystem::resize_file(directory / "model.safetensors", 1 << 20);
  };
  const Status loaded = load_parameters(
      *checkpoint, {{.name = "w", .data = Tensor::contiguous(f32.data(), DType::kF32, {kCount})}},
      options);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message, HasSubstr("the file shrank while it was read"));
}

TEST(Loader, a_file_that_disappears_is_an_error) {
  const Fp8Matrix matrix(100, 100, 23);
  const Result<Checkpoint> checkpoint = Checkpoint::open(matrix.directory.path());
  ASSERT_TRUE(checkpoint);
  std::filesystem::remove(matrix.directory / "model.safetensors");
  std::vector<float> f32(100 * 100);
  const Status loaded = load_parameters(
      *checkpoint,
      {{.name = "w.weight", .data = Tensor::contiguous(f32.data(), DType::kF32, {100, 100})}}, {});
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
}

TEST(Loader, any_failing_read_fails_the_load) {
  const Fp8Matrix matrix(1500, 4100, 29);
  std::vector<float> f32(1500 * 4100);
  const std::vector<Parameter> parameters = {
      {.name = "w.weight", .data = Tensor::contiguous(f32.data(), DType::kF32, {1500, 4100})}};
  const Result<Checkpoint> checkpoint = Checkpoint::open(matrix.directory.path());
  ASSERT_TRUE(checkpoint);
  int failures = 0;
  for (int nth = 1;; ++nth) {
    arm_failpoint("weights.read", nth);
    const Status loaded = load_parameters(*checkpoint, parameters, {.num_threads = 3});
    disarm_failpoints();
    if (loaded) break;
    EXPECT_THAT(loaded.error().message, HasSubstr("injected failure"));
    ++failures;
  }
  EXPECT_EQ(failures, 4);  // two pieces, each with its scales
}

TEST(Loader, a_malformed_parameter_is_a_programmer_error) {
  const Fp8Matrix matrix(4, 4, 31);
  std::vector<float> f32(64);
  const auto load_one = [&](const Parameter& parameter) {
    static_cast<void>(load(matrix.directory.path(), {parameter}));
  };
  EXPECT_DEATH(load_one({.name = "w.weight"}), "rank must be 1 or 2");
  EXPECT_DEATH(load_one({.name = "w.weight",
                         .data = Tensor::contiguous(f32.data(), DType::kF8E4M3, {4, 4})}),
               "scales go with f8_e4m3, i8, i4x2 and u4x2 only");
  EXPECT_DEATH(load_one({.name = "w.weight",
                         .data = Tensor::contiguous(f32.data(), DType::kF8E4M3, {4, 4}),
                         .scale = Tensor::contiguous(f32.data(), DType::kF32, {2, 1})}),
               "with scales");
}

}  // namespace
}  // namespace fathom::weights
