// head_linear_quantize with attention as a part of it, beside the two operators one after the other: bit for bit.

#include "ops/head_linear.h"
#include "tests/ops/mla_absorbed_cases.h"

namespace fathom::ops_test {
namespace {

class AttentionPartsTest : public MlaAbsorbedFixture {
 protected:
  static constexpr int64_t kHead = 128;

  struct Rows {
    DeviceTensor values, scale;
  };
  Rows empty_rows(int64_t tokens) {
    return {.values = empty(DType::kF8E4M3, {tokens, kRankDims.heads * kHead}),
            .scale = empty(DType::kF32, {tokens, kRankDims.heads})};
  }
  // For each number of blocks that tables have room for; fewer than sequences have count as those.
  void expect_bits_of_parts(const AbsorbedCase& c, const std::vector<int64_t>& rooms);
  void expect_bits_of_parts(const AbsorbedCase& c, const AbsorbedInputs& in);
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AttentionPartsTest);
INSTANTIATE_TEST_SUITE_P(backends, AttentionPartsTest,
                         testing::ValuesIn(backends_with(&ops::Backend::head_linear_quantize)),
                         backend_name);

void AttentionPartsTest::expect_bits_of_parts(const AbsorbedCase& c,
                                              const std::vector<int64_t>& rooms) {
  AbsorbedInputs in = make_absorbed_inputs(c, act());
  const HostTensor tables = in.block_tables;
  for (const int64_t room : rooms) {
    SCOPED_TRACE(testing::Message() << "room for " << room << " blocks");
    in.block_tables = HostTensor(DType::kI32, {tables.dim(0), std::max(room, tables.dim(1))}, -1);
    for (int64_t s = 0; s < tables.dim(0); ++s)
      for (int64_t block = 0; block < tables.dim(1); ++block)
        in.block_tables.at(s, block) = tables.at(s, block);
    expect_bits_of_parts(c, in);
  }
}

void AttentionPartsTest::expect_bits_of_parts(const AbsorbedCase& c, const AbsorbedInputs& in) {
  const AbsorbedCall call = make_call(c, in, 0, c.sequences.size());
  const int64_t tokens = in.query_start.back();
  ref::Random random(c.seed);
  const DeviceTensor weight =
      upload(random.uniform(DType::kBf16, {c.dims.heads, 2 * kHead, c.dims.rank}, -0.1, 0.1));
  const ops::Weight w_uv{.data = weight.view().slice(1, kHead, 2 * kHead), .scale = {}};
  const Rows rows = empty_rows(tokens), expected = empty_rows(tokens);
  ops::mla_absorbed(call.args, stream());
  ops::HeadLinearQuantizeArgs args{
      .x = call.out.view(), .weight = w_uv, .out = {expected.values.view(), expected.scale.view()}};
  ops::head_linear_quantize(args, stream());
  args.out = {rows.values.view(), rows.scale.view()};
  args.attention = &call.args;
  ASSERT_TRUE(backend().head_linear_quantize.has(args, stream()));
  for (int i = 0; i < 3; ++i) {  // one behind the other in the same scratch
    ops::head_linear_quantize(args, stream());
    EXPECT_EQ(bytes(rows.values.view()), bytes(expected.values.view()));
    EXPECT_EQ(bytes(rows.scale.view()), bytes(expected.scale.view()));
  }
}

// Clusters and, where there is more room, streams: items of one block and of many, padding, drafts in a chain and in a
// tree.
TEST_P(AttentionPartsTest, of_any_sequences_have_the_bits_of_both_operators) {
  using Sequences = std::vector<QuerySequence>;
  const Sequences cases[] = {{{1, 2050}},
                             {{2, 3100}, {1, 96}},
                             {{1, 2100}, {1, 0}, {1, 1024}},
                             {{1, 2200}, {1, 0}, {1, 130}, {2, 1500}, {1, 1}},
                             {{4, 2200}, {4, 1025}}};
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3})
    for (const bool with_tree : {false, true})
      for (const Sequences& sequences : cases) {
        SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << ", " << sequences.size()
                                        << " sequences, the first of " << sequences[0].kv_len
                                        << (with_tree ? ", trees" : ""));
        expect_bits_of_parts({.dims = kRankDims,
                              .sequences = sequences,
                              .cache_dtype = dtype,
                              .with_tree = with_tree,
                              .seed = 33,
                              .rope_offset = with_tree ? 3 : 8},
                             {1, 400});
      }
}

// Splits that two blocks share.
TEST_P(AttentionPartsTest, of_two_tokens_have_the_bits_of_both_operators) {
  expect_bits_of_parts({.dims = kRankDims,
                        .sequences = {{2, 2100}},
                        .cache_dtype = DType::kBf16,
                        .seed = 35,
                        .rope_offset = 8},
                       {1});
}

// What else has clusters of two chunks, or one chunk.
TEST_P(AttentionPartsTest, of_few_rows_have_the_bits_of_both_operators) {
  using Sequences = std::vector<QuerySequence>;
  const Sequences cases[] = {{{2, 300}},
                             {{1, 1}, {1, 0}, {1, 1024}},
                             {{1, 2048}, {3, 129}, {1, 128}},
                             {{1, 160}, {1, 96}, {1, 1025}, {1, 31}, {1, 0}, {2, 2}, {1, 1900}}};
  for (const bool with_tree : {false, true})
    for (const Sequences& sequences : cases) {
      SCOPED_TRACE(testing::Message() << sequences.size() << " sequences, the first of "
                                      << sequences[0].kv_len << (with_tree ? ", trees" : ""));
      expect_bits_of_parts({.dims = kRankDims,
                            .sequences = sequences,
                            .cache_dtype = DType::kBf16,
                            .with_tree = with_tree,
                            .seed = 36,
                            .rope_offset = with_tree ? 3 : 8},
                           {1});
    }
}

// The last row of drafts on both sides of a split's end, which not all of them see.
TEST_P(AttentionPartsTest, of_a_nan_row_have_the_bits_of_both_operators) {
  for (const bool with_tree : {false, true}) {
    const AbsorbedCase c{.dims = kRankDims,
                         .sequences = {{4, 2178}},
                         .cache_dtype = DType::kBf16,
                         .with_tree = with_tree,
                         .seed = 37};
    AbsorbedInputs in = make_absorbed_inputs(c, act());
    const int64_t row = c.sequences[0].kv_len - 1;
    const auto block = static_cast<int64_t>(in.block_tables.at(0, row / kCacheBlockTokens));
    const int64_t at = block * kCacheBlockTokens + row % kCacheBlockTokens;
    std::fill_n(in.cache.begin() + static_cast<std::ptrdiff_t>(at * in.format.row_bytes),
                in.format.row_bytes, 0xff);
    expect_bits_of_parts(c, in);
  }
}

// Units of more than 128 rows on a GPU of up to 140 multiprocessors.
TEST_P(AttentionPartsTest, of_a_long_sequence_have_the_bits_of_both_operators) {
  expect_bits_of_parts({.dims = kRankDims,
                        .sequences = {{1, 26'000}, {1, 700}},
                        .cache_dtype = DType::kBf16,
                        .seed = 34},
                       {1});
}

// Of which some blocks of the cache come again and again. On a GPU of 132 multiprocessors parts are units of all sizes,
// and more than are added up in one round.
TEST_P(AttentionPartsTest, of_repeated_blocks_have_the_bits_of_both_operators) {
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3})
    for (const int64_t queries : {1, 2, 8}) {
      const AbsorbedCase c{
          .dims = kRankDims, .sequences = {{queries, 2000}}, .cache_dtype = dtype, .seed = 35};
      AbsorbedInputs in = make_absorbed_inputs(c, act());
      const HostTensor tables = in.block_tables;
      for (const int32_t rows : {3'300, 25'000, 33'000, 47'000, 66'000, 134'000}) {
        SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << ", " << queries
                                        << " queries, " << rows << " rows");
        in.kv_len = {rows};
        in.block_tables =
            HostTensor(DType::kI32, {1, (rows + kCacheBlockTokens - 1) / kCacheBlockTokens});
        for (int64_t block = 0; block < in.block_tables.dim(1); ++block)
          in.block_tables.at(0, block) = tables.at(0, block % (tables.dim(1) - 1));
        expect_bits_of_parts(c, in);
      }
    }
}

// What runs as one kernel anyway, and more tokens than the operator has.
TEST_P(AttentionPartsTest, of_short_sequences_or_many_tokens_are_not_taken) {
  for (const std::vector<QuerySequence>& sequences :
       {std::vector<QuerySequence>{{1, 300}}, {{9, 2500}}}) {
    const AbsorbedCase c{.dims = kRankDims, .sequences = sequences, .cache_dtype = DType::kF8E4M3};
    const AbsorbedInputs in = make_absorbed_inputs(c, act());
    const AbsorbedCall call = make_call(c, in, 0, 1);
    const DeviceTensor weight = empty(DType::kBf16, {c.dims.heads, kHead, c.dims.rank});
    const Rows rows = empty_rows(in.query_start.back());
    EXPECT_FALSE(backend().head_linear_quantize.has({.x = call.out.view(),
                                                     .weight = {.data = weight.view(), .scale = {}},
                                                     .out = {rows.values.view(), rows.scale.view()},
                                                     .attention = &call.args},
                                                    stream()));
  }
}

}  // namespace
}  // namespace fathom::ops_test
