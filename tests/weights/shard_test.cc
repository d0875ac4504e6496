// The parts of tensors that ranks hold: the rule, and every rank's part read from a checkpoint and put together again.

#include "weights/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "base/startup_error.h"
#include "tensor/scale_block.h"
#include "tests/weights/scratch_files.h"
#include "weights/loader.h"

namespace fathom::weights {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::Tensor;
using testing::HasSubstr;

std::string refusal(const Shard& shard, const std::string& name, int64_t whole) {
  try {
    shard_length(shard, name, whole);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

TEST(Shard, is_the_whole_of_one_rank) {
  EXPECT_EQ(shard_length({}, "x", 7), 7);
  EXPECT_EQ(shard_length({.granule = 128}, "x", 576), 576);  // whatever it is made of
}

TEST(Shard, divides_into_equal_parts_of_whole_granules) {
  for (const int size : {2, 4, 8}) {
    EXPECT_EQ(shard_length({.size = size}, "heads", 128), 128 / size);
    EXPECT_EQ(shard_length({.size = size}, "experts", 256), 256 / size);
    EXPECT_EQ(shard_length({.size = size, .granule = 128}, "moe width", 2048), 2048 / size);
    EXPECT_EQ(shard_length({.size = size, .granule = 128}, "dense width", 18432), 18432 / size);
    EXPECT_EQ(shard_length({.size = size}, "vocabulary", 129280), 129280 / size);
    // 192 rows of a head, and blocks of 128.
    EXPECT_EQ(shard_length({.size = size, .granule = 384}, "q_b_proj", 24576), 24576 / size);
  }
}

TEST(Shard, refuses_what_does_not_divide_and_names_it) {
  EXPECT_EQ(refusal({.axis = 1, .size = 3}, "lm_head.weight", 129280),
            "lm_head.weight: dimension 1 is 129280, which does not divide among 3 ranks in "
            "multiples of 1");
  EXPECT_THAT(refusal({.size = 32, .granule = 128}, "gate_proj", 2048),
              HasSubstr("dimension 0 is 2048, which does not divide among 32 ranks in multiples of "
                        "128"));
  // Equal parts, but not of whole heads.
  EXPECT_THAT(refusal({.size = 8, .granule = 192}, "q_proj", 4 * 192), HasSubstr("q_proj"));
  EXPECT_THAT(refusal({.size = 2}, "x", 1), HasSubstr("does not divide among 2 ranks"));
}

TEST(Shard, of_weights_with_scales_holds_whole_blocks_or_equal_fractions_of_one) {
  EXPECT_EQ(scaled_shard_length({.size = 4}, "x", 1024), 256);
  EXPECT_EQ(scaled_shard_length({.size = 4}, "x", 128), 32);
  EXPECT_EQ(scaled_shard_length({.size = 16}, "x", 1024), 64);
  EXPECT_EQ(scaled_shard_length({}, "x", 576), 576);
  for (const int64_t whole : {8 * 192, 8 * 576, 8 * 96}) {
    try {
      scaled_shard_length({.size = 8}, "q_b_proj.weight", whole);
      ADD_FAILURE() << whole;
    } catch (const StartupError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("each of 8 ranks would hold " + std::to_string(whole / 8) +
                            ", but parts with block scales are multiples of 128 or divide it"));
      EXPECT_THAT(error.what(), HasSubstr("--dequantize"));
    }
  }
}

constexpr const char* kName = "w.weight";

// One matrix in a checkpoint: FP8 with scales, or bf16.
struct StoredMatrix {
  StoredMatrix(int64_t n, int64_t k, bool is_f8) : rows(n), columns(k) {
    const int64_t scale_rows = tensor::num_scale_blocks(n);
    const int64_t scale_columns = tensor::num_scale_blocks(k);
    std::vector<float> scales = random_floats(scale_rows * scale_columns, 5);
    for (float& s : scales) s = 0.5f + s * s;
    std::vector<Bf16> values;
    for (const float v : random_floats(n * k, 3)) values.push_back(tensor::from_float<Bf16>(v));
    const FileTensor f8{kName, "F8_E4M3", {n, k}, bytes_of(random_f8(n * k, 3))};
    const FileTensor scale{scale_name(kName), "F32", {scale_rows, scale_columns}, bytes_of(scales)};
    const FileTensor bf16{kName, "BF16", {n, k}, bytes_of(values)};
    write_file(directory / "model.safetensors",
               is_f8 ? safetensors_file({f8, scale}) : safetensors_file({bf16}));
  }
  ScratchDirectory directory;
  int64_t rows, columns;
};

// Memory for a part, full of what no part has.
struct Part {
  Part(DType type, int64_t n, int64_t k)
      : bytes(static_cast<size_t>(n * k * tensor::dtype_bytes(type)), '\xee'),
        scales(static_cast<size_t>(tensor::num_scale_blocks(n) * tensor::num_scale_blocks(k)), -1),
        data(Tensor::contiguous(bytes.data(), type, {n, k})) {
    if (type == DType::kF8E4M3)
      scale = Tensor::contiguous(scales.data(), DType::kF32,
                                 {tensor::num_scale_blocks(n), tensor::num_scale_blocks(k)});
  }
  std::string bytes;
  std::vector<float> scales;
  Tensor data, scale;
};

void load(const StoredMatrix& matrix, const Part& part, const Shard& shard,
          const LoadOptions& options = {}) {
  const Checkpoint checkpoint = value_or_throw(Checkpoint::open(matrix.directory.path()));
  throw_on_error(load_parameters(
      checkpoint, {{.name = kName, .data = part.data, .scale = part.scale, .shard = shard}},
      options));
}

// A part where it belongs in the whole. unit: entries that one of the part's stands for, 128 of a scale's.
void put(const Tensor& part, const Shard& shard, const Tensor& whole, int64_t length,
         int64_t unit = 1) {
  const int64_t begin = shard.rank * length / unit;
  const Tensor to = whole.slice(shard.axis, begin, begin + part.dim(shard.axis));
  const int64_t element = tensor::dtype_bytes(part.dtype());
  for (int64_t row = 0; row < part.dim(0); ++row)
    std::memcpy(static_cast<char*>(to.data()) + row * to.stride(0) * element,
                static_cast<const char*>(part.data()) + row * part.stride(0) * element,
                static_cast<size_t>(part.dim(1) * element));
}

void put(const Part& part, const Shard& shard, const Part& whole) {
  const int64_t length = part.data.dim(shard.axis);
  put(part.data, shard, whole.data, length);
  if (!part.scale.is_null()) put(part.scale, shard, whole.scale, length, tensor::kScaleBlock);
}

struct Case {
  const char* name;
  bool stored_f8;
  DType type;
  int64_t rows, columns;
};

// Sizes that do not divide into blocks where nothing has to be cut between them; the large ones take several reads.
const Case kCases[] = {{"bf16", false, DType::kBf16, 48, 1000},
                       {"bf16_to_f32", false, DType::kF32, 1992, 1496},
                       {"f8", true, DType::kF8E4M3, 1024, 2048},
                       {"f8_inside_blocks", true, DType::kF8E4M3, 256, 512},
                       {"f8_large", true, DType::kF8E4M3, 3072, 3072},
                       {"dequantised_to_f32", true, DType::kF32, 1000, 1640},
                       {"dequantised_to_bf16", true, DType::kBf16, 2000, 3000},
                       {"dequantised_inside_one_block", true, DType::kF32, 48, 96}};

class ShardedLoadTest : public testing::TestWithParam<Case> {};

TEST_P(ShardedLoadTest, parts_of_all_ranks_are_the_whole) {
  const Case& c = GetParam();
  const StoredMatrix matrix(c.rows, c.columns, c.stored_f8);
  const Part whole(c.type, c.rows, c.columns);
  load(matrix, whole, {});
  const auto copy = [](void* to, const void* from, int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  };
  for (const LoadOptions& options : {LoadOptions{}, LoadOptions{.copy = copy}})
    for (const int axis : {0, 1})
      for (const int size : {2, 4, 8}) {
        const Part together(c.type, c.rows, c.columns);
        for (int rank = 0; rank < size; ++rank) {
          const Shard shard{.axis = axis, .rank = rank, .size = size};
          const Part part(c.type, axis == 0 ? c.rows / size : c.rows,
                          axis == 1 ? c.columns / size : c.columns);
          load(matrix, part, shard, options);
          put(part, shard, together);
        }
        EXPECT_TRUE(together.bytes == whole.bytes) << "axis " << axis << ", " << size << " ranks";
        EXPECT_EQ(together.scales, whole.scales) << "axis " << axis << ", " << size << " ranks";
      }
}

// Every byte is read once, however many ranks want it, and each finds what it would have read alone.
TEST_P(ShardedLoadTest, one_reader_fills_all_ranks_and_reads_each_byte_once) {
  const Case& c = GetParam();
  const StoredMatrix matrix(c.rows, c.columns, c.stored_f8);
  const Checkpoint checkpoint = value_or_throw(Checkpoint::open(matrix.directory.path()));
  const Part whole(c.type, c.rows, c.columns);
  int64_t bytes = -1;
  LoadOptions counting;
  counting.on_progress = [&](const LoadProgress& progress) { bytes = progress.bytes_total; };
  load(matrix, whole, {}, counting);
  const int64_t whole_bytes = bytes;
  counting.copy = [](void* to, const void* from, int64_t n) {
    std::memcpy(to, from, static_cast<size_t>(n));
  };
  for (const bool copies : {false, true})
    // Axis 2: every rank has the whole.
    for (const int axis : {0, 1, 2})
      for (const int size : {2, 8}) {
        std::deque<Part> parts;
        std::deque<std::vector<Parameter>> lists;
        ParameterLists ranks;
        const auto shard_of = [&](int rank) {
          return axis == 2 ? Shard() : Shard{.axis = axis, .rank = rank, .size = size};
        };
        for (int rank = 0; rank < size; ++rank) {
          const Part& part = parts.emplace_back(c.type, axis == 0 ? c.rows / size : c.rows,
                                                axis == 1 ? c.columns / size : c.columns);
          ranks.push_back(&lists.emplace_back(std::vector<Parameter>{
              {.name = kName, .data = part.data, .scale = part.scale, .shard = shard_of(rank)}}));
        }
        ranks.push_back(
            &lists.emplace_back(std::vector<Parameter>{{.name = kName, .held_elsewhere = true}}));
        LoadOptions options = counting;
        if (!copies) options.copy = {};
        throw_on_error(load_parameters_of_ranks(checkpoint, ranks, options));
        // Rows of scales that two parts dequantise with are read for both.
        EXPECT_GE(bytes, whole_bytes);
        EXPECT_LE(bytes,
                  c.stored_f8 && c.type != DType::kF8E4M3 ? whole_bytes * 6 / 5 : whole_bytes);
        for (int rank = 0; rank < size; ++rank) {
          const Part& part = parts[static_cast<size_t>(rank)];
          Part alone(c.type, part.data.dim(0), part.data.dim(1));
          load(matrix, alone, shard_of(rank));
          EXPECT_TRUE(part.bytes == alone.bytes) << "axis " << axis << " rank " << rank;
          EXPECT_EQ(part.scales, alone.scales) << "axis " << axis << " rank " << rank;
        }
      }
}

// Of random weights too a rank has its part of what one rank alone would have.
TEST_P(ShardedLoadTest, parts_of_random_weights_are_those_of_the_whole) {
  const Case& c = GetParam();
  const auto fill = [](const Part& part, const Shard& shard) {
    throw_on_error(
        fill_dummy({{.name = kName, .data = part.data, .scale = part.scale, .shard = shard}}, {}));
  };
  const Part whole(c.type, c.rows, c.columns);
  fill(whole, {});
  for (const int axis : {0, 1}) {
    const Part together(c.type, c.rows, c.columns);
    for (int rank = 0; rank < 4; ++rank) {
      const Shard shard{.axis = axis, .rank = rank, .size = 4};
      const Part part(c.type, axis == 0 ? c.rows / 4 : c.rows,
                      axis == 1 ? c.columns / 4 : c.columns);
      fill(part, shard);
      put(part.data, shard, together.data, part.data.dim(axis));
    }
    EXPECT_TRUE(together.bytes == whole.bytes) << "axis " << axis;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ShardedLoadTest, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

TEST(ShardedLoad, reads_a_part_into_a_place_between_others_and_leaves_them_alone) {
  const StoredMatrix matrix(64, 96, false);
  const Part whole(DType::kBf16, 64, 96), wide(DType::kBf16, 64, 200);
  load(matrix, whole, {});
  const Checkpoint checkpoint = value_or_throw(Checkpoint::open(matrix.directory.path()));
  throw_on_error(load_parameters(checkpoint,
                                 {{.name = kName,
                                   .data = wide.data.slice(1, 100, 148),
                                   .shard = {.axis = 1, .rank = 1, .size = 2}}},
                                 {}));
  for (int64_t row = 0; row < 64; ++row)
    for (int64_t column = 0; column < 200; ++column) {
      const uint16_t got = wide.data.row<Bf16>(row)[column].bits;
      const bool inside = column >= 100 && column < 148;
      ASSERT_EQ(got, inside ? whole.data.row<Bf16>(row)[48 + column - 100].bits : 0xeeee);
    }
}

TEST(ShardedLoad, cuts_vectors_too) {
  ScratchDirectory directory;
  const std::vector<float> values = random_floats(12, 1);
  write_file(directory / "model.safetensors",
             safetensors_file({{"bias", "F32", {12}, bytes_of(values)}}));
  std::vector<float> part(3);
  const Checkpoint checkpoint = value_or_throw(Checkpoint::open(directory.path()));
  throw_on_error(load_parameters(checkpoint,
                                 {{.name = "bias",
                                   .data = Tensor::contiguous(part.data(), DType::kF32, {3}),
                                   .shard = {.axis = 0, .rank = 2, .size = 4}}},
                                 {}));
  EXPECT_THAT(part, testing::ElementsAre(values[6], values[7], values[8]));
}

TEST(ShardedLoad, leaves_what_other_ranks_hold_unread_and_expects_it) {
  const StoredMatrix matrix(128, 128, true);
  const Checkpoint checkpoint = value_or_throw(Checkpoint::open(matrix.directory.path()));
  int64_t bytes = -1;
  LoadOptions options;
  options.on_progress = [&](const LoadProgress& progress) { bytes = progress.bytes_total; };
  EXPECT_TRUE(load_parameters(checkpoint, {{.name = kName, .held_elsewhere = true}}, options));
  EXPECT_EQ(bytes, 0);
  EXPECT_TRUE(fill_dummy({{.name = kName, .held_elsewhere = true}}, {}));
  EXPECT_THAT(load_parameters(checkpoint, {}, {}).error().message, HasSubstr("unexpected"));
}

TEST(ShardedLoad, says_what_shape_the_whole_must_have) {
  const StoredMatrix matrix(48, 1000, false);
  const Part part(DType::kBf16, 12, 1000);
  const Checkpoint checkpoint = value_or_throw(Checkpoint::open(matrix.directory.path()));
  const Status loaded = load_parameters(
      checkpoint, {{.name = kName, .data = part.data, .shard = {.rank = 1, .size = 8}}}, {});
  EXPECT_THAT(loaded.error().message, HasSubstr("is bf16[48, 1000], the model needs [96, 1000]"));
}

TEST(ShardedLoadDeathTest, aborts_on_parts_that_straddle_blocks_of_scales) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const StoredMatrix matrix(384, 128, true);
  const Part part(DType::kF8E4M3, 96, 128);
  EXPECT_DEATH(load(matrix, part, {.size = 4}), "w.weight is cut across blocks of scales");
}

}  // namespace
}  // namespace fathom::weights
