#pragma once
// What the tests of mla_absorbed share: calls on the host, their oracle, and the fixture that runs them.
//
//   class MyTest : public MlaAbsorbedFixture {};
//   expect_matches_oracle({.dims = kAttentionDims[0], .sequences = {{1, 64}, {4, 67}}});   // query tokens, rows

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/mla.h"
#include "tests/ops/attention_cases.h"
#include "tests/ops/kv_rows.h"

namespace fathom::ops_test {

inline constexpr int64_t kCacheBlockTokens = 64;

struct QuerySequence {
  int64_t queries, kv_len;  // kv_len 0 = padding
};

struct AbsorbedCase {
  AttentionDims dims;
  std::vector<QuerySequence> sequences;
  DType cache_dtype = DType::kF32;
  bool with_tree = false;
  uint64_t seed = 1;
  int64_t rope_offset = 3;  // of q_rope in a query; 8: aligned
};

// One call on the host. Rows that belong to nobody are NaN, so reading one shows.
struct AbsorbedInputs {
  ops::KvFormat format;
  HostTensor q_latent, q_rope, block_tables;
  std::vector<uint8_t> cache;
  std::vector<HostTensor> rows;  // per sequence [kv_len, 1, kv_dim]
  std::vector<int32_t> query_start = {0}, kv_len;
  std::vector<uint64_t> tree_mask;  // all tokens
  float scale = 1;
};

// Scatters the sequences' rows over shuffled blocks, and replaces them by what is stored of them.
inline void lay_out_cache(const AbsorbedCase& c, ref::Random& random, AbsorbedInputs& in) {
  int64_t max_blocks = 1, num_blocks = 1;
  for (const QuerySequence& s : c.sequences) {
    const int64_t blocks = (s.kv_len + kCacheBlockTokens - 1) / kCacheBlockTokens;
    max_blocks = std::max(max_blocks, blocks);
    num_blocks += blocks;
  }
  const int64_t seqs = static_cast<int64_t>(c.sequences.size());
  const std::vector<int32_t> order = random.permutation(static_cast<int>(num_blocks));
  const auto row_bytes = static_cast<size_t>(in.format.row_bytes);
  in.cache.assign(static_cast<size_t>(num_blocks * kCacheBlockTokens) * row_bytes, 0xff);
  in.block_tables = HostTensor(DType::kI32, {seqs, max_blocks}, -1);
  size_t next_block = 0;
  for (int64_t s = 0; s < seqs; ++s) {
    HostTensor& rows = in.rows[static_cast<size_t>(s)];
    const std::vector<uint8_t> bytes = encode_rows(rows, in.format);
    rows.values = decode_rows(bytes, in.format).values;
    for (int64_t row = 0; row < rows.dim(0); ++row) {
      double& block = in.block_tables.at(s, row / kCacheBlockTokens);
      if (row % kCacheBlockTokens == 0) block = order[next_block++];
      const size_t to = static_cast<size_t>(block) * kCacheBlockTokens +
                        static_cast<size_t>(row % kCacheBlockTokens);
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * row_bytes),
                  row_bytes, in.cache.begin() + static_cast<std::ptrdiff_t>(to * row_bytes));
    }
  }
}

inline AbsorbedInputs make_absorbed_inputs(const AbsorbedCase& c, DType act) {
  ref::Random random(c.seed);
  AbsorbedInputs in;
  const int64_t kv_dim = c.dims.rank + c.dims.rope;
  in.format = ops::KvFormat::of(c.cache_dtype, c.dims.rank, c.dims.rope);
  for (const QuerySequence& s : c.sequences) {
    in.query_start.push_back(in.query_start.back() + static_cast<int32_t>(s.queries));
    in.kv_len.push_back(static_cast<int32_t>(s.kv_len));
    in.rows.push_back(random.normal(DType::kF32, {s.kv_len, 1, kv_dim}));
    const bool is_tree = c.with_tree && s.queries <= ops::kMaxTreeTokens;
    std::vector<uint64_t> tree = random_tree(random, is_tree ? s.queries : 0);
    // Longer sequences are causal, whatever stands here.
    if (c.with_tree && !is_tree) tree.assign(static_cast<size_t>(s.queries), 0b10110);
    in.tree_mask.insert(in.tree_mask.end(), tree.begin(), tree.end());
  }
  const int64_t tokens = in.query_start.back();
  in.q_latent = random.normal(act, {tokens, c.dims.heads, c.dims.rank});
  in.q_rope = random.normal(act, {tokens, c.dims.heads, c.dims.rope});
  in.scale = static_cast<float>(1.5 / std::sqrt(static_cast<double>(kv_dim)));
  lay_out_cache(c, random, in);
  return in;
}

// [tokens, heads, a] ++ [tokens, heads, b]
inline HostTensor concatenated(const HostTensor& a, const HostTensor& b) {
  HostTensor out(a.dtype, {a.dim(0), a.dim(1), a.dim(2) + b.dim(2)});
  for (int64_t t = 0; t < out.dim(0); ++t) {
    for (int64_t h = 0; h < out.dim(1); ++h) {
      for (int64_t i = 0; i < a.dim(2); ++i) out.at(t, h, i) = a.at(t, h, i);
      for (int64_t i = 0; i < b.dim(2); ++i) out.at(t, h, a.dim(2) + i) = b.at(t, h, i);
    }
  }
  return out;
}

inline HostTensor expected_output(const AbsorbedCase& c, const AbsorbedInputs& in) {
  HostTensor out(DType::kF32, {in.query_start.back(), c.dims.heads, c.dims.rank});
  const HostTensor q = concatenated(in.q_latent, in.q_rope);
  for (size_t s = 0; s < c.sequences.size(); ++s) {
    if (c.sequences[s].kv_len == 0) continue;  // zeros
    const int64_t begin = in.query_start[s], end = in.query_start[s + 1];
    std::vector<uint64_t> mask;
    if (c.with_tree && end - begin <= ops::kMaxTreeTokens)
      mask.assign(in.tree_mask.begin() + begin, in.tree_mask.begin() + end);
    const HostTensor part =
        ref::attention(q.rows(begin, end), in.rows[s], in.rows[s].columns(0, c.dims.rank),
                       static_cast<double>(in.scale),
                       sees_rule(c.sequences[s].kv_len - c.sequences[s].queries, mask));
    std::copy(part.values.begin(), part.values.end(),
              out.values.begin() + begin * c.dims.heads * c.dims.rank);
  }
  return out;
}

// Tables are views of wider ones, as in a step whose sequences are shorter than others may be.
inline HostTensor with_spare_columns(const HostTensor& tables) {
  HostTensor wide(tables.dtype, {tables.dim(0), tables.dim(1) + 3}, -1);
  for (int64_t s = 0; s < tables.dim(0); ++s)
    for (int64_t block = 0; block < tables.dim(1); ++block) wide.at(s, block) = tables.at(s, block);
  return wide;
}

// What a call reads and writes on the device.
struct AbsorbedCall {
  DeviceTensor q_latent, q, cache, query_start, kv_len, tables, mask, out, plan;
  ops::MlaAbsorbedArgs args;
};

class MlaAbsorbedFixture : public OpsTest {
 protected:
  // Sequences [first, last) of the inputs in one call; their output in memory order.
  std::vector<uint8_t> run(const AbsorbedCase& c, const AbsorbedInputs& in, size_t first,
                           size_t last, HostTensor* out_values = nullptr) {
    const AbsorbedCall call = make_call(c, in, first, last);
    ops::mla_absorbed(call.args, stream());
    if (out_values != nullptr) *out_values = download(call.out.view());
    return bytes(call.out.view());
  }

  AbsorbedCall make_call(const AbsorbedCase& c, const AbsorbedInputs& in, size_t first,
                         size_t last) {
    const auto seqs = static_cast<int64_t>(last - first);
    const int64_t begin = in.query_start[first], end = in.query_start[last];
    std::vector<int32_t> start(in.query_start.begin() + static_cast<std::ptrdiff_t>(first),
                               in.query_start.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    for (int32_t& value : start) value -= static_cast<int32_t>(begin);
    // q_rope is the tail of a wider query, as in the model.
    const HostTensor padding(act(), {end - begin, c.dims.heads, c.rope_offset}, 1.0);
    const auto num_rows = static_cast<int64_t>(in.cache.size()) / in.format.row_bytes;
    const ops::MlaPlanShape shape{.tokens = end - begin, .sequences = seqs, .heads = c.dims.heads};
    const auto row_begin = static_cast<std::ptrdiff_t>(first);
    const auto row_end = static_cast<std::ptrdiff_t>(last);
    const int64_t blocks = in.block_tables.dim(1);
    AbsorbedCall call{
        .q_latent = upload(in.q_latent.rows(begin, end)),
        .q = upload(concatenated(padding, in.q_rope.rows(begin, end))),
        .cache = upload({num_rows / kCacheBlockTokens, kCacheBlockTokens, in.format.row_bytes},
                        in.cache),
        .query_start = upload({seqs + 1}, start),
        .kv_len = upload({seqs}, std::vector<int32_t>(in.kv_len.begin() + row_begin,
                                                      in.kv_len.begin() + row_end)),
        .tables = upload(with_spare_columns(in.block_tables.rows(row_begin, row_end))),
        .mask = upload({static_cast<int64_t>(in.tree_mask.size())}, in.tree_mask),
        .out = empty(act(), {end - begin, c.dims.heads, c.dims.rank}),
        .plan = empty(DType::kU8, {wants_plan_ ? backend().mla_plan_bytes(shape) : 1}),
        .args = {}};
    call.args = {.q_latent = call.q_latent.view(),
                 .q_rope = call.q.view().slice(2, c.rope_offset, c.rope_offset + c.dims.rope),
                 .cache = {.rows = call.cache.view(), .format = in.format},
                 .query_start = call.query_start.view(),
                 .kv_len = call.kv_len.view(),
                 .block_tables = call.tables.view().slice(1, 0, blocks),
                 .tree_mask = c.with_tree ? call.mask.view().slice(0, begin, end) : Tensor(),
                 .plan = wants_plan_ ? call.plan.view() : Tensor(),
                 .scale = in.scale,
                 .out = call.out.view()};
    if (wants_plan_)
      ops::mla_plan({.query_start = call.query_start.view(),
                     .kv_len = call.kv_len.view(),
                     .tree_mask = call.args.tree_mask,
                     .tokens = end - begin,
                     .heads = c.dims.heads,
                     .max_rows = blocks * kCacheBlockTokens,
                     .plan = call.plan.view()},
                    stream());
    return call;
  }

  bool wants_plan_ = false;

  void expect_matches_oracle(const AbsorbedCase& c) {
    const AbsorbedInputs in = make_absorbed_inputs(c, act());
    HostTensor actual;
    run(c, in, 0, c.sequences.size(), &actual);
    expect_close(actual, expected_output(c, in), kAttentionBounds);
  }

  // The last row of a sequence of 70 with three query tokens becomes NaN: only the last of them sees it.
  void expect_nan_stays(const AttentionDims& dims, DType cache_dtype) {
    const AbsorbedCase c{
        .dims = dims, .sequences = {{3, 70}}, .cache_dtype = cache_dtype, .seed = 12};
    AbsorbedInputs in = make_absorbed_inputs(c, act());
    HostTensor clean, bad;
    run(c, in, 0, 1, &clean);
    const auto block = static_cast<int64_t>(in.block_tables.at(0, 1));
    const auto row = static_cast<std::ptrdiff_t>(
        (block * kCacheBlockTokens + 69 - kCacheBlockTokens) * in.format.row_bytes);
    std::fill_n(in.cache.begin() + row, 8, 0xff);  // NaN in each type
    run(c, in, 0, 1, &bad);
    for (int64_t head = 0; head < c.dims.heads; ++head) {
      for (int64_t i = 0; i < c.dims.rank; ++i) {
        EXPECT_EQ(bad.at(0, head, i), clean.at(0, head, i));
        EXPECT_EQ(bad.at(1, head, i), clean.at(1, head, i));
      }
      EXPECT_TRUE(std::isnan(bad.at(2, head, 0)));
    }
  }
};

// V3 with the heads of one of eight ranks, and with more than a block's.
inline constexpr AttentionDims kRankDims{
    .heads = 16, .rank = 512, .rope = 64, .nope = 128, .v = 128};
inline constexpr AttentionDims kManyHeadsDims{
    .heads = 80, .rank = 512, .rope = 64, .nope = 128, .v = 128};

}  // namespace fathom::ops_test
