// mla_expanded, alone and against mla_absorbed.

#include <algorithm>
#include <cmath>

#include "ops/index.h"
#include "ops/mla.h"
#include "tests/ops/attention_cases.h"
#include "tests/ops/kv_rows.h"

namespace fathom::ops_test {
namespace {

// One prompt: keys and values of all rows, queries of the last ones.
struct Prompt {
  AttentionDims dims;
  int64_t query_begin = 0;
  HostTensor q, kv, k_rope;
  std::vector<uint64_t> tree_mask;
  float scale = 1;
  // Of queries from the row kept_from on, a row each.
  std::vector<uint32_t> kept{};
  int64_t kept_from = 0;
  int64_t words() const { return ops::kept_words(rows()); }
  int64_t rows() const { return kv.dim(0); }
  int64_t queries() const { return q.dim(0); }
};

Prompt make_prompt(const AttentionDims& dims, int64_t rows, int64_t queries, DType act,
                   uint64_t seed) {
  ref::Random random(seed);
  return {.dims = dims,
          .query_begin = rows - queries,
          .q = random.normal(act, {queries, dims.heads, dims.nope + dims.rope}),
          .kv = random.normal(act, {rows, dims.heads, dims.nope + dims.v}),
          .k_rope = random.normal(act, {rows, dims.rope}),
          .tree_mask = {},
          .scale = static_cast<float>(1.3 / std::sqrt(static_cast<double>(dims.nope + dims.rope)))};
}

HostTensor expected_output(const Prompt& p) {
  const AttentionDims& d = p.dims;
  HostTensor keys(DType::kF32, {p.rows(), d.heads, d.nope + d.rope});
  for (int64_t row = 0; row < p.rows(); ++row) {
    for (int64_t h = 0; h < d.heads; ++h) {
      for (int64_t i = 0; i < d.nope; ++i) keys.at(row, h, i) = p.kv.at(row, h, i);
      for (int64_t i = 0; i < d.rope; ++i) keys.at(row, h, d.nope + i) = p.k_rope.at(row, i);
    }
  }
  const ref::Sees sees = sees_rule(p.query_begin, p.tree_mask);
  return ref::attention(p.q, keys, p.kv.columns(d.nope, d.nope + d.v), static_cast<double>(p.scale),
                        [&](int64_t query, int64_t row) {
                          const bool keeps =
                              p.kept.empty() || p.query_begin + query < p.kept_from ||
                              ops::keeps_row(&p.kept[static_cast<size_t>(query * p.words())], row);
                          return keeps && sees(query, row);
                        });
}

class MlaExpandedTest : public OpsTest {
 protected:
  struct Run {
    HostTensor values;
    std::vector<uint8_t> bytes;
  };
  // Queries [begin, end) of the prompt over all rows up to `rows`, cut at multiples of chunk_rows.
  Run run(const Prompt& p, int64_t begin, int64_t end, int64_t rows, int64_t chunk_rows) {
    const int64_t queries = end - begin, heads = p.dims.heads;
    const DeviceTensor q = upload(p.q.rows(begin, end)), kv = upload(p.kv);
    const DeviceTensor k_rope = upload(p.k_rope);
    const DeviceTensor mask = upload({static_cast<int64_t>(p.tree_mask.size())}, p.tree_mask);
    const std::vector<int32_t> words(p.kept.begin(), p.kept.end());
    const DeviceTensor kept =
        upload({words.empty() ? 0 : p.queries(), words.empty() ? 0 : p.words()}, words);
    const DeviceTensor state_max = empty(DType::kF32, {queries, heads});
    const DeviceTensor state_sum = empty(DType::kF32, {queries, heads});
    const DeviceTensor state_acc = empty(DType::kF32, {queries, heads, p.dims.v});
    const DeviceTensor out = empty(act(), {queries, heads, p.dims.v});
    for (int64_t key = 0; key < rows; key += chunk_rows) {
      const int64_t key_end = std::min(key + chunk_rows, rows);
      const ops::ExpandedSegment segment{.row_begin = key,
                                         .num_rows = key_end - key,
                                         .num_tokens = queries,
                                         .query_begin = p.query_begin + begin,
                                         .first = key == 0,
                                         .last = key_end == rows,
                                         .has_tree_mask = !p.tree_mask.empty()};
      ops::mla_expanded({.q = q.view(),
                         .kv = kv.view().slice(0, key, key_end),
                         .k_rope = k_rope.view().slice(0, key, key_end),
                         .segments = {&segment, 1},
                         .tree_mask = p.tree_mask.empty() ? Tensor() : mask.view(),
                         .kept = p.kept.empty() ? Tensor() : kept.view().slice(0, begin, end),
                         .kept_from = p.kept_from,
                         .scale = p.scale,
                         .state_max = state_max.view(),
                         .state_sum = state_sum.view(),
                         .state_acc = state_acc.view(),
                         .out = out.view()},
                        stream());
    }
    return {.values = download(out.view()), .bytes = bytes(out.view())};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, MlaExpandedTest, testing::ValuesIn(tested_backends()),
                         backend_name);

TEST_P(MlaExpandedTest, matches_float64_for_whole_prompts_and_with_a_cached_prefix) {
  for (const AttentionDims& dims : kAttentionDims) {
    for (const int64_t rows : {1, 61, 130}) {
      for (const int64_t queries : {int64_t{1}, rows / 2 + 1, rows}) {
        SCOPED_TRACE(testing::Message() << "rank " << dims.rank << ", " << queries << " queries of "
                                        << rows << " rows");
        const Prompt p = make_prompt(dims, rows, queries, act(), 1);
        expect_close(run(p, 0, queries, rows, 64).values, expected_output(p), kAttentionBounds);
      }
    }
  }
}

TEST_P(MlaExpandedTest, a_chunk_that_nobody_sees_changes_nothing) {
  // All rows are offered to every query; those behind it must not count.
  const Prompt p = make_prompt(kAttentionDims[1], 200, 200, act(), 2);
  const Run whole = run(p, 0, 200, 200, 32);
  for (const int64_t query : {0, 31, 32, 63, 150}) {
    const Run offered = run(p, query, query + 1, 200, 32);
    const Run needed = run(p, query, query + 1, query + 1, 32);
    EXPECT_EQ(offered.bytes, needed.bytes) << query;
  }
  expect_close(whole.values, expected_output(p), kAttentionBounds);
}

TEST_P(MlaExpandedTest, output_does_not_depend_on_how_the_prompt_is_cut) {
  for (const AttentionDims& dims : kAttentionDims) {
    const Prompt p = make_prompt(dims, 300, 300, act(), 3);
    const Run whole = run(p, 0, 300, 300, 64);
    for (const int64_t chunk_tokens : {1, 63, 64, 65, 128, 299}) {
      std::vector<uint8_t> pieces;
      for (int64_t begin = 0; begin < 300; begin += chunk_tokens) {
        const int64_t end = std::min<int64_t>(begin + chunk_tokens, 300);
        if (chunk_tokens == 1 && begin % 7 != 0) {  // single tokens: a sample
          const size_t bytes_per_query = whole.bytes.size() / 300;
          const auto from = whole.bytes.begin() + static_cast<std::ptrdiff_t>(
                                                      bytes_per_query * static_cast<size_t>(begin));
          pieces.insert(pieces.end(), from, from + static_cast<std::ptrdiff_t>(bytes_per_query));
          continue;
        }
        const Run piece = run(p, begin, end, end, 64);
        pieces.insert(pieces.end(), piece.bytes.begin(), piece.bytes.end());
      }
      EXPECT_EQ(pieces, whole.bytes) << chunk_tokens;
    }
  }
}

TEST_P(MlaExpandedTest, queries_with_bits_see_the_rows_that_these_keep_however_they_are_cut) {
  for (const AttentionDims& dims : kAttentionDims) {
    Prompt p = make_prompt(dims, 411, 350, act(), 12);
    p.kept_from = 200;
    ref::Random random(13);
    for (int64_t query = 0; query < p.queries(); ++query) {
      const size_t first = p.kept.size();
      // Some keep nothing of whole tiles.
      for (int64_t word = 0; word < p.words(); ++word)
        p.kept.push_back(query % 3 == 0 && word < 8 ? 0 : static_cast<uint32_t>(random.engine()()));
      const int64_t own = p.query_begin + query;
      p.kept[first + static_cast<size_t>(ops::kept_word(own))] |= ops::kept_bit(own);
    }
    const Run whole = run(p, 0, p.queries(), p.rows(), 128);
    expect_close(whole.values, expected_output(p), kAttentionBounds);
    for (const int64_t chunk_tokens : {63, 64, 130}) {
      std::vector<uint8_t> pieces;
      for (int64_t begin = 0; begin < p.queries(); begin += chunk_tokens) {
        const int64_t end = std::min(begin + chunk_tokens, p.queries());
        const Run piece = run(p, begin, end, p.query_begin + end, 128);
        pieces.insert(pieces.end(), piece.bytes.begin(), piece.bytes.end());
      }
      EXPECT_EQ(pieces, whole.bytes) << chunk_tokens;
    }
    // Bits of all rows change nothing.
    std::fill(p.kept.begin(), p.kept.end(), ~0u);
    const Run all = run(p, 0, p.queries(), p.rows(), 128);
    p.kept.clear();
    EXPECT_EQ(all.bytes, run(p, 0, p.queries(), p.rows(), 128).bytes);
  }
}

TEST_P(MlaExpandedTest, a_tree_token_sees_the_prefix_its_ancestors_and_itself) {
  for (const AttentionDims& dims : kAttentionDims) {
    for (const int64_t queries : {1, 7, 64}) {
      Prompt p = make_prompt(dims, 100 + queries, queries, act(), 4);
      ref::Random random(5);
      p.tree_mask = random_tree(random, queries);
      // Chunks of 16: some hold only rows that a query does not see.
      expect_close(run(p, 0, queries, p.rows(), 16).values, expected_output(p), kAttentionBounds);
    }
  }
}

TEST_P(MlaExpandedTest, no_queries_give_nothing) {
  const Prompt p = make_prompt(kAttentionDims[1], 10, 0, act(), 6);
  EXPECT_TRUE(run(p, 0, 0, 10, 64).bytes.empty());
}

TEST_P(MlaExpandedTest, a_nan_value_reaches_only_the_queries_that_see_it) {
  for (const AttentionDims& dims : {kAttentionDims[0], kAttentionDims[1]}) {
    Prompt p = make_prompt(dims, 40, 40, act(), 7);
    const Run clean = run(p, 0, 40, 40, 16);
    p.kv.at(20, 0, p.dims.nope) = std::nan("");
    const Run bad = run(p, 0, 40, 40, 16);
    for (int64_t query = 0; query < 40; ++query) {
      EXPECT_EQ(std::isnan(bad.values.at(query, 0, 0)), query >= 20) << query;
      EXPECT_FALSE(std::isnan(bad.values.at(query, 1, 0))) << query;
      EXPECT_FALSE(std::isnan(bad.values.at(query, 0, 1))) << query;
    }
    const auto untouched = static_cast<std::ptrdiff_t>(clean.bytes.size() / 40 * 20);
    EXPECT_TRUE(
        std::equal(clean.bytes.begin(), clean.bytes.begin() + untouched, bad.bytes.begin()));
  }
}

// Sequences of several lengths in one call, their rows side by side, against each alone; tokens of no segment in
// front of, between and behind them are left as they are.
class ManyMlaExpandedTest : public MlaExpandedTest {
 protected:
  void expect_bits_of_each_alone(const AttentionDims& d);
};
INSTANTIATE_TEST_SUITE_P(backends, ManyMlaExpandedTest, testing::ValuesIn(tested_backends()),
                         backend_name);

void ManyMlaExpandedTest::expect_bits_of_each_alone(const AttentionDims& d) {
  struct One {
    int64_t rows, queries;
    bool tree;
  };
  const std::vector<One> ones = {{70, 70, false}, {1, 1, false}, {130, 5, true}, {64, 49, false}};
  std::vector<Prompt> prompts;
  std::vector<ops::ExpandedSegment> segments;
  int64_t tokens = 1, rows = 0;
  for (const One& one : ones) {
    Prompt p = make_prompt(d, one.rows, one.queries, act(), static_cast<uint64_t>(one.rows));
    ref::Random random(11);
    if (one.tree) p.tree_mask = random_tree(random, one.queries);
    segments.push_back({.num_rows = one.rows,
                        .buffer_begin = rows,
                        .token_begin = tokens,
                        .num_tokens = one.queries,
                        .query_begin = p.query_begin,
                        .first = true,
                        .last = true,
                        .has_tree_mask = one.tree});
    prompts.push_back(std::move(p));
    tokens += one.queries + 1;
    rows += one.rows;
  }
  HostTensor q(act(), {tokens, d.heads, d.nope + d.rope});
  HostTensor kv(act(), {rows, d.heads, d.nope + d.v}), k_rope(act(), {rows, d.rope});
  std::vector<uint64_t> masks(static_cast<size_t>(tokens), 0);
  const auto put = [](const HostTensor& from, int64_t row, HostTensor& to) {
    const auto width = to.values.size() / static_cast<size_t>(to.dim(0));
    std::copy(from.values.begin(), from.values.end(),
              to.values.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * width));
  };
  for (size_t i = 0; i < prompts.size(); ++i) {
    put(prompts[i].q, segments[i].token_begin, q);
    put(prompts[i].kv, segments[i].buffer_begin, kv);
    put(prompts[i].k_rope, segments[i].buffer_begin, k_rope);
    std::copy(prompts[i].tree_mask.begin(), prompts[i].tree_mask.end(),
              masks.begin() + segments[i].token_begin);
  }
  const DeviceTensor device_q = upload(q), device_kv = upload(kv), device_k_rope = upload(k_rope);
  const DeviceTensor device_masks = upload({tokens}, masks);
  const DeviceTensor state_max = upload(HostTensor(DType::kF32, {tokens, d.heads}, 7));
  const DeviceTensor state_sum = upload(HostTensor(DType::kF32, {tokens, d.heads}, 2));
  const DeviceTensor state_acc = upload(HostTensor(DType::kF32, {tokens, d.heads, d.v}, 6));
  const DeviceTensor out = upload(HostTensor(act(), {tokens, d.heads, d.v}, 3));
  ops::mla_expanded({.q = device_q.view(),
                     .kv = device_kv.view(),
                     .k_rope = device_k_rope.view(),
                     .segments = segments,
                     .tree_mask = device_masks.view(),
                     .kept = {},
                     .scale = prompts[0].scale,
                     .state_max = state_max.view(),
                     .state_sum = state_sum.view(),
                     .state_acc = state_acc.view(),
                     .out = out.view()},
                    stream());
  for (const int64_t token : {int64_t{0}, tokens - 1}) {
    EXPECT_EQ(download(out.view()).at(token, d.heads - 1, d.v - 1), 3.0);
    EXPECT_EQ(download(state_sum.view()).at(token, 0), 2.0);
    EXPECT_EQ(download(state_acc.view()).at(token, d.heads - 1, d.v - 1), 6.0);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const int64_t begin = segments[i].token_begin, end = begin + segments[i].num_tokens;
    const int64_t num_rows = prompts[i].rows();
    EXPECT_EQ(bytes(out.view().slice(0, begin, end)),
              run(prompts[i], 0, prompts[i].queries(), num_rows, num_rows).bytes)
        << "sequence " << i;
  }
}

TEST_P(ManyMlaExpandedTest, many_sequences_in_one_call_get_the_bits_of_each_alone) {
  expect_bits_of_each_alone(kAttentionDims[0]);
  expect_bits_of_each_alone(kAttentionDims[1]);
}

// Both forms on the same cache rows: W_UK and W_UV move between query, key and value.
TEST_P(MlaExpandedTest, equals_the_absorbed_form_up_to_rounding) {
  const AttentionDims& d = kAttentionDims[1];
  constexpr int64_t kRows = 64, kQueries = 9;
  ref::Random random(8);
  const HostTensor rows = random.normal(act(), {kRows, d.rank + d.rope});
  const HostTensor w_uk = random.normal(act(), {d.heads, d.nope, d.rank}, 0.15);
  const HostTensor w_uv = random.normal(act(), {d.heads, d.v, d.rank}, 0.15);
  Prompt p = make_prompt(d, kRows, kQueries, act(), 9);
  HostTensor q_latent(act(), {kQueries, d.heads, d.rank});
  HostTensor transposed(act(), {d.heads, d.rank, d.nope}), latent(act(), {kRows, d.heads, d.rank});
  for (int64_t h = 0; h < d.heads; ++h) {
    for (int64_t r = 0; r < d.rank; ++r) {
      for (int64_t i = 0; i < d.nope; ++i) transposed.at(h, r, i) = w_uk.at(h, i, r);
      for (int64_t row = 0; row < kRows; ++row) latent.at(row, h, r) = rows.at(row, r);
    }
  }
  q_latent.values = ref::head_linear(p.q.columns(0, d.nope), transposed).values;
  const HostTensor k_nope = ref::head_linear(latent, w_uk), v = ref::head_linear(latent, w_uv);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t h = 0; h < d.heads; ++h) {
      for (int64_t i = 0; i < d.nope; ++i) p.kv.at(row, h, i) = k_nope.at(row, h, i);
      for (int64_t i = 0; i < d.v; ++i) p.kv.at(row, h, d.nope + i) = v.at(row, h, i);
    }
  }
  p.k_rope = rows.columns(d.rank, d.rank + d.rope);
  const DeviceTensor device_q_latent = upload(q_latent), device_q = upload(p.q);
  const ops::KvFormat format = ops::KvFormat::of(DType::kF32, d.rank, d.rope);
  const DeviceTensor cache = upload({1, kRows, format.row_bytes}, encode_rows(rows, format));
  const DeviceTensor start = upload<int32_t>({2}, {0, kQueries});
  const DeviceTensor kv_len = upload<int32_t>({1}, {kRows}), table = upload<int32_t>({1, 1}, {0});
  const DeviceTensor out = empty(act(), {kQueries, d.heads, d.rank});
  ops::mla_absorbed({.q_latent = device_q_latent.view(),
                     .q_rope = device_q.view().slice(2, d.nope, d.nope + d.rope),
                     .cache = {.rows = cache.view(), .format = format},
                     .query_start = start.view(),
                     .kv_len = kv_len.view(),
                     .block_tables = table.view(),
                     .tree_mask = {},
                     .plan = {},
                     .scale = p.scale,
                     .out = out.view()},
                    stream());
  const HostTensor absorbed = ref::head_linear(download(out.view()), w_uv);
  HostTensor expanded = run(p, 0, kQueries, kRows, 16).values;
  expanded.dtype = absorbed.dtype;
  expect_close(expanded, absorbed, kAttentionBounds);
}

}  // namespace
}  // namespace fathom::ops_test
