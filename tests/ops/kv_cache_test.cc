// kv_append, kv_gather, step_inputs, commit_tokens: everything that addresses cache rows by block.

#include <algorithm>
#include <cmath>

#include "ops/kv_cache.h"
#include "ops/step.h"
#include "tests/ops/device.h"
#include "tests/ops/kv_rows.h"
#include "tests/ref/oracle.h"

namespace fathom::ops_test {
namespace {

constexpr int64_t kBlocks = 7, kPoolBlockTokens = 16;
constexpr Bounds kStored{};

// What is stored is rounded once more: bf16 by one part in 256, e4m3 by one in 16 or, below the smallest
// normal value, by half a step of 2^-9 times the scale (kv_rows below are near 10 at most, so 2^-5).
Bounds cache_bounds(DType cache) {
  const Bound bf16{.abs = 1e-3, .rel = 8e-3, .one_minus_cosine = 1e-5};
  const Bound f8{.abs = 1e-3, .rel = 0.066, .one_minus_cosine = 1e-3};
  if (cache == DType::kF8E4M3) return {.f32 = f8, .bf16 = f8};
  return {.f32 = cache == DType::kF32 ? Bound{.abs = 1e-6, .rel = 2e-6, .one_minus_cosine = 1e-11}
                                      : bf16,
          .bf16 = bf16};
}

class KvRowsTest : public OpsTest {
 protected:
  struct Step {
    HostTensor kv_a, weight, table;
    HostTensor kv_rows;
  };
  static constexpr int64_t kRope = 64;

  // Every fifth token is padding; the others go to any row.
  Step make_step(int64_t rank, int64_t tokens, uint64_t seed) const {
    ref::Random random(seed);
    Step step{.kv_a = random.normal(act(), {tokens, rank + kRope}, 2.0),
              .weight = random.normal(act(), {rank}),
              .table = random.uniform(DType::kF32, {tokens, kRope}, -1, 1),
              .kv_rows = HostTensor(DType::kI64, {tokens})};
    const std::vector<int32_t> order = random.permutation(kBlocks * kPoolBlockTokens);
    for (int64_t t = 0; t < tokens; ++t)
      step.kv_rows.at(t) = t % 5 == 4 ? -1 : order[static_cast<size_t>(t)];
    return step;
  }

  // The bytes of a cache that was `before` and got the rows of the step.
  std::vector<uint8_t> append(const Step& step, const ops::KvFormat& format,
                              const std::vector<uint8_t>& before) {
    const DeviceTensor kv_a = upload(step.kv_a), weight = upload(step.weight);
    const DeviceTensor table = upload(step.table), kv_rows = upload(step.kv_rows);
    const DeviceTensor cache = upload({kBlocks, kPoolBlockTokens, format.row_bytes}, before);
    ops::kv_append({.kv_a = kv_a.view(),
                    .weight = weight.view(),
                    .eps = 1e-6f,
                    .table = table.view(),
                    .kv_rows = kv_rows.view(),
                    .cache = {.rows = cache.view(), .format = format}},
                   stream());
    return bytes(cache.view());
  }
  static std::vector<uint8_t> zeros(const ops::KvFormat& format) {
    return std::vector<uint8_t>(static_cast<size_t>(kBlocks * kPoolBlockTokens * format.row_bytes));
  }
};
INSTANTIATE_TEST_SUITE_P(backends, KvRowsTest, testing::ValuesIn(tested_backends()), backend_name);

TEST_P(KvRowsTest, kv_append_writes_normalised_and_rotated_rows_to_their_slots_only) {
  for (const DType dtype : kCacheTypes) {
    if (!backend().supports("kv_append", dtype)) continue;
    for (const int64_t rank : {512, 69, 200, 600}) {
      for (const int64_t tokens : {0, 1, 61, 64, 65}) {
        SCOPED_TRACE(testing::Message()
                     << tensor::dtype_name(dtype) << " rank " << rank << " tokens " << tokens);
        const ops::KvFormat format = ops::KvFormat::of(dtype, rank, kRope);
        const Step step = make_step(rank, tokens, static_cast<uint64_t>(rank + tokens));
        const HostTensor rows = ref::kv_rows(step.kv_a, step.weight, 1e-6, step.table);
        HostTensor expected(DType::kF32, {kBlocks * kPoolBlockTokens, format.dim()}, 7);
        const std::vector<uint8_t> before = encode_rows(expected, format);
        for (int64_t t = 0; t < tokens; ++t)
          for (int64_t i = 0; i < format.dim() && step.kv_rows.at(t) >= 0; ++i)
            expected.at(static_cast<int64_t>(step.kv_rows.at(t)), i) = rows.at(t, i);
        const std::vector<uint8_t> after = append(step, format, before);
        expect_close(decode_rows(after, format), expected, cache_bounds(dtype));
      }
    }
  }
}

// The rule of the format to the bit: what a float32 cache got, quantised on the host.
TEST_P(KvRowsTest, kv_append_quantises_by_the_smallest_power_of_two_that_fits) {
  for (const int64_t rank : {512, 69, 200, 600}) {
    const ops::KvFormat exact = ops::KvFormat::of(DType::kF32, rank, kRope);
    const ops::KvFormat format = ops::KvFormat::of(DType::kF8E4M3, rank, kRope);
    Step step = make_step(rank, 61, static_cast<uint64_t>(rank));
    // Groups of other magnitudes, one of zeros, one whose largest value is 448 times a power of two.
    for (int64_t i = 0; i < rank; ++i) step.weight.at(i) *= i < 64 ? 1 : i < 128 ? 1e-4 : 3e4;
    for (int64_t i = 384; i < rank; ++i) step.weight.at(i) = 0;
    for (double& value : step.weight.values) value = ref::round_to(act(), value);
    const HostTensor values = decode_rows(append(step, exact, zeros(exact)), exact);
    EXPECT_EQ(append(step, format, encode_rows(HostTensor(DType::kF32, values.shape), format)),
              encode_rows(values, format))
        << "rank " << rank;
  }
}

TEST_P(KvRowsTest, garbage_in_padding_rows_writes_nothing) {
  for (const DType dtype : kCacheTypes) {
    if (!backend().supports("kv_append", dtype)) continue;
    const ops::KvFormat format = ops::KvFormat::of(dtype, 200, kRope);
    Step step = make_step(200, 61, 10);
    const std::vector<uint8_t> clean = append(step, format, zeros(format));
    for (const double garbage : kGarbage) {
      for (int64_t t = 4; t < 61; t += 5) {
        ASSERT_EQ(step.kv_rows.at(t), -1);
        for (int64_t i = 0; i < 200 + kRope; ++i)
          step.kv_a.at(t, i) = ref::round_to(act(), garbage);
        for (int64_t i = 0; i < kRope; ++i) step.table.at(t, i) = garbage;
      }
      EXPECT_TRUE(append(step, format, zeros(format)) == clean)
          << tensor::dtype_name(dtype) << " " << garbage;
    }
  }
}

TEST_P(KvRowsTest, a_non_finite_row_stays_non_finite_in_every_format) {
  for (const DType dtype : kCacheTypes) {
    const ops::KvFormat format = ops::KvFormat::of(dtype, 200, kRope);
    for (const double bad : {std::nan(""), static_cast<double>(HUGE_VALF)}) {
      Step step = make_step(200, 3, 9);
      step.kv_a.at(1, 150) = bad;
      const HostTensor rows = decode_rows(append(step, format, zeros(format)), format);
      int64_t non_finite = 0, elsewhere = 0;
      for (int64_t row = 0; row < rows.dim(0); ++row)
        for (int64_t i = 0; i < 200; ++i) {
          if (std::isfinite(rows.at(row, i))) continue;
          ++(static_cast<double>(row) == step.kv_rows.at(1) ? non_finite : elsewhere);
        }
      EXPECT_GE(non_finite, 1) << tensor::dtype_name(dtype) << " " << bad;
      EXPECT_EQ(elsewhere, 0) << tensor::dtype_name(dtype) << " " << bad;
    }
  }
}

TEST_P(KvRowsTest, kv_gather_follows_the_block_table_across_block_boundaries) {
  for (const DType dtype : kCacheTypes) {
    if (!backend().supports("kv_gather", dtype)) continue;
    const ops::KvFormat format = ops::KvFormat::of(dtype, 139, 6);
    ref::Random random(31);
    std::vector<uint8_t> encoded =
        encode_rows(random.normal(DType::kF32, {kBlocks * kPoolBlockTokens, 145}), format);
    if (dtype == DType::kF8E4M3)
      encoded[static_cast<size_t>(5 * kPoolBlockTokens * format.row_bytes)] = 0x7f;
    const HostTensor cache = decode_rows(encoded, format);
    const std::vector<int32_t> block_table = {5, 0, 3, 6};
    const DeviceTensor device_cache =
        upload({kBlocks, kPoolBlockTokens, format.row_bytes}, encoded);
    // The second of two sequences; the first has none of these blocks.
    const DeviceTensor device_table = upload<int32_t>({2, 4}, {1, 1, 1, 1, 5, 0, 3, 6});
    const std::vector<std::pair<int64_t, int64_t>> ranges = {{0, 0},   {0, 64},  {15, 17},
                                                             {16, 32}, {31, 64}, {63, 64}};
    for (const std::pair<int64_t, int64_t>& range : ranges) {
      const int64_t rows = range.second - range.first;
      const DeviceTensor latent = empty(act(), {rows, 139}), k_rope = empty(act(), {rows, 6});
      const ops::ExpandedSegment segment{
          .sequence_idx = 1, .row_begin = range.first, .num_rows = rows};
      ops::kv_gather({.cache = {.rows = device_cache.view(), .format = format},
                      .block_tables = device_table.view(),
                      .segments = {&segment, 1},
                      .latent = latent.view(),
                      .k_rope = k_rope.view()},
                     stream());
      HostTensor expected(act(), {rows, 145});
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = range.first + i;
        const int64_t block = block_table[static_cast<size_t>(row / kPoolBlockTokens)];
        for (int64_t k = 0; k < 145; ++k)
          expected.at(i, k) =
              ref::round_to(act(), cache.at(block * kPoolBlockTokens + row % kPoolBlockTokens, k));
      }
      expect_close(download(latent.view()), expected.columns(0, 139), kStored);
      expect_close(download(k_rope.view()), expected.columns(139, 145), kStored);
    }
  }
}

TEST_P(KvRowsTest, kv_gather_puts_the_rows_of_several_sequences_side_by_side) {
  const ops::KvFormat format = ops::KvFormat::of(DType::kF8E4M3, 139, 6);
  ref::Random random(32);
  const std::vector<uint8_t> encoded =
      encode_rows(random.normal(DType::kF32, {kBlocks * kPoolBlockTokens, 145}), format);
  const HostTensor cache = decode_rows(encoded, format);
  const std::vector<int32_t> tables = {5, 0, 3, 6, 2, 1, 4, 4};
  const DeviceTensor device_cache = upload({kBlocks, kPoolBlockTokens, format.row_bytes}, encoded);
  const DeviceTensor device_tables = upload({2, 4}, tables);
  const std::vector<ops::ExpandedSegment> segments = {
      {.sequence_idx = 1, .row_begin = 30, .num_rows = 5},
      {.sequence_idx = 0, .row_begin = 0, .num_rows = 0, .buffer_begin = 5},
      {.sequence_idx = 0, .row_begin = 60, .num_rows = 4, .buffer_begin = 5},
      {.sequence_idx = 1, .row_begin = 0, .num_rows = 17, .buffer_begin = 9}};
  // Both parts of a row beside each other, as in a cache.
  const DeviceTensor rows = empty(act(), {26, 145});
  ops::kv_gather({.cache = {.rows = device_cache.view(), .format = format},
                  .block_tables = device_tables.view(),
                  .segments = segments,
                  .latent = rows.view().slice(1, 0, 139),
                  .k_rope = rows.view().slice(1, 139, 145)},
                 stream());
  HostTensor expected(act(), {26, 145});
  for (const ops::ExpandedSegment& s : segments)
    for (int64_t i = 0; i < s.num_rows; ++i) {
      const int64_t row = s.row_begin + i;
      const int64_t block =
          tables[static_cast<size_t>(s.sequence_idx * 4 + row / kPoolBlockTokens)];
      for (int64_t k = 0; k < 145; ++k)
        expected.at(s.buffer_begin + i, k) =
            ref::round_to(act(), cache.at(block * kPoolBlockTokens + row % kPoolBlockTokens, k));
    }
  expect_close(download(rows.view()), expected, kStored);
}

// Five slots of which three take part, in another order.
struct StepCase {
  std::vector<int32_t> last_token = {100, 101, 102, 103, 104};
  std::vector<int32_t> length = {0, 63, 64, 5, 129};
  std::vector<int32_t> block_tables = {9, 8, 7, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15};
  std::vector<int32_t> slice_slot = {4, 0, 1};
  std::vector<int32_t> query_start = {0, 1, 4, 6};
  std::vector<int32_t> given_token = {-1, 20, 21, 22, -1, 30};
  std::vector<int32_t> relative = {0, 0, 1, 1, 0, 1};  // slice 1 is a tree: two tokens at depth 1
};

class StepInputsTest : public OpsTest {
 protected:
  struct Outputs {
    std::vector<int32_t> token_ids, positions, kv_len, tables;
    std::vector<int64_t> kv_rows;
  };
  Outputs run(const StepCase& c) {
    const DeviceTensor last_token = upload({5}, c.last_token), length = upload({5}, c.length);
    const DeviceTensor block_tables = upload({5, 3}, c.block_tables);
    const DeviceTensor slice_slot = upload({3}, c.slice_slot), start = upload({4}, c.query_start);
    const DeviceTensor given = upload({6}, c.given_token), relative = upload({6}, c.relative);
    const DeviceTensor ids = empty(DType::kI32, {6}), positions = empty(DType::kI32, {6});
    const DeviceTensor kv_rows = empty(DType::kI64, {6}), kv_len = empty(DType::kI32, {3});
    const DeviceTensor tables = empty(DType::kI32, {3, 3});
    ops::step_inputs({.last_token = last_token.view(),
                      .length = length.view(),
                      .block_tables = block_tables.view(),
                      .slice_slot = slice_slot.view(),
                      .query_start = start.view(),
                      .given_token = given.view(),
                      .relative = relative.view(),
                      .block_tokens = 64,
                      .token_ids = ids.view(),
                      .positions = positions.view(),
                      .kv_rows = kv_rows.view(),
                      .kv_len = kv_len.view(),
                      .tables = tables.view()},
                     stream());
    return {.token_ids = download_as<int32_t>(ids.view()),
            .positions = download_as<int32_t>(positions.view()),
            .kv_len = download_as<int32_t>(kv_len.view()),
            .tables = download_as<int32_t>(tables.view()),
            .kv_rows = download_as<int64_t>(kv_rows.view())};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, StepInputsTest, testing::ValuesIn(tested_backends()),
                         backend_name);

TEST_P(StepInputsTest, step_inputs_continue_each_slot_where_it_stands) {
  const Outputs out = run(StepCase());
  EXPECT_EQ(out.token_ids, (std::vector<int32_t>{104, 20, 21, 22, 101, 30}));
  EXPECT_EQ(out.positions, (std::vector<int32_t>{129, 0, 1, 1, 63, 64}));
  EXPECT_EQ(out.kv_rows, (std::vector<int64_t>{15 * 64 + 1, 9 * 64, 9 * 64 + 1, 9 * 64 + 2,
                                               1 * 64 + 63, 2 * 64}));
  EXPECT_EQ(out.kv_len, (std::vector<int32_t>{130, 3, 65}));
  EXPECT_EQ(out.tables, (std::vector<int32_t>{13, 14, 15, 9, 8, 7, 1, 2, 3}));
}

TEST_P(StepInputsTest, step_inputs_of_a_padding_slice_are_inert_between_others) {
  StepCase c;
  c.slice_slot[1] = -1;
  const Outputs out = run(c);
  EXPECT_EQ(out.token_ids, (std::vector<int32_t>{104, 0, 0, 0, 101, 30}));
  EXPECT_EQ(out.positions, (std::vector<int32_t>{129, 0, 0, 0, 63, 64}));
  EXPECT_EQ(out.kv_rows, (std::vector<int64_t>{15 * 64 + 1, -1, -1, -1, 1 * 64 + 63, 2 * 64}));
  EXPECT_EQ(out.kv_len, (std::vector<int32_t>{130, 0, 65}));
  EXPECT_EQ(out.tables, (std::vector<int32_t>{13, 14, 15, 0, 0, 0, 1, 2, 3}));
}

class CommitTokensTest : public OpsTest {
 protected:
  struct Sampled {
    std::vector<int32_t> tokens, commit_row, penalty_row;
    std::vector<int32_t> counts = {};  // [.., 3]; empty = null
  };
  struct State {
    std::vector<int32_t> last_token, length, counts;
  };
  State run(const StepCase& c, const Sampled& sampled) {
    const DeviceTensor last_token = upload({5}, c.last_token), length = upload({5}, c.length);
    const DeviceTensor slice_slot = upload({3}, c.slice_slot), start = upload({4}, c.query_start);
    const DeviceTensor tokens =
        upload({static_cast<int64_t>(sampled.tokens.size())}, sampled.tokens);
    const DeviceTensor commit_row = upload({3}, sampled.commit_row);
    const DeviceTensor penalty_row = upload({3}, sampled.penalty_row);
    const DeviceTensor counts =
        upload({static_cast<int64_t>(sampled.counts.size()) / 3, 3}, sampled.counts);
    ops::commit_tokens({.last_token = last_token.view(),
                        .length = length.view(),
                        .slice_slot = slice_slot.view(),
                        .query_start = start.view(),
                        .sampled = tokens.view(),
                        .commit_row = commit_row.view(),
                        .penalty_row = penalty_row.view(),
                        .counts = sampled.counts.empty() ? Tensor() : counts.view()},
                       stream());
    return {.last_token = download_as<int32_t>(last_token.view()),
            .length = download_as<int32_t>(length.view()),
            .counts = download_as<int32_t>(counts.view())};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, CommitTokensTest, testing::ValuesIn(tested_backends()),
                         backend_name);

TEST_P(CommitTokensTest, commit_tokens_advances_slots_and_counts_and_skips_failed_rows) {
  constexpr int32_t kInPrompt = INT32_MIN;
  const State state = run({}, {.tokens = {2, 1, -1},
                               .commit_row = {1, 0, 2},
                               .penalty_row = {0, -1, 1},
                               .counts = {0, kInPrompt + 4, 2, 5, 6, 7}});
  EXPECT_EQ(state.length, (std::vector<int32_t>{3, 65, 64, 5, 130}));
  EXPECT_EQ(state.last_token, (std::vector<int32_t>{2, 101, 102, 103, 1}));
  EXPECT_EQ(state.counts, (std::vector<int32_t>{0, kInPrompt + 5, 2, 5, 6, 7}));
}

TEST_P(CommitTokensTest, commit_tokens_without_anything_sampled_only_advances) {
  const State state =
      run({}, {.tokens = {}, .commit_row = {-1, -1, -1}, .penalty_row = {-1, -1, -1}});
  EXPECT_EQ(state.length, (std::vector<int32_t>{3, 65, 64, 5, 130}));
  EXPECT_EQ(state.last_token, StepCase().last_token);
}

TEST_P(CommitTokensTest, commit_tokens_changes_nothing_for_a_padding_slice) {
  StepCase c;
  c.slice_slot[1] = -1;
  const State state = run(c, {.tokens = {2, 1, 0},
                              .commit_row = {1, 0, 2},
                              .penalty_row = {-1, 0, -1},
                              .counts = {5, 6, 7}});
  EXPECT_EQ(state.length, (std::vector<int32_t>{0, 65, 64, 5, 130}));
  EXPECT_EQ(state.last_token, (std::vector<int32_t>{100, 0, 102, 103, 1}));
  EXPECT_EQ(state.counts, (std::vector<int32_t>{5, 6, 7}));
}

}  // namespace
}  // namespace fathom::ops_test
