// The indexer's scores against a float64 oracle, and the rows that are chosen by them.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/index.h"
#include "tests/ops/index_cases.h"
#include "tests/ops/mla_absorbed_cases.h"
#include "tests/ref/index.h"
#include "tests/sanitized.h"

namespace fathom::ops_test {
namespace {

constexpr int64_t kIndexBlockTokens = 64;

struct ScoreCase {
  std::vector<QuerySequence> sequences;
  int64_t topk;
  bool f8 = false, with_tree = false;
  IndexDims dims = kIndexDims[1];
};

// A cache with shuffled blocks, all rows that belong to nobody NaN, and queries with weights of both signs.
struct ScoreInputs {
  std::vector<int32_t> query_start = {0}, kv_len;
  std::vector<uint64_t> tree_mask;
  HostTensor tables, q, weights, values, scales;
  std::vector<ref::IndexRows> keys;  // of each sequence
};

ScoreInputs make_scores(const ScoreCase& c) {
  ref::Random random(21);
  ScoreInputs in;
  const DType type = c.f8 ? DType::kF8E4M3 : DType::kF32;
  int64_t max_blocks = 1, num_blocks = 1;
  for (const QuerySequence& s : c.sequences) {
    const int64_t blocks = (s.kv_len + kIndexBlockTokens - 1) / kIndexBlockTokens;
    max_blocks = std::max(max_blocks, blocks);
    num_blocks += blocks;
    in.query_start.push_back(in.query_start.back() + static_cast<int32_t>(s.queries));
    in.kv_len.push_back(static_cast<int32_t>(s.kv_len));
    std::vector<uint64_t> tree(static_cast<size_t>(s.queries), 0b10110);
    if (s.queries <= ops::kMaxTreeTokens) tree = random_tree(random, s.queries);
    in.tree_mask.insert(in.tree_mask.end(), tree.begin(), tree.end());
  }
  const std::vector<int32_t> order = random.permutation(static_cast<int>(num_blocks));
  in.tables = HostTensor(DType::kI32, {static_cast<int64_t>(c.sequences.size()), max_blocks}, -1);
  in.values = HostTensor(type, {num_blocks, kIndexBlockTokens, c.dims.dim}, kNotANumber);
  in.scales = HostTensor(DType::kF32, {num_blocks, kIndexBlockTokens}, kNotANumber);
  size_t next = 0;
  for (size_t s = 0; s < c.sequences.size(); ++s) {
    const int64_t rows = c.sequences[s].kv_len;
    ref::IndexRows keys{.values = random.normal(type, {rows, c.dims.dim}),
                        .scale = HostTensor(DType::kF32, {rows}, 1)};
    for (int64_t row = 0; row < rows; ++row) {
      if (c.f8) keys.scale.at(row) = std::exp2(static_cast<double>(random.engine()() % 5) - 2);
      double& block = in.tables.at(static_cast<int64_t>(s), row / kIndexBlockTokens);
      if (row % kIndexBlockTokens == 0) block = order[next++];
      const auto at = static_cast<int64_t>(block);
      for (int64_t i = 0; i < c.dims.dim; ++i)
        in.values.at(at, row % kIndexBlockTokens, i) = keys.values.at(row, i);
      in.scales.at(at, row % kIndexBlockTokens) = keys.scale.at(row);
    }
    in.keys.push_back(std::move(keys));
  }
  in.q = random.normal(type, {in.query_start.back(), c.dims.heads, c.dims.dim});
  in.weights = random.normal(DType::kF32, {in.query_start.back(), c.dims.heads});
  return in;
}

struct Placed {
  size_t sequence = 0;
  ref::Sees sees;
  int64_t query = 0, num_visible = 0;
};

Placed place(const ScoreCase& c, const ScoreInputs& in, int64_t token) {
  Placed placed;
  while (in.query_start[placed.sequence + 1] <= token) ++placed.sequence;
  const QuerySequence& s = c.sequences[placed.sequence];
  const int64_t begin = in.query_start[placed.sequence];
  std::vector<uint64_t> mask;
  if (c.with_tree && s.queries <= ops::kMaxTreeTokens)
    mask.assign(in.tree_mask.begin() + begin, in.tree_mask.begin() + begin + s.queries);
  placed.sees = sees_rule(s.kv_len - s.queries, mask);
  placed.query = token - begin;
  for (int64_t row = 0; row < s.kv_len; ++row)
    placed.num_visible += placed.sees(placed.query, row) ? 1 : 0;
  return placed;
}

class IndexScoresTest : public IndexFixture {
 protected:
  // scores, rows and counts of the tokens [begin, end).
  struct Answer {
    HostTensor scores, rows, counts;
  };

  Answer run(const ScoreCase& c, const ScoreInputs& in, int64_t begin, int64_t end) {
    const int64_t tokens = in.query_start.back(), seqs = std::ssize(in.kv_len);
    const DeviceTensor start = upload({seqs + 1}, in.query_start), len = upload({seqs}, in.kv_len);
    const DeviceTensor tables = upload(in.tables), mask = upload({tokens}, in.tree_mask);
    const DeviceTensor q = upload(in.q), weights = upload(in.weights);
    const DeviceTensor values = upload(in.values), scales = upload(in.scales);
    const DeviceTensor scores =
        empty(DType::kF32, {end - begin, in.tables.dim(1) * kIndexBlockTokens});
    const DeviceTensor rows = empty(DType::kI32, {tokens, c.topk}),
                       counts = empty(DType::kI32, {tokens});
    const ops::IndexQueries queries{.query_start = start.view(),
                                    .kv_len = len.view(),
                                    .block_tables = tables.view(),
                                    .tree_mask = c.with_tree ? mask.view() : Tensor(),
                                    .token_begin = begin,
                                    .token_end = end};
    ops::index_scores(
        {.q = q.view(),
         .weights = weights.view(),
         .cache = {.values = values.view(), .scales = c.f8 ? scales.view() : Tensor()},
         .queries = queries,
         .topk = c.topk,
         .scores = scores.view()},
        stream());
    ops::top_rows({.scores = scores.view(),
                   .queries = queries,
                   .block_tokens = kIndexBlockTokens,
                   .rows = rows.view(),
                   .counts = counts.view()},
                  stream());
    return {download(scores.view()), download(rows.view()), download(counts.view())};
  }

  // Tensor cores round sums of e4m3 products to some 14 bits of the largest: scores of 64 heads reach several hundred.
  double allowed_error(const ScoreCase& c) const {
    return act() == DType::kBf16 && c.dims.dim == 128 ? 0.5 : 2e-3;
  }

  void expect_scores(const ScoreCase& c, const ScoreInputs& in, const Answer& got) {
    for (int64_t t = 0; t < in.query_start.back(); ++t) {
      const Placed placed = place(c, in, t);
      const int64_t kv_len = in.kv_len[placed.sequence];
      const bool is_scored = placed.num_visible > c.topk;
      std::vector<double> expected;
      if (is_scored) expected = ref::index_scores(in.q[t], in.weights[t], in.keys[placed.sequence]);
      for (int64_t row = 0; row < got.scores.dim(1); ++row) {
        const double score = got.scores.at(t, row);
        if (!is_scored || row >= kv_len) {
          ASSERT_TRUE(std::isnan(score)) << "token " << t << ", row " << row << " was written";
        } else if (!placed.sees(placed.query, row)) {
          ASSERT_EQ(score, -kInfinite) << "token " << t << ", row " << row;
        } else {
          ASSERT_NEAR(score, expected[static_cast<size_t>(row)], allowed_error(c))
              << "token " << t << ", row " << row;
        }
      }
    }
  }

  // By the operator's own scores, so that rounding decides no tie.
  void expect_rows(const ScoreCase& c, const ScoreInputs& in, const Answer& got) {
    for (int64_t t = 0; t < in.query_start.back(); ++t) {
      const Placed placed = place(c, in, t);
      std::vector<double> scores(static_cast<size_t>(in.kv_len[placed.sequence]));
      for (size_t row = 0; row < scores.size(); ++row)
        scores[row] = placed.num_visible > c.topk ? got.scores.at(t, static_cast<int64_t>(row)) : 0;
      const std::vector<int64_t> expected = ref::top_rows(
          scores, c.topk, [&](int64_t row) { return placed.sees(placed.query, row); });
      ASSERT_EQ(got.counts.at(t), static_cast<double>(expected.size())) << "token " << t;
      for (int64_t i = 0; i < c.topk; ++i) {
        if (i >= std::ssize(expected)) {
          ASSERT_EQ(got.rows.at(t, i), -1);
          continue;
        }
        const int64_t row = expected[static_cast<size_t>(i)];
        const double block =
            in.tables.at(static_cast<int64_t>(placed.sequence), row / kIndexBlockTokens);
        ASSERT_EQ(got.rows.at(t, i),
                  block * kIndexBlockTokens + static_cast<double>(row % kIndexBlockTokens))
            << "token " << t << ", entry " << i;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(backends, IndexScoresTest,
                         testing::ValuesIn(backends_with(&ops::Backend::index_scores)),
                         backend_name);

// Fewer, as many and more rows than are kept; padding; shuffled blocks; trees; several heads at once and many.
TEST_P(IndexScoresTest, match_the_oracle_and_the_best_rows_are_chosen) {
  const std::vector<QuerySequence> sequences = {{1, 63}, {1, 64},   {1, 65},  {3, 66},  {2, 0},
                                                {1, 1},  {70, 200}, {7, 300}, {1, 1100}};
  for (const bool f8 : key_forms())
    for (const bool with_tree : {false, true}) {
      SCOPED_TRACE(std::string(f8 ? "f8" : "f32") + (with_tree ? ", trees" : ""));
      const ScoreCase c{.sequences = sequences, .topk = 64, .f8 = f8, .with_tree = with_tree};
      const ScoreInputs in = make_scores(c);
      const Answer got = run(c, in, 0, in.query_start.back());
      expect_scores(c, in, got);
      expect_rows(c, in, got);
    }
  // A GPU has a kernel for decodes alone.
  const std::vector<QuerySequence> drafts = {{2, 150}}, decodes = {{1, 150}, {1, 70}};
  for (const IndexDims& dims : {kIndexDims[0], kIndexDims[2]})
    for (const std::vector<QuerySequence>& two : {drafts, decodes}) {
      const bool f8 = dims.dim == 128 || key_forms().front();
      const ScoreCase c{.sequences = two, .topk = 40, .f8 = f8, .dims = dims};
      const ScoreInputs in = make_scores(c);
      const Answer got = run(c, in, 0, 2);
      expect_scores(c, in, got);
      expect_rows(c, in, got);
    }
}

// As published: decodes, drafts and a prompt's tokens, of which a GPU puts one, four or sixteen into a tile.
TEST_P(IndexScoresTest, of_sixty_four_heads_match_the_oracle) {
  if (kIsSanitized) return;
  const std::vector<std::vector<QuerySequence>> calls = {
      {{1, 3000}, {1, 0}, {1, 700}, {1, 64}, {1, 65}},
      {{4, 1000}, {2, 0}, {4, 130}, {3, 66}},
      {{75, 400}},
      {{70, 500}, {1, 40}, {30, 130}}};
  for (const std::vector<QuerySequence>& sequences : calls)
    for (const bool with_tree : {false, true}) {
      const ScoreCase c{.sequences = sequences,
                        .topk = 64,
                        .f8 = true,
                        .with_tree = with_tree,
                        .dims = kIndexDims[0]};
      const ScoreInputs in = make_scores(c);
      const Answer got = run(c, in, 0, in.query_start.back());
      expect_scores(c, in, got);
      expect_rows(c, in, got);
    }
}

TEST_P(IndexScoresTest, of_a_token_do_not_depend_on_the_others) {
  for (const IndexDims& dims : {kIndexDims[0], kIndexDims[1]}) {
    const ScoreCase c{
        .sequences = {{5, 130}, {3, 700}, {80, 320}}, .topk = 48, .f8 = true, .dims = dims};
    const ScoreInputs in = make_scores(c);
    const Answer together = run(c, in, 0, in.query_start.back());
    for (const auto& [begin, end] : {std::pair{0, 1}, {4, 7}, {30, 80}}) {
      const Answer part = run(c, in, begin, end);
      for (int64_t t = begin; t < end; ++t) {
        const HostTensor alone = part.scores.rows(t - begin, t - begin + 1);
        EXPECT_EQ(std::memcmp(alone.values.data(), together.scores.rows(t, t + 1).values.data(),
                              alone.values.size() * sizeof(double)),
                  0)
            << "token " << t;
        EXPECT_EQ(part.counts.at(t), together.counts.at(t));
        for (int64_t i = 0; i < c.topk; ++i) EXPECT_EQ(part.rows.at(t, i), together.rows.at(t, i));
      }
      EXPECT_EQ(part.counts.at(end), 0x7f7f7f7f) << "beyond the range";
    }
  }
}

}  // namespace
}  // namespace fathom::ops_test
