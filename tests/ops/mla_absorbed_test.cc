// mla_absorbed.

#include <algorithm>
#include <cmath>

#include "tests/ops/mla_absorbed_cases.h"

namespace fathom::ops_test {
namespace {

using Sequence = QuerySequence;
using Case = AbsorbedCase;
using Inputs = AbsorbedInputs;

Inputs make_inputs(const Case& c, DType act) { return make_absorbed_inputs(c, act); }

class MlaAbsorbedTest : public MlaAbsorbedFixture {};
INSTANTIATE_TEST_SUITE_P(backends, MlaAbsorbedTest, testing::ValuesIn(tested_backends()),
                         backend_name);

TEST_P(MlaAbsorbedTest, matches_float64_around_block_boundaries) {
  for (const DType dtype : kCacheTypes) {
    if (!backend().supports("mla_absorbed", dtype)) continue;
    for (const AttentionDims& dims : kAttentionDims) {
      SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << " rank " << dims.rank);
      expect_matches_oracle({.dims = dims,
                             .sequences = {{1, 1}, {1, 61}, {1, 64}, {1, 65}, {1, 257}},
                             .cache_dtype = dtype});
    }
  }
}

TEST_P(MlaAbsorbedTest, several_query_tokens_see_each_other_causally) {
  expect_matches_oracle(
      {.dims = kAttentionDims[0], .sequences = {{4, 4}, {5, 67}, {1, 200}, {66, 130}}, .seed = 2});
}

TEST_P(MlaAbsorbedTest, a_tree_token_sees_the_prefix_its_ancestors_and_itself) {
  for (const AttentionDims& dims : kAttentionDims) {
    expect_matches_oracle({.dims = dims,
                           .sequences = {{64, 130}, {1, 9}, {7, 7}, {65, 140}, {13, 77}},
                           .with_tree = true,
                           .seed = 3});
  }
}

TEST_P(MlaAbsorbedTest, padding_sequences_give_zeros_and_no_sequence_gives_nothing) {
  expect_matches_oracle(
      {.dims = kAttentionDims[1], .sequences = {{2, 0}, {1, 70}, {3, 0}}, .seed = 4});
  expect_matches_oracle({.dims = kAttentionDims[1], .sequences = {}, .seed = 4});
}

TEST_P(MlaAbsorbedTest, a_sequence_does_not_depend_on_the_others) {
  for (const DType dtype : {DType::kF32, DType::kF8E4M3}) {
    const Case c{.dims = kAttentionDims[0],
                 .sequences = {{1, 513}, {3, 64}, {1, 1}, {1, 130}, {2, 700}},
                 .cache_dtype = dtype,
                 .seed = 5};
    const Inputs in = make_inputs(c, act());
    std::vector<uint8_t> alone;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const std::vector<uint8_t> part = run(c, in, s, s + 1);
      alone.insert(alone.end(), part.begin(), part.end());
    }
    EXPECT_EQ(run(c, in, 0, c.sequences.size()), alone) << tensor::dtype_name(dtype);
  }
}

TEST_P(MlaAbsorbedTest, matches_float64_for_long_sequences_and_many_heads) {
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3}) {
    expect_matches_oracle(
        {.dims = kRankDims, .sequences = {{1, 1024}, {1, 2100}}, .cache_dtype = dtype, .seed = 8});
    expect_matches_oracle({.dims = kRankDims,
                           .sequences = {{4, 1026}, {2, 0}, {3, 70}, {1, 140}},
                           .cache_dtype = dtype,
                           .with_tree = true,
                           .seed = 9});
    expect_matches_oracle(
        {.dims = kManyHeadsDims, .sequences = {{1, 150}}, .cache_dtype = dtype, .seed = 10});
  }
}

TEST_P(MlaAbsorbedTest, a_long_sequence_does_not_depend_on_the_others) {
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3}) {
    Case c{.dims = kRankDims,
           .sequences = {{1, 2050}, {1, 1025}, {4, 1100}},
           .cache_dtype = dtype,
           .seed = 11};
    for (int64_t i = 0; i < 34; ++i) c.sequences.push_back({1, 3 + i});
    const Inputs in = make_inputs(c, act());
    const std::vector<uint8_t> together = run(c, in, 0, c.sequences.size());
    std::vector<uint8_t> alone;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const std::vector<uint8_t> part = run(c, in, s, s + 1);
      alone.insert(alone.end(), part.begin(), part.end());
    }
    EXPECT_EQ(together, alone) << tensor::dtype_name(dtype);
  }
}

// Enough sequences for a backend to deal them out otherwise than few: each has the bits it has among few.
TEST_P(MlaAbsorbedTest, many_sequences_of_all_lengths_get_the_bits_of_few) {
  constexpr AttentionDims kFewHeads{.heads = 4, .rank = 512, .rope = 64, .nope = 128, .v = 128};
  constexpr size_t kFew = 12;
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3}) {
    for (const bool with_tree : {false, true}) {
      // Of 4 heads a group of query rows has up to four tokens.
      Case c{.dims = with_tree ? kFewHeads : kRankDims,
             .sequences = {{1, 2100}, {1, 0}, {1, 1024}, {1, 1025}, {1, 640}},
             .cache_dtype = dtype,
             .with_tree = with_tree,
             .seed = 13};
      for (int64_t i = 0; i < 67; ++i) c.sequences.push_back({1, 1 + 67 * i % 131});
      if (with_tree) {
        c.sequences[0].queries = 7;
        c.sequences[3].queries = 20;
        c.sequences[4].queries = 4;
      }
      const Inputs in = make_inputs(c, act());
      const std::vector<uint8_t> together = run(c, in, 0, c.sequences.size());
      std::vector<uint8_t> few;
      for (size_t s = 0; s < c.sequences.size(); s += kFew) {
        const std::vector<uint8_t> part = run(c, in, s, s + kFew);
        few.insert(few.end(), part.begin(), part.end());
      }
      EXPECT_EQ(together, few) << tensor::dtype_name(dtype) << (with_tree ? ", trees" : "");
    }
  }
}

// Sequences of a padded step that are nobody's: no rows, queries and masks that hold anything.
TEST_P(MlaAbsorbedTest, garbage_in_padding_changes_no_bit_of_the_others) {
  for (const DType dtype : kCacheTypes)
    for (const bool with_tree : {false, true})
      for (const bool with_plan : {false, true}) {
        wants_plan_ = with_plan && backend().mla_plan.run != nullptr;
        // Many heads go another way on a GPU, which makes no plan.
        const Case c{.dims = with_plan ? kRankDims : kManyHeadsDims,
                     .sequences = {{1, 513}, {4, 0}, {4, 70}, {1, 0}, {2, 64}, {4, 0}},
                     .cache_dtype = dtype,
                     .with_tree = with_tree,
                     .seed = 18};
        Inputs in = make_inputs(c, act());
        const std::vector<uint8_t> clean = run(c, in, 0, c.sequences.size());
        for (const double garbage : kGarbage) {
          for (size_t s = 0; s < c.sequences.size(); ++s) {
            if (c.sequences[s].kv_len > 0) continue;
            for (int64_t token = in.query_start[s]; token < in.query_start[s + 1]; ++token) {
              if (with_tree) in.tree_mask[static_cast<size_t>(token)] = ~uint64_t{0};
              for (int64_t head = 0; head < c.dims.heads; ++head) {
                for (int64_t i = 0; i < c.dims.rank; ++i)
                  in.q_latent.at(token, head, i) = ref::round_to(act(), garbage);
                for (int64_t i = 0; i < c.dims.rope; ++i)
                  in.q_rope.at(token, head, i) = ref::round_to(act(), garbage);
              }
            }
          }
          // Among them the zeros of the padding.
          EXPECT_TRUE(run(c, in, 0, c.sequences.size()) == clean)
              << tensor::dtype_name(dtype) << ", trees " << with_tree << ", plan " << wants_plan_
              << ", " << garbage;
        }
      }
}

TEST_P(MlaAbsorbedTest, a_nan_row_reaches_only_the_queries_that_see_it) {
  for (const DType dtype : kCacheTypes) expect_nan_stays(kRankDims, dtype);
}

// A decode behind the tokens that a query token of a sequence with a tree sees: the same rows, one after the other.
Inputs decode_of(const Inputs& tree, const std::vector<int64_t>& seen_rows, int64_t token) {
  Inputs in;
  in.format = tree.format;
  in.q_latent = tree.q_latent.rows(token, token + 1);
  in.q_rope = tree.q_rope.rows(token, token + 1);
  in.query_start = {0, 1};
  in.kv_len = {static_cast<int32_t>(seen_rows.size())};
  in.scale = tree.scale;
  const auto row_bytes = static_cast<size_t>(tree.format.row_bytes);
  const auto num_blocks =
      static_cast<int64_t>((seen_rows.size() + kCacheBlockTokens - 1) / kCacheBlockTokens);
  in.block_tables = HostTensor(DType::kI32, {1, num_blocks});
  for (int64_t block = 0; block < num_blocks; ++block)
    in.block_tables.at(0, block) = static_cast<double>(block);
  in.cache.assign(static_cast<size_t>(num_blocks * kCacheBlockTokens) * row_bytes, 0xff);
  for (size_t i = 0; i < seen_rows.size(); ++i) {
    const int64_t row = seen_rows[i];
    const auto from = static_cast<size_t>(tree.block_tables.at(0, row / kCacheBlockTokens)) *
                          static_cast<size_t>(kCacheBlockTokens) +
                      static_cast<size_t>(row % kCacheBlockTokens);
    std::copy_n(tree.cache.begin() + static_cast<std::ptrdiff_t>(from * row_bytes), row_bytes,
                in.cache.begin() + static_cast<std::ptrdiff_t>(i * row_bytes));
  }
  return in;
}

std::vector<TestedBackend> cpu_backends() {
  std::vector<TestedBackend> backends = tested_backends();
  std::erase_if(backends,
                [](const TestedBackend& tested) { return tested.backend->act != DType::kF32; });
  return backends;
}

// What --deterministic promises of trees (docs/contracts/ops.md, section 4).
class MlaTreeBitsTest : public MlaAbsorbedTest {};
INSTANTIATE_TEST_SUITE_P(backends, MlaTreeBitsTest, testing::ValuesIn(cpu_backends()),
                         backend_name);

TEST_P(MlaTreeBitsTest, a_tree_token_gets_the_bits_of_a_decode_behind_the_tokens_it_sees) {
  for (const DType dtype : kCacheTypes) {
    for (const Sequence sequence : {Sequence{8, 68}, {20, 270}, {64, 64}, {5, 1030}}) {
      const Case c{.dims = kAttentionDims[0],
                   .sequences = {sequence},
                   .cache_dtype = dtype,
                   .with_tree = true,
                   .seed = 17};
      const Inputs in = make_inputs(c, act());
      const std::vector<uint8_t> together = run(c, in, 0, 1);
      const size_t token_bytes = together.size() / static_cast<size_t>(sequence.queries);
      const int64_t prefix = sequence.kv_len - sequence.queries;
      const ref::Sees sees = sees_rule(prefix, in.tree_mask);
      for (int64_t token = 0; token < sequence.queries; ++token) {
        std::vector<int64_t> seen_rows;
        for (int64_t row = 0; row < sequence.kv_len; ++row)
          if (sees(token, row)) seen_rows.push_back(row);
        const Case decode{.dims = c.dims,
                          .sequences = {{1, static_cast<int64_t>(seen_rows.size())}},
                          .cache_dtype = dtype};
        const auto at = together.begin() +
                        static_cast<std::ptrdiff_t>(static_cast<size_t>(token) * token_bytes);
        EXPECT_EQ(std::vector<uint8_t>(at, at + static_cast<std::ptrdiff_t>(token_bytes)),
                  run(decode, decode_of(in, seen_rows, token), 0, 1))
            << tensor::dtype_name(dtype) << ", token " << token << " of " << sequence.queries
            << " behind " << prefix << " rows";
      }
    }
  }
}

class MlaPlanTest : public MlaAbsorbedTest {};
INSTANTIATE_TEST_SUITE_P(backends, MlaPlanTest,
                         testing::ValuesIn(backends_with(&ops::Backend::mla_plan)), backend_name);

TEST_P(MlaPlanTest, a_plan_of_the_step_changes_no_bit) {
  for (const bool with_tree : {false, true}) {
    const Case c{.dims = kAttentionDims[0],
                 .sequences = {{1, 513}, {3, 64}, {2, 0}, {1, 1}, {66, 130}, {7, 700}, {1, 0}},
                 .with_tree = with_tree,
                 .seed = 7};
    const Inputs in = make_inputs(c, act());
    for (const size_t first : {size_t{0}, size_t{5}}) {
      wants_plan_ = false;
      const std::vector<uint8_t> without = run(c, in, first, c.sequences.size());
      wants_plan_ = true;
      EXPECT_EQ(run(c, in, first, c.sequences.size()), without) << "from sequence " << first;
    }
  }
}

TEST_P(MlaAbsorbedTest, large_scores_do_not_overflow) {
  Case c{.dims = kAttentionDims[1], .sequences = {{1, 100}}, .seed = 6};
  Inputs in = make_inputs(c, act());
  in.scale = 64.0f;
  HostTensor actual;
  run(c, in, 0, 1, &actual);
  // The scores themselves are in the hundreds and carry their float32 rounding into exp.
  constexpr Bounds kLoose{.f32 = {.abs = 5e-3, .rel = 5e-3, .one_minus_cosine = 1e-5},
                          .bf16 = {.abs = 0.5, .rel = 0.5, .one_minus_cosine = 0.1}};
  expect_close(actual, expected_output(c, in), kLoose);
}

}  // namespace
}  // namespace fathom::ops_test
