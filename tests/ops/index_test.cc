// The indexer's operators against float64 oracles: keys, queries, scores, the choice of rows, attention to lists.

#include "ops/index.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/ops/mla_absorbed_cases.h"
#include "tests/ref/index.h"
#include "tests/sanitized.h"

namespace fathom::ops_test {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr int64_t kIndexBlockTokens = 64;

TEST(IndexFormat, has_a_scale_a_row_in_fp8) {
  EXPECT_EQ(ops::IndexFormat::of(DType::kF8E4M3, 128).row_bytes(), 132);
  EXPECT_EQ(ops::IndexFormat::of(DType::kF32, 128).row_bytes(), 512);
}

// amax = max(|x|, 1e-4), scale = 2^ceil(log2(amax / 448)).
TEST(IndexFormat, scales_by_powers_of_two_with_a_floor) {
  EXPECT_EQ(ops::index_scale(448.0f), 1.0f);
  EXPECT_EQ(ops::index_scale(std::nextafter(448.0f, 1000.0f)), 2.0f);
  EXPECT_EQ(ops::index_scale(0.875f), std::exp2(-9.0f));
  for (const float small : {0.0f, 1e-30f, 1e-4f}) EXPECT_EQ(ops::index_scale(small), 0x1p-22f);
  EXPECT_TRUE(std::isinf(ops::index_scale(std::numeric_limits<float>::infinity())));
}

class IndexTest : public OpsTest {
 protected:
  // Whether keys may be FP8: the types that the backend has.
  std::vector<bool> key_forms() const {
    if (backend().supports("index_scores", DType::kF32)) return {false, true};
    return {true};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, IndexTest,
                         testing::ValuesIn(backends_with(&ops::Backend::index_scores)),
                         backend_name);

Bounds bounds_of(bool f8) {
  // One step of e4m3 where a value lies between two.
  const Bound bound = f8 ? Bound{.abs = 2e-3, .rel = 0.13, .one_minus_cosine = 1e-3}
                         : Bound{.abs = 3e-6, .rel = 3e-6, .one_minus_cosine = 1e-11};
  return {.f32 = bound, .bf16 = bound};  // of operators that compute in float32
}

HostTensor times_scale(const HostTensor& values, const HostTensor& scale) {
  HostTensor out = values;
  out.dtype = DType::kF32;
  const size_t dim = values.values.size() / scale.values.size();
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] *= scale.values[i / dim];
  return out;
}

struct IndexDims {
  int64_t heads, dim, rope;
};
constexpr IndexDims kIndexDims[] = {{64, 128, 64}, {3, 64, 16}, {100, 32, 32}};

TEST_P(IndexTest, keys_are_normalised_rotated_and_stored_where_the_rows_say) {
  for (const IndexDims& dims : kIndexDims)
    for (const bool f8 : key_forms()) {
      SCOPED_TRACE(std::to_string(dims.dim) + (f8 ? ", f8" : ", f32"));
      constexpr int64_t kTokens = 9, kBlocks = 3, kTokensOfBlock = 4;
      ref::Random random(11);
      const HostTensor k = random.normal(act(), {kTokens, dims.dim}, 3.0);
      const HostTensor weight = random.normal(DType::kF32, {dims.dim});
      const HostTensor bias = random.normal(DType::kF32, {dims.dim});
      const HostTensor table = random.uniform(DType::kF32, {kTokens, dims.rope}, -1, 1);
      HostTensor kv_rows(DType::kI64, {kTokens});
      const std::vector<int32_t> order = random.permutation(kBlocks * kTokensOfBlock);
      for (int64_t t = 0; t < kTokens; ++t)
        kv_rows.at(t) = t % 4 == 3 ? -1 : order[static_cast<size_t>(t)];
      const DType keys = f8 ? DType::kF8E4M3 : DType::kF32;
      const DeviceTensor values = empty(keys, {kBlocks, kTokensOfBlock, dims.dim});
      const DeviceTensor scales = empty(DType::kF32, {kBlocks, kTokensOfBlock});
      const DeviceTensor k_in = upload(k), w_in = upload(weight), b_in = upload(bias);
      const DeviceTensor t_in = upload(table), rows_in = upload(kv_rows);
      ops::index_append(
          {.k = k_in.view(),
           .weight = w_in.view(),
           .bias = b_in.view(),
           .eps = 1e-6f,
           .table = t_in.view(),
           .kv_rows = rows_in.view(),
           .cache = {.values = values.view(), .scales = f8 ? scales.view() : Tensor()}},
          stream());
      const ref::IndexRows expected = ref::index_keys(k, weight, bias, 1e-6, table, f8);
      const HostTensor expected_keys = times_scale(expected.values, expected.scale);
      const HostTensor got = download(values.view()).reshaped({12, dims.dim});
      const HostTensor got_scale = download(scales.view()).reshaped({12});
      std::vector<bool> written(12);
      for (int64_t t = 0; t < kTokens; ++t) {
        if (kv_rows.at(t) < 0) continue;
        const auto row = static_cast<int64_t>(kv_rows.at(t));
        written[static_cast<size_t>(row)] = true;
        HostTensor scale(DType::kF32, {1}, f8 ? got_scale.at(row) : 1);
        if (f8) {
          EXPECT_EQ(got_scale.at(row), expected.scale.at(t)) << "token " << t;
        }
        expect_close(times_scale(got.rows(row, row + 1), scale), expected_keys.rows(t, t + 1),
                     bounds_of(f8));
      }
      for (int64_t row = 0; row < 12; ++row) {
        EXPECT_EQ(std::isnan(got.at(row, 0)), !written[static_cast<size_t>(row)]) << row;
      }
    }
}

TEST_P(IndexTest, queries_are_rotated_and_weights_carry_their_scale) {
  for (const IndexDims& dims : kIndexDims)
    for (const bool f8 : key_forms()) {
      SCOPED_TRACE(std::to_string(dims.dim) + (f8 ? ", f8" : ", f32"));
      constexpr int64_t kTokens = 3;
      ref::Random random(12);
      const HostTensor q = random.normal(act(), {kTokens, dims.heads, dims.dim}, 2.0);
      const HostTensor w = random.normal(DType::kF32, {kTokens, dims.heads});
      const HostTensor table = random.uniform(DType::kF32, {kTokens, dims.rope}, -1, 1);
      const DeviceTensor q_in = upload(q), w_in = upload(w), t_in = upload(table);
      const DeviceTensor out =
          empty(f8 ? DType::kF8E4M3 : DType::kF32, {kTokens, dims.heads, dims.dim});
      // Without FP8 the model computes queries where they are.
      ops::index_query({.q = q_in.view(),
                        .w = w_in.view(),
                        .table = t_in.view(),
                        .out = f8 ? out.view() : q_in.view(),
                        .weights = w_in.view()},
                       stream());
      const ref::IndexRows expected = ref::index_queries(q, table, f8);
      constexpr Bound kWeights{.abs = 1e-6, .rel = 1e-6, .one_minus_cosine = 1e-11};
      expect_close(download(w_in.view()), ref::index_weights(w, expected, dims.dim),
                   {.f32 = kWeights, .bf16 = kWeights});
      expect_close(times_scale(download(f8 ? out.view() : q_in.view()), expected.scale),
                   times_scale(expected.values, expected.scale), bounds_of(f8));
    }
}

TEST_P(IndexTest, a_key_that_is_not_finite_stays_visible_in_fp8) {
  // The key is the bias, and the transform of a single value is a row of equal ones.
  for (const double value : {0.0, 3.0, kInfinite, kNotANumber}) {
    const int64_t dim = 128;
    HostTensor bias(DType::kF32, {dim}, 0);
    bias.at(100) = value;
    HostTensor table(DType::kF32, {1, 64}, 0);
    for (int64_t j = 0; j < 32; ++j) table.at(0, j) = 1;
    const DeviceTensor k = upload(HostTensor(act(), {1, dim}, 1.0)),
                       weight = upload(HostTensor(DType::kF32, {dim}, 0)), b = upload(bias),
                       t = upload(table), rows = upload(HostTensor(DType::kI64, {1}, 0));
    const DeviceTensor values = empty(DType::kF8E4M3, {1, 1, dim}),
                       scales = empty(DType::kF32, {1, 1});
    ops::index_append({.k = k.view(),
                       .weight = weight.view(),
                       .bias = b.view(),
                       .table = t.view(),
                       .kv_rows = rows.view(),
                       .cache = {.values = values.view(), .scales = scales.view()}},
                      stream());
    const double scale = download(scales.view()).at(0);
    const HostTensor got = download(values.view());
    if (std::isfinite(value)) {
      EXPECT_EQ(scale, value == 0 ? 0x1p-22 : 0x1p-10);
      EXPECT_NEAR(std::abs(got.at(0)) * scale, value / std::sqrt(128.0), 0.02);
    } else {
      EXPECT_TRUE(std::isnan(got.at(0) * scale)) << value;
    }
  }
}

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

class IndexScoresTest : public IndexTest {
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
  for (const IndexDims& dims : {kIndexDims[0], kIndexDims[2]}) {
    const bool f8 = dims.dim == 128 || key_forms().front();
    const ScoreCase c{.sequences = {{2, 150}}, .topk = 40, .f8 = f8, .dims = dims};
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

class TopRowsTest : public IndexTest {
 protected:
  // One token that sees all of these scores.
  void expect_top(const std::vector<double>& scores, int64_t topk) {
    const int64_t rows = std::ssize(scores), block_tokens = 64;
    const int64_t blocks = (rows + block_tokens - 1) / block_tokens;
    HostTensor padded(DType::kF32, {1, blocks * block_tokens}, kInfinite);
    std::copy(scores.begin(), scores.end(), padded.values.begin());
    HostTensor table(DType::kI32, {1, blocks});
    for (int64_t b = 0; b < blocks; ++b) table.at(0, b) = static_cast<double>(blocks - 1 - b);
    const DeviceTensor in = upload(padded), tables = upload(table);
    const DeviceTensor start = upload({2}, std::vector<int32_t>{0, 1});
    const DeviceTensor len = upload({1}, std::vector<int32_t>{static_cast<int32_t>(rows)});
    const DeviceTensor out = empty(DType::kI32, {1, topk}), counts = empty(DType::kI32, {1});
    ops::top_rows({.scores = in.view(),
                   .queries = {.query_start = start.view(),
                               .kv_len = len.view(),
                               .block_tables = tables.view(),
                               .tree_mask = {},
                               .token_begin = 0,
                               .token_end = 1},
                   .block_tokens = block_tokens,
                   .rows = out.view(),
                   .counts = counts.view()},
                  stream());
    const std::vector<int64_t> expected = ref::top_rows(scores, topk, [](int64_t) { return true; });
    const auto got = download_as<int32_t>(out.view());
    ASSERT_EQ(download_as<int32_t>(counts.view())[0], std::ssize(expected));
    for (size_t i = 0; i < expected.size(); ++i) {
      const int64_t block = blocks - 1 - expected[i] / block_tokens;
      ASSERT_EQ(got[i], block * block_tokens + expected[i] % block_tokens) << "entry " << i;
    }
  }

  static std::vector<double> drawn(size_t count, uint64_t seed, double (*draw)(uint64_t)) {
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
  for (const size_t rows : {1, 63, 64, 65, 66}) expect_top(drawn(rows, rows, draw), 64);
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

// Counts are added up in any order on a GPU: what comes out must not show it.
TEST_P(TopRowsTest, are_the_same_in_every_run) {
  constexpr int64_t kRows = 20000, kTopk = 2048, kBlocks = (kRows + 63) / 64;
  HostTensor padded(DType::kF32, {1, kBlocks * 64}, kInfinite);
  const std::vector<double> scores =
      drawn(kRows, 9, [](uint64_t x) { return static_cast<double>(x % 700); });
  std::copy(scores.begin(), scores.end(), padded.values.begin());
  HostTensor table(DType::kI32, {1, kBlocks});
  for (int64_t b = 0; b < kBlocks; ++b) table.at(0, b) = static_cast<double>(b);
  const DeviceTensor in = upload(padded), tables = upload(table);
  const DeviceTensor start = upload({2}, std::vector<int32_t>{0, 1});
  const DeviceTensor len = upload({1}, std::vector<int32_t>{static_cast<int32_t>(kRows)});
  const DeviceTensor out = empty(DType::kI32, {1, kTopk}), counts = empty(DType::kI32, {1});
  std::vector<uint8_t> first;
  const int runs = backend().device_memory ? 1000 : 3;
  for (int run = 0; run < runs; ++run) {
    ops::top_rows({.scores = in.view(),
                   .queries = {.query_start = start.view(),
                               .kv_len = len.view(),
                               .block_tables = tables.view(),
                               .tree_mask = {},
                               .token_begin = 0,
                               .token_end = 1},
                   .block_tokens = 64,
                   .rows = out.view(),
                   .counts = counts.view()},
                  stream());
    const std::vector<uint8_t> got = bytes(out.view());
    if (run == 0) first = got;
    ASSERT_EQ(got, first) << "run " << run;
  }
}

// ---- Attention to lists of rows.

class MlaSparseTest : public MlaAbsorbedFixture {
 protected:
  // lists: rows of the sequence that each token attends to.
  std::vector<uint8_t> run_listed(const AbsorbedCase& c, const AbsorbedInputs& in,
                                  const std::vector<std::vector<int64_t>>& lists, int64_t width,
                                  HostTensor* values = nullptr) {
    const int64_t tokens = in.query_start.back();
    HostTensor rows(DType::kI32, {tokens, width}, -1), counts(DType::kI32, {tokens});
    size_t sequence = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      while (in.query_start[sequence + 1] <= t) ++sequence;
      const std::vector<int64_t>& list = lists[static_cast<size_t>(t)];
      counts.at(t) = static_cast<double>(list.size());
      for (size_t i = 0; i < list.size(); ++i)
        rows.at(t, static_cast<int64_t>(i)) =
            in.block_tables.at(static_cast<int64_t>(sequence), list[i] / kCacheBlockTokens) *
                kCacheBlockTokens +
            static_cast<double>(list[i] % kCacheBlockTokens);
    }
    const auto num_rows = static_cast<int64_t>(in.cache.size()) / in.format.row_bytes;
    const DeviceTensor cache =
        upload({num_rows / kCacheBlockTokens, kCacheBlockTokens, in.format.row_bytes}, in.cache);
    const DeviceTensor q_latent = upload(in.q_latent), q_rope = upload(in.q_rope);
    const DeviceTensor rows_in = upload(rows), counts_in = upload(counts);
    const DeviceTensor out = empty(act(), {tokens, c.dims.heads, c.dims.rank});
    ops::mla_sparse({.q_latent = q_latent.view(),
                     .q_rope = q_rope.view(),
                     .cache = {.rows = cache.view(), .format = in.format},
                     .rows = rows_in.view(),
                     .counts = counts_in.view(),
                     .scale = in.scale,
                     .out = out.view()},
                    stream());
    if (values != nullptr) *values = download(out.view());
    return bytes(out.view());
  }

  // All rows that each token sees, or every third of them and its own.
  static std::vector<std::vector<int64_t>> lists_of(const AbsorbedCase& c, const AbsorbedInputs& in,
                                                    int64_t step) {
    std::vector<std::vector<int64_t>> lists;
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const QuerySequence& sequence = c.sequences[s];
      std::vector<uint64_t> mask;
      if (c.with_tree && sequence.queries <= ops::kMaxTreeTokens)
        mask.assign(in.tree_mask.begin() + in.query_start[s],
                    in.tree_mask.begin() + in.query_start[s + 1]);
      const ref::Sees sees = sees_rule(sequence.kv_len - sequence.queries, mask);
      for (int64_t query = 0; query < sequence.queries; ++query) {
        lists.emplace_back();
        const int64_t own = sequence.kv_len - sequence.queries + query;
        for (int64_t row = 0; row < sequence.kv_len; ++row)
          if (sees(query, row) && (row % step == 0 || row == own)) lists.back().push_back(row);
      }
    }
    return lists;
  }

  // Every third row of each token and its own.
  void expect_listed(const AbsorbedCase& c) {
    SCOPED_TRACE(std::string(tensor::dtype_name(c.cache_dtype)) + ", heads " +
                 std::to_string(c.dims.heads));
    const AbsorbedInputs in = make_absorbed_inputs(c, act());
    const std::vector<std::vector<int64_t>> lists = lists_of(c, in, 3);
    HostTensor got;
    run_listed(c, in, lists, 2100, &got);
    const HostTensor q = concatenated(in.q_latent, in.q_rope);
    for (size_t s = 0; s < c.sequences.size(); ++s) {
      const int64_t begin = in.query_start[s], end = in.query_start[s + 1];
      if (c.sequences[s].kv_len == 0) {
        for (int64_t i = 0; i < c.dims.rank; ++i) EXPECT_EQ(got.at(begin, 0, i), 0);
        continue;
      }
      const HostTensor expected = ref::attention(
          q.rows(begin, end), in.rows[s], in.rows[s].columns(0, c.dims.rank), in.scale,
          [&](int64_t query, int64_t row) {
            const std::vector<int64_t>& list = lists[static_cast<size_t>(begin + query)];
            return std::find(list.begin(), list.end(), row) != list.end();
          });
      expect_close(got.rows(begin, end), expected, kAttentionBounds);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(backends, MlaSparseTest,
                         testing::ValuesIn(backends_with(&ops::Backend::mla_sparse)), backend_name);

const std::vector<QuerySequence> kListedSequences = {{1, 513},  {3, 64},  {2, 0},   {1, 1},
                                                     {66, 130}, {7, 700}, {1, 9000}};

TEST_P(MlaSparseTest, with_all_rows_gives_the_bits_of_absorbed_attention) {
  for (const DType cache : kCacheTypes)
    for (const bool with_tree : {false, true}) {
      // A GPU adds up rows by their places in the sequence or in the list, and lists have no gaps.
      if (with_tree && backend().device_memory) continue;
      AbsorbedCase c{.dims = kAttentionDims[1],
                     .sequences = kListedSequences,
                     .cache_dtype = cache,
                     .with_tree = with_tree,
                     .seed = 31};
      if (cache == DType::kF32) {
        c.dims = kAttentionDims[2];
      } else if (backend().device_memory) {
        c.dims = kAttentionDims[0];
      }
      const AbsorbedInputs in = make_absorbed_inputs(c, act());
      EXPECT_EQ(run_listed(c, in, lists_of(c, in, 1), 9000), run(c, in, 0, c.sequences.size()))
          << tensor::dtype_name(cache);
    }
}

TEST_P(MlaSparseTest, attends_to_the_rows_of_the_lists_alone) {
  for (const DType cache : kCacheTypes)
    for (const int64_t heads : {3, 16, 64, 128}) {
      AbsorbedCase c{.dims = kAttentionDims[0],
                     .sequences = {{2, 400}, {1, 0}, {3, 70}},
                     .cache_dtype = cache,
                     .seed = 32};
      c.dims.heads = heads;
      expect_listed(c);
    }
  // A decode of several sequences of published lists, and a prompt's tokens.
  for (const std::vector<QuerySequence>& sequences :
       {std::vector<QuerySequence>{{1, 6100}, {1, 3000}, {1, 30}},
        std::vector<QuerySequence>{{40, 700}}}) {
    AbsorbedCase c{.dims = kAttentionDims[0],
                   .sequences = sequences,
                   .cache_dtype = DType::kF8E4M3,
                   .seed = 33};
    c.dims.heads = 16;
    expect_listed(c);
  }
}

}  // namespace
}  // namespace fathom::ops_test
