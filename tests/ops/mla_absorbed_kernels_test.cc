// mla_absorbed where the GPU has other kernels and other shares of query rows: many short sequences, verification of
// chains and trees, heads of one rank to those of a whole model.

#include <tuple>

#include "tests/ops/mla_absorbed_cases.h"

namespace fathom::ops_test {
namespace {

class MlaAbsorbedKernelsTest : public MlaAbsorbedFixture {};
INSTANTIATE_TEST_SUITE_P(backends, MlaAbsorbedKernelsTest, testing::ValuesIn(one_of_each_backend()),
                         backend_name);

constexpr DType kHopperCacheTypes[] = {DType::kBf16, DType::kF8E4M3};

// So many that a backend deals them out to all of its multiprocessors.
TEST_P(MlaAbsorbedKernelsTest, sixty_four_short_sequences_match_float64) {
  for (const DType dtype : kHopperCacheTypes) {
    AbsorbedCase c{.dims = kRankDims, .sequences = {}, .cache_dtype = dtype, .seed = 21};
    for (int64_t i = 0; i < 64; ++i) c.sequences.push_back({1, i == 7 ? 0 : 1 + 29 * i % 71});
    expect_matches_oracle(c);
  }
}

// Few heads, so that several tokens are one item: pieces of prompts beside decodes, and drafts of many sequences. Some
// of a piece's queries end in an earlier unit of rows than the sequence.
TEST_P(MlaAbsorbedKernelsTest, several_tokens_of_few_heads_match_float64) {
  for (const DType dtype : kHopperCacheTypes)
    for (const bool with_tree : {false, true}) {
      AbsorbedCase c{.dims = {.heads = 4, .rank = 512, .rope = 64, .nope = 128, .v = 128},
                     .sequences = {},
                     .cache_dtype = dtype,
                     .with_tree = with_tree,
                     .seed = 24};
      for (int64_t i = 0; i < 20; ++i) c.sequences.push_back({1, 20 + 7 * i});
      c.sequences.push_back({22, 262});
      c.sequences.push_back({22, 290});
      expect_matches_oracle(c);
      c.sequences.clear();
      for (int64_t i = 0; i < 32; ++i) c.sequences.push_back({1 + i % 4, i == 9 ? 258 : 4 + 5 * i});
      expect_matches_oracle(c);
    }
}

// Splits of 128 rows that some tokens of an item see and others do not: lanes of a warp merge them and lanes beside
// them do not.
TEST_P(MlaAbsorbedKernelsTest, tokens_on_both_sides_of_a_split_match_float64) {
  for (const DType dtype : kHopperCacheTypes)
    for (const bool with_tree : {false, true})
      for (const int64_t heads : {2, 4, 8})
        for (const int64_t decodes : {4, 28}) {
          SCOPED_TRACE(testing::Message()
                       << tensor::dtype_name(dtype) << ", " << heads << " heads, " << decodes
                       << " decodes" << (with_tree ? ", trees" : ""));
          AbsorbedCase c{.dims = {.heads = heads, .rank = 512, .rope = 64, .nope = 128, .v = 128},
                         .sequences = {{6, 131}, {6, 259}, {6, 387}, {6, 1027}},
                         .cache_dtype = dtype,
                         .with_tree = with_tree,
                         .seed = 25};
          for (int64_t i = 0; i < decodes; ++i) c.sequences.push_back({1, 20 + 3 * i});
          expect_matches_oracle(c);
        }
}

TEST_P(MlaAbsorbedKernelsTest, a_few_decodes_match_float64) {
  for (const DType dtype : kHopperCacheTypes)
    expect_matches_oracle({.dims = kRankDims,
                           .sequences = {{1, 3}, {1, 200}, {1, 0}},
                           .cache_dtype = dtype,
                           .seed = 23});
}

// Tables with room for two chunks of rows, which a GPU has a kernel for.
TEST_P(MlaAbsorbedKernelsTest, a_few_decodes_of_two_chunks_match_float64) {
  for (const DType dtype : kHopperCacheTypes)
    expect_matches_oracle({.dims = kRankDims,
                           .sequences = {{1, 1030}, {1, 40}, {1, 0}},
                           .cache_dtype = dtype,
                           .seed = 29});
}

// Tables so wide that a GPU cuts the rows of a few sequences among all of its multiprocessors, whose sums all of them
// add up: units of 128 rows and of more, of one sequence and of several.
constexpr int64_t kLongRows = 4200;

TEST_P(MlaAbsorbedKernelsTest, a_few_long_sequences_match_float64) {
  for (const DType dtype : kHopperCacheTypes)
    for (const int64_t others : {0, 1, 6}) {
      SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << ", " << others << " others");
      AbsorbedCase c{
          .dims = kRankDims, .sequences = {{1, kLongRows}}, .cache_dtype = dtype, .seed = 26};
      for (int64_t i = 0; i < others; ++i) c.sequences.push_back({1, i == 2 ? 0 : 3900 - 650 * i});
      expect_matches_oracle(c);
    }
}

// Several tokens of few heads are one item, some of whose tokens see no row of the last unit.
TEST_P(MlaAbsorbedKernelsTest, drafts_of_a_few_long_sequences_match_float64) {
  for (const bool with_tree : {false, true}) {
    const AbsorbedCase c{.dims = {.heads = 4, .rank = 512, .rope = 64, .nope = 128, .v = 128},
                         .sequences = {{4, kLongRows}, {4, 1026}, {2, 130}},
                         .cache_dtype = DType::kBf16,
                         .with_tree = with_tree,
                         .seed = 27};
    expect_matches_oracle(c);
  }
}

TEST_P(MlaAbsorbedKernelsTest, a_long_sequence_has_the_same_bits_alone_and_among_others) {
  for (const DType dtype : kHopperCacheTypes) {
    AbsorbedCase c{
        .dims = kRankDims, .sequences = {{1, kLongRows}}, .cache_dtype = dtype, .seed = 28};
    for (int64_t i = 0; i < 19; ++i) c.sequences.push_back({1, 40 + 97 * i});
    const AbsorbedInputs in = make_absorbed_inputs(c, act());
    const std::vector<uint8_t> alone = run(c, in, 0, 1);
    for (const size_t among : {2U, 5U, 20U}) {
      std::vector<uint8_t> together = run(c, in, 0, among);
      together.resize(alone.size());
      EXPECT_EQ(together, alone) << among << " sequences, " << tensor::dtype_name(dtype);
    }
    AbsorbedInputs narrow = in;  // takes other kernels
    narrow.block_tables = HostTensor(DType::kI32, {20, 32}, -1);
    for (int64_t s = 1; s < 20; ++s)
      for (int64_t block = 0; block < 32; ++block)
        narrow.block_tables.at(s, block) = in.block_tables.at(s, block);
    EXPECT_EQ(run(c, narrow, 1, 5), run(c, in, 1, 5)) << tensor::dtype_name(dtype);
  }
}

// Decodes of up to two chunks of rows, of which a GPU gives each sequence the same number of blocks: eight, four, two,
// or one. All share the rows of one sequence, in other orders.
AbsorbedInputs decodes_of_shared_rows(AbsorbedCase& c, ref::Random& random,
                                      const std::vector<int32_t>& lengths, DType act) {
  const auto seqs = static_cast<int64_t>(lengths.size());
  AbsorbedInputs in = make_absorbed_inputs(c, act);
  const int64_t blocks = in.block_tables.dim(1);
  const HostTensor order = in.block_tables;
  in.q_latent = random.normal(act, {seqs, c.dims.heads, c.dims.rank});
  in.q_rope = random.normal(act, {seqs, c.dims.heads, c.dims.rope});
  in.block_tables = HostTensor(DType::kI32, {seqs, blocks}, -1);
  in.kv_len = lengths;
  in.query_start = {0};
  for (int64_t s = 0; s < seqs; ++s) {
    in.query_start.push_back(static_cast<int32_t>(s) + 1);
    for (int64_t block = 0; block < blocks; ++block)
      in.block_tables.at(s, block) = order.at(0, (block + 7 * s) % blocks);
  }
  return in;
}

TEST_P(MlaAbsorbedKernelsTest, decodes_of_like_lengths_have_the_bits_of_each_alone) {
  constexpr int64_t kRows = 2048;  // room for more is another kernel's
  const std::vector<int32_t> special = {2048, 0, 1, 2047, 129, 1023, 1025, 1153, 1024, 31};
  for (const DType dtype : kHopperCacheTypes)
    for (const auto& [seqs, most, specials] : {std::tuple{9, 1500, 9},
                                               {16, 1090, 10},
                                               {20, 2048, 10},
                                               {33, 700, 10},
                                               {66, 1090, 10},
                                               {132, 1087, 10}}) {
      SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << ", " << seqs);
      AbsorbedCase c{
          .dims = kRankDims, .sequences = {{1, kRows}}, .cache_dtype = dtype, .seed = 30};
      ref::Random random(31);
      std::vector<int32_t> lengths;
      for (int i = 0; i < seqs; ++i)
        lengths.push_back(i % 2 == 0 && i / 2 < specials ? special[static_cast<size_t>(i) / 2]
                                                         : most - i * 37 % 90);
      const AbsorbedInputs in = decodes_of_shared_rows(c, random, lengths, act());
      const std::vector<uint8_t> together = run(c, in, 0, lengths.size());
      const size_t token = together.size() / lengths.size();
      for (size_t s = 0; s < lengths.size(); s += s < 20 ? 1 : 7) {
        const auto begin = together.begin() + static_cast<std::ptrdiff_t>(s * token);
        EXPECT_EQ(run(c, in, s, s + 1),
                  std::vector<uint8_t>(begin, begin + static_cast<std::ptrdiff_t>(token)))
            << "sequence " << s << " of " << lengths[s] << " rows";
      }
    }
}

// Drafts of a few sequences beside decodes, each token an item, some of which see fewer tiles, splits or chunks than
// their sequence has.
TEST_P(MlaAbsorbedKernelsTest, decodes_and_drafts_of_like_lengths_match_float64) {
  for (const DType dtype : kHopperCacheTypes)
    for (const bool with_tree : {false, true})
      expect_matches_oracle(
          {.dims = kRankDims,
           .sequences = {{4, 130}, {1, 200}, {3, 1026}, {2, 2}, {1, 0}, {4, 35}, {1, 1020}},
           .cache_dtype = dtype,
           .with_tree = with_tree,
           .seed = 35});
}

// Blocks of two kernels hold multiprocessors that the other one's blocks may wait for.
TEST_P(MlaAbsorbedKernelsTest, two_streams_at_once_do_not_wait_for_each_other_for_ever) {
  const AbsorbedCase c{.dims = kRankDims,
                       .sequences = {{1, kLongRows}, {1, 2900}},
                       .cache_dtype = DType::kBf16,
                       .seed = 29};
  const AbsorbedInputs in = make_absorbed_inputs(c, act());
  const std::vector<uint8_t> expected = run(c, in, 0, 2);
  const AbsorbedCall first = make_call(c, in, 0, 2), second = make_call(c, in, 0, 2);
  stream().synchronize();
  const std::unique_ptr<ops::Stream> other = backend().make_stream({.num_threads = 2});
  for (int i = 0; i < (backend().device_memory ? 300 : 2); ++i) {
    ops::mla_absorbed(first.args, stream());
    ops::mla_absorbed(second.args, *other);
  }
  other->synchronize();
  EXPECT_EQ(bytes(first.out.view()), expected);
  EXPECT_EQ(bytes(second.out.view()), expected);
}

// A chain of 5 and of 7 drafts behind its token, and trees of as many, beside a plain decode.
TEST_P(MlaAbsorbedKernelsTest, drafts_match_float64_for_any_number_of_heads) {
  for (const DType dtype : kHopperCacheTypes)
    for (const bool with_tree : {false, true})
      for (const int64_t heads : {32, 80, 128}) {
        SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << ", " << heads << " heads"
                                        << (with_tree ? ", trees" : ""));
        expect_matches_oracle(
            {.dims = {.heads = heads, .rank = 512, .rope = 64, .nope = 128, .v = 128},
             .sequences = {{6, 70}, {8, 129}, {1, 65}},
             .cache_dtype = dtype,
             .with_tree = with_tree,
             .seed = 22});
      }
}

constexpr AttentionDims kAllHeadsDims{.heads = 128, .rank = 512, .rope = 64, .nope = 128, .v = 128};

// Around tiles of 64 and pairs of them, with one part and with several.
TEST_P(MlaAbsorbedKernelsTest, all_heads_match_float64_at_every_boundary) {
  AbsorbedCase few{.dims = kAllHeadsDims,
                   .sequences = {{1, 1}, {1, 64}, {1, 65}, {1, 128}, {1, 129}, {1, 700}},
                   .cache_dtype = DType::kBf16,
                   .seed = 31};
  expect_matches_oracle(few);
  few.sequences = {{1, 2100}};
  expect_matches_oracle(few);
  AbsorbedCase many = few;
  many.sequences = {{1, 0}, {1, 700}};
  for (int64_t rows = 1; rows <= 10; ++rows) many.sequences.push_back({1, rows * 32 + rows % 3});
  many.sequences.push_back({2, 0});
  expect_matches_oracle(many);
}

// Groups of 64 and of 16 heads, of one part and of several, in a call of few tokens and one of many.
TEST_P(MlaAbsorbedKernelsTest, heads_in_groups_and_rows_in_parts_match_float64) {
  for (const DType dtype : kHopperCacheTypes) {
    AbsorbedCase c{
        .dims = kManyHeadsDims, .sequences = {{1, 300}, {1, 40}}, .cache_dtype = dtype, .seed = 34};
    expect_matches_oracle(c);
    c.sequences.assign(8, {1, 60});
    c.sequences.push_back({1, 200});
    expect_matches_oracle(c);
  }
}

TEST_P(MlaAbsorbedKernelsTest, a_nan_row_reaches_only_the_queries_of_all_heads_that_see_it) {
  expect_nan_stays(kManyHeadsDims, DType::kBf16);
}

// Up to eight tokens of a step are one class (docs/contracts/ops.md, section 4).
TEST_P(MlaAbsorbedKernelsTest, a_token_of_all_heads_has_the_same_bits_among_eight) {
  for (const int64_t heads : {32, 80, 128}) {
    AbsorbedCase c{.dims = kAllHeadsDims,
                   .sequences = {{1, 300}, {3, 131}, {1, 0}, {1, 2065}, {1, 64}, {1, 5}},
                   .cache_dtype = DType::kBf16,
                   .seed = 32};
    c.dims.heads = heads;
    const AbsorbedInputs in = make_absorbed_inputs(c, act());
    std::vector<uint8_t> alone;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const std::vector<uint8_t> part = run(c, in, s, s + 1);
      alone.insert(alone.end(), part.begin(), part.end());
    }
    EXPECT_EQ(run(c, in, 0, c.sequences.size()), alone) << heads << " heads";
  }
}

// The same call twice, with what others left in scratch between.
TEST_P(MlaAbsorbedKernelsTest, all_heads_of_many_sequences_have_the_same_bits_each_time) {
  AbsorbedCase c{.dims = kAllHeadsDims, .sequences = {}, .cache_dtype = DType::kBf16, .seed = 33};
  for (int64_t i = 0; i < 11; ++i) c.sequences.push_back({1 + i % 2, 2 + 83 * i});
  const AbsorbedInputs in = make_absorbed_inputs(c, act());
  const std::vector<uint8_t> first = run(c, in, 0, c.sequences.size());
  run(c, in, 3, c.sequences.size());
  EXPECT_EQ(run(c, in, 0, c.sequences.size()), first);
}

}  // namespace
}  // namespace fathom::ops_test
