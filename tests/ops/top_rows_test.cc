// The choice of the best rows against an oracle: ties, what is no score, the longest rows.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>

#include "ops/index.h"
#include "tests/ops/attention_cases.h"
#include "tests/ops/index_cases.h"
#include "tests/ref/index.h"
#include "tests/sanitized.h"

namespace fathom::ops_test {
namespace {

class TopRowsTest : public OpsTest {
 protected:
  static constexpr int64_t kBlockTokens = 64;

  // One token that sees all of these scores, in blocks that lie in the other order; the table may have room for more.
  struct Call {
    DeviceTensor scores, tables, query_start, kv_len, rows, counts;
    int64_t num_blocks, block_tokens;
  };

  Call make_call(const std::vector<double>& scores, int64_t topk, int64_t room = 0,
                 int64_t block_tokens = kBlockTokens) {
    const int64_t rows = std::ssize(scores);
    const int64_t blocks = (std::max(rows, room) + block_tokens - 1) / block_tokens;
    HostTensor padded(DType::kF32, {1, blocks * block_tokens}, kInfinite);
    std::copy(scores.begin(), scores.end(), padded.values.begin());
    HostTensor tables(DType::kI32, {1, blocks});
    for (int64_t b = 0; b < blocks; ++b) tables.at(0, b) = static_cast<double>(blocks - 1 - b);
    return {.scores = upload(padded),
            .tables = upload(tables),
            .query_start = upload({2}, std::vector<int32_t>{0, 1}),
            .kv_len = upload({1}, std::vector<int32_t>{static_cast<int32_t>(rows)}),
            .rows = empty(DType::kI32, {1, topk}),
            .counts = empty(DType::kI32, {1}),
            .num_blocks = blocks,
            .block_tokens = block_tokens};
  }

  void run(const Call& call, bool of_sequence = false, int64_t tokens = 1) {
    ops::top_rows({.scores = call.scores.view(),
                   .queries = {.query_start = call.query_start.view(),
                               .kv_len = call.kv_len.view(),
                               .block_tables = call.tables.view(),
                               .tree_mask = {},
                               .token_begin = 0,
                               .token_end = tokens},
                   .block_tokens = call.block_tokens,
                   .of_sequence = of_sequence,
                   .rows = call.rows.view(),
                   .counts = call.counts.view(),
                   .kept = {}},
                  stream());
  }

  void expect_top(const std::vector<double>& scores, int64_t topk, int64_t room = 0,
                  int64_t block_tokens = kBlockTokens) {
    const Call call = make_call(scores, topk, room, block_tokens);
    const std::vector<int64_t> expected = ref::top_rows(scores, topk, [](int64_t) { return true; });
    for (const bool of_sequence : {false, true}) {
      run(call, of_sequence);
      const auto got = download_as<int32_t>(call.rows.view());
      ASSERT_EQ(download_as<int32_t>(call.counts.view())[0], std::ssize(expected));
      for (size_t i = 0; i < expected.size(); ++i) {
        const int64_t block = call.num_blocks - 1 - expected[i] / block_tokens;
        ASSERT_EQ(got[i],
                  of_sequence ? expected[i] : block * block_tokens + expected[i] % block_tokens)
            << "entry " << i;
      }
    }
    expect_kept({expected}, std::ssize(scores), false, run_for_bits(call, {}));
  }

  // The bits of each token that the call has.
  HostTensor run_for_bits(const Call& call, const std::vector<uint64_t>& tree_mask) {
    const int64_t tokens = call.rows.view().dim(0);
    const DeviceTensor kept = upload(
        HostTensor(DType::kI32, {tokens, ops::kept_words(call.num_blocks * call.block_tokens)}, 5));
    const DeviceTensor masks = upload({std::ssize(tree_mask)}, tree_mask);
    ops::top_rows({.scores = call.scores.view(),
                   .queries = {.query_start = call.query_start.view(),
                               .kv_len = call.kv_len.view(),
                               .block_tables = call.tables.view(),
                               .tree_mask = tree_mask.empty() ? Tensor() : masks.view(),
                               .token_begin = 0,
                               .token_end = tokens},
                   .block_tokens = call.block_tokens,
                   .rows = call.rows.view(),
                   .counts = call.counts.view(),
                   .kept = kept.view()},
                  stream());
    return download(kept.view());
  }
  // Each token's rows, and no others: the last token sees num_rows, and without a tree each one less than the next.
  static void expect_kept(const std::vector<std::vector<int64_t>>& expected, int64_t num_rows,
                          bool is_tree, const HostTensor& kept) {
    for (int64_t token = 0; token < std::ssize(expected); ++token) {
      std::vector<uint32_t> words;
      for (int64_t word = 0; word < kept.dim(1); ++word)
        words.push_back(static_cast<uint32_t>(static_cast<int32_t>(kept.at(token, word))));
      std::vector<int64_t> rows;
      for (int64_t row = 0; row < num_rows - (is_tree ? 0 : std::ssize(expected) - 1 - token);
           ++row)
        if (ops::keeps_row(words.data(), row)) rows.push_back(row);
      ASSERT_EQ(rows, expected[static_cast<size_t>(token)]) << "token " << token;
    }
  }

  // The last tokens of a sequence of so many rows, each with scores of its own.
  void expect_top_of_many(int64_t tokens, int64_t rows, int64_t topk,
                          const std::vector<uint64_t>& tree_mask = {}) {
    const int64_t blocks = (rows + kBlockTokens - 1) / kBlockTokens;
    HostTensor scores(DType::kF32, {tokens, blocks * kBlockTokens}, kInfinite);
    HostTensor tables(DType::kI32, {1, blocks});
    for (int64_t b = 0; b < blocks; ++b) tables.at(0, b) = static_cast<double>(b);
    std::vector<std::vector<int64_t>> expected;
    ref::Random random(static_cast<uint64_t>(tokens + rows));
    const ref::Sees sees = sees_rule(rows - tokens, tree_mask);
    for (int64_t token = 0; token < tokens; ++token) {
      std::vector<double> of_token(static_cast<size_t>(rows), -kInfinite);
      for (int64_t row = 0; row < rows; ++row) {
        // Some tie.
        if (sees(token, row))
          of_token[static_cast<size_t>(row)] = static_cast<double>(random.engine()() % 2000) - 700;
        scores.at(token, row) = of_token[static_cast<size_t>(row)];
      }
      expected.push_back(
          ref::top_rows(of_token, topk, [&](int64_t row) { return sees(token, row); }));
    }
    const Call call{
        .scores = upload(scores),
        .tables = upload(tables),
        .query_start = upload({2}, std::vector<int32_t>{0, static_cast<int32_t>(tokens)}),
        .kv_len = upload({1}, std::vector<int32_t>{static_cast<int32_t>(rows)}),
        .rows = empty(DType::kI32, {tokens, topk}),
        .counts = empty(DType::kI32, {tokens}),
        .num_blocks = blocks,
        .block_tokens = kBlockTokens};
    expect_kept(expected, rows, !tree_mask.empty(), run_for_bits(call, tree_mask));
    if (!tree_mask.empty()) return;
    run(call, true, tokens);
    const auto got = download_as<int32_t>(call.rows.view());
    const auto counts = download_as<int32_t>(call.counts.view());
    for (int64_t token = 0; token < tokens; ++token) {
      const std::vector<int64_t>& mine = expected[static_cast<size_t>(token)];
      ASSERT_EQ(counts[static_cast<size_t>(token)], std::ssize(mine));
      for (int64_t i = 0; i < std::ssize(mine); ++i)
        ASSERT_EQ(got[static_cast<size_t>(token * topk + i)], mine[static_cast<size_t>(i)])
            << "token " << token << ", entry " << i;
    }
  }

  static std::vector<double> drawn(size_t count, uint64_t seed,
                                   const std::function<double(uint64_t)>& draw) {
    ref::Random random(seed);
    std::vector<double> scores(count);
    for (double& score : scores) score = draw(random.engine()());
    return scores;
  }
};
INSTANTIATE_TEST_SUITE_P(backends, TopRowsTest,
                         testing::ValuesIn(backends_with(&ops::Backend::top_rows)), backend_name);

TEST_P(TopRowsTest, prefer_the_smaller_row_among_equal_scores) {
  expect_top(std::vector<double>(5000, 1.5), 2048);
  expect_top(std::vector<double>(5000, 0.0), 2048);
  expect_top(std::vector<double>(300, -kInfinite), 64);
  // Thousands of ties around the last one kept.
  expect_top(drawn(9000, 1, [](uint64_t x) { return static_cast<double>(x % 3); }), 2048);
  expect_top(drawn(9000, 2, [](uint64_t x) { return x % 7 == 0 ? 1.0 : 0.0; }), 2048);
  // -0 equals 0.
  expect_top(drawn(3000, 3, [](uint64_t x) { return x % 2 == 0 ? 0.0 : -0.0; }), 1000);
}

TEST_P(TopRowsTest, rank_negative_infinite_and_failed_scores) {
  expect_top(drawn(4000, 4, [](uint64_t x) { return -1e-3 * static_cast<double>(x % 5000); }), 700);
  expect_top(drawn(2000, 5,
                   [](uint64_t x) {
                     return x % 5 == 0   ? kNotANumber
                            : x % 5 == 1 ? -kInfinite
                            : x % 5 == 2 ? kInfinite
                                         : static_cast<double>(static_cast<float>(x % 99) / 7.0f);
                   }),
             500);
  // More failed rows than are kept.
  expect_top(drawn(2000, 6, [](uint64_t x) { return x % 2 == 0 ? kNotANumber : 1.0; }), 500);
}

TEST_P(TopRowsTest, keep_all_rows_up_to_topk) {
  const auto draw = [](uint64_t x) { return static_cast<double>(static_cast<int32_t>(x % 1000)); };
  for (const size_t rows : {1U, 63U, 64U, 65U, 66U}) expect_top(drawn(rows, rows, draw), 64);
  expect_top(drawn(65, 7, draw), 1);
}

TEST_P(TopRowsTest, choose_from_the_longest_row) {
  if (kIsSanitized) return;
  // A hundred thousand of the scores share their upper bits.
  std::vector<double> scores = drawn(163840, 8, [](uint64_t x) {
    const auto low = static_cast<float>(x % 4096) * 0x1p-23f;
    return static_cast<double>(x % 5 < 3 ? 1.0f + low : -static_cast<float>(x % 4096));
  });
  expect_top(scores, 2048);
  std::fill(scores.begin(), scores.end(), 0.25);
  expect_top(scores, 2048);
  if (!backend().device_memory) return;
  // Longer than any context that is served: a GPU's blocks do not hold their parts.
  scores = drawn(500'000, 10, [](uint64_t x) { return static_cast<double>(x % 4096); });
  expect_top(scores, 1000);
}

// A GPU cannot know on the host how few rows a token sees of those that its table has room for.
TEST_P(TopRowsTest, choose_from_few_rows_of_a_wide_table) {
  const auto draw = [](uint64_t x) { return static_cast<double>(x % 50); };
  for (const size_t rows : {2049U, 4096U, 8191U, 8192U, 8193U, 9001U})
    for (const int64_t room : {20'000, 163'840}) expect_top(drawn(rows, rows, draw), 2048, room);
  if (kIsSanitized || !backend().device_memory) return;
  // So wide that a GPU's blocks hold no part of it.
  for (const size_t rows : {3000U, 8192U, 8193U})
    expect_top(drawn(rows, rows, draw), 2048, 500'000);
}

// The search for the last one kept goes on as far as rows share bits.
TEST_P(TopRowsTest, choose_from_rows_that_share_upper_bits) {
  for (const int low_bits : {1, 2, 3, 12, 13, 22, 23})
    for (const size_t rows : {2049, 4100, 8192}) {
      const auto draw = [low_bits](uint64_t x) {
        const auto low = static_cast<uint32_t>(x) & ((1u << low_bits) - 1);
        return static_cast<double>(std::bit_cast<float>(0x3f800000u | low));
      };
      expect_top(drawn(rows, rows, draw), 2048);
    }
}

// A GPU reads four scores at once where blocks of the cache allow it.
TEST_P(TopRowsTest, choose_from_blocks_of_any_size) {
  const auto draw = [](uint64_t x) { return static_cast<double>(x % 90); };
  for (const int64_t block_tokens : {1, 6, 8})
    for (const size_t rows : {300U, 9002U})
      expect_top(drawn(rows, rows, draw), 200, 0, block_tokens);
}

TEST_P(TopRowsTest, choose_for_many_tokens_as_for_each) {
  expect_top_of_many(30, 700, 512);
  expect_top_of_many(5, 2900, 2048);
  // So many that a GPU has a block for each.
  if (!backend().device_memory) return;
  expect_top_of_many(300, 700, 512);
  expect_top_of_many(300, 2900, 2048);
  expect_top_of_many(140, 9100, 2048);
  expect_top_of_many(140, 17000, 100);
}

TEST_P(TopRowsTest, keep_bits_of_what_a_tree_token_sees) {
  ref::Random random(12);
  for (const int64_t topk : {64, 400}) expect_top_of_many(9, 400, topk, random_tree(random, 9));
}

// Counts are added up in any order on a GPU: what comes out must not show it.
TEST_P(TopRowsTest, are_the_same_in_every_run) {
  const Call call =
      make_call(drawn(20000, 9, [](uint64_t x) { return static_cast<double>(x % 700); }), 2048);
  std::vector<uint8_t> first;
  const int runs = backend().device_memory ? 1000 : 3;
  for (int i = 0; i < runs; ++i) {
    run(call);
    const std::vector<uint8_t> got = bytes(call.rows.view());
    if (i == 0) first = got;
    ASSERT_EQ(got, first) << "run " << i;
  }
}

}  // namespace
}  // namespace fathom::ops_test
