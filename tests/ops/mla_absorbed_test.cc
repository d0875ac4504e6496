// mla_absorbed.

#include <algorithm>
#include <cmath>

#include "ops/mla.h"
#include "tests/ops/attention_cases.h"
#include "tests/ops/kv_rows.h"

namespace fathom::ops_test {
namespace {

constexpr int64_t kCacheBlockTokens = 64;

struct Sequence {
  int64_t queries, kv_len;  // kv_len 0 = padding
};

struct Case {
  AttentionDims dims;
  std::vector<Sequence> sequences;
  DType cache_dtype = DType::kF32;
  bool with_tree = false;
  uint64_t seed = 1;
};

// One call on the host. Rows that belong to nobody are NaN, so reading one shows.
struct Inputs {
  ops::KvFormat format;
  HostTensor q_latent, q_rope, block_tables;
  std::vector<uint8_t> cache;
  std::vector<HostTensor> rows;  // per sequence [kv_len, 1, kv_dim]
  std::vector<int32_t> query_start = {0}, kv_len;
  std::vector<uint64_t> tree_mask;  // all tokens
  float scale = 1;
};

// Scatters the sequences' rows over shuffled blocks, and replaces them by what is stored of them.
void lay_out_cache(const Case& c, ref::Random& random, Inputs& in) {
  int64_t max_blocks = 1, num_blocks = 1;
  for (const Sequence& s : c.sequences) {
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

Inputs make_inputs(const Case& c, DType act) {
  ref::Random random(c.seed);
  Inputs in;
  const int64_t kv_dim = c.dims.rank + c.dims.rope;
  in.format = ops::KvFormat::of(c.cache_dtype, c.dims.rank, c.dims.rope);
  for (const Sequence& s : c.sequences) {
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
HostTensor concatenated(const HostTensor& a, const HostTensor& b) {
  HostTensor out(a.dtype, {a.dim(0), a.dim(1), a.dim(2) + b.dim(2)});
  for (int64_t t = 0; t < out.dim(0); ++t) {
    for (int64_t h = 0; h < out.dim(1); ++h) {
      for (int64_t i = 0; i < a.dim(2); ++i) out.at(t, h, i) = a.at(t, h, i);
      for (int64_t i = 0; i < b.dim(2); ++i) out.at(t, h, a.dim(2) + i) = b.at(t, h, i);
    }
  }
  return out;
}

HostTensor expected_output(const Case& c, const Inputs& in) {
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

class MlaAbsorbedTest : public OpsTest {
 protected:
  // Sequences [first, last) of the inputs in one call; their output in memory order.
  std::vector<uint8_t> run(const Case& c, const Inputs& in, size_t first, size_t last,
                           HostTensor* out_values = nullptr) {
    const auto seqs = static_cast<int64_t>(last - first);
    const int64_t begin = in.query_start[first], end = in.query_start[last];
    std::vector<int32_t> start(in.query_start.begin() + static_cast<std::ptrdiff_t>(first),
                               in.query_start.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    for (int32_t& value : start) value -= static_cast<int32_t>(begin);
    const DeviceTensor q_latent = upload(in.q_latent.rows(begin, end));
    // q_rope is the tail of a wider query, as in the model.
    const HostTensor padding(act(), {end - begin, c.dims.heads, 3}, 1.0);
    const DeviceTensor q = upload(concatenated(padding, in.q_rope.rows(begin, end)));
    const auto num_rows = static_cast<int64_t>(in.cache.size()) / in.format.row_bytes;
    const DeviceTensor cache =
        upload({num_rows / kCacheBlockTokens, kCacheBlockTokens, in.format.row_bytes}, in.cache);
    const DeviceTensor query_start = upload({seqs + 1}, start);
    const DeviceTensor kv_len =
        upload({seqs}, std::vector<int32_t>(in.kv_len.begin() + static_cast<std::ptrdiff_t>(first),
                                            in.kv_len.begin() + static_cast<std::ptrdiff_t>(last)));
    const DeviceTensor tables =
        upload(in.block_tables.rows(static_cast<int64_t>(first), static_cast<int64_t>(last)));
    const DeviceTensor mask = upload({static_cast<int64_t>(in.tree_mask.size())}, in.tree_mask);
    const DeviceTensor out = empty(act(), {end - begin, c.dims.heads, c.dims.rank});
    const Tensor tree_mask = c.with_tree ? mask.view().slice(0, begin, end) : Tensor();
    const ops::MlaPlanShape shape{.tokens = end - begin, .sequences = seqs, .heads = c.dims.heads};
    const DeviceTensor plan =
        empty(DType::kU8, {wants_plan_ ? backend().mla_plan_bytes(shape) : 1});
    if (wants_plan_)
      ops::mla_plan({.query_start = query_start.view(),
                     .kv_len = kv_len.view(),
                     .tree_mask = tree_mask,
                     .tokens = end - begin,
                     .heads = c.dims.heads,
                     .max_rows = in.block_tables.dim(1) * kCacheBlockTokens,
                     .plan = plan.view()},
                    stream());
    ops::mla_absorbed({.q_latent = q_latent.view(),
                       .q_rope = q.view().slice(2, 3, 3 + c.dims.rope),
                       .cache = {.rows = cache.view(), .format = in.format},
                       .query_start = query_start.view(),
                       .kv_len = kv_len.view(),
                       .block_tables = tables.view(),
                       .tree_mask = tree_mask,
                       .plan = wants_plan_ ? plan.view() : Tensor(),
                       .scale = in.scale,
                       .out = out.view()},
                      stream());
    if (out_values != nullptr) *out_values = download(out.view());
    return bytes(out.view());
  }

  bool wants_plan_ = false;

  void expect_matches_oracle(const Case& c) {
    const Inputs in = make_inputs(c, act());
    HostTensor actual;
    run(c, in, 0, c.sequences.size(), &actual);
    expect_close(actual, expected_output(c, in), kAttentionBounds);
  }
};
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

// V3 with the heads of one of eight ranks, and with more than a block's.
constexpr AttentionDims kRankDims{.heads = 16, .rank = 512, .rope = 64, .nope = 128, .v = 128};
constexpr AttentionDims kManyHeadsDims{.heads = 80, .rank = 512, .rope = 64, .nope = 128, .v = 128};

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

TEST_P(MlaAbsorbedTest, a_nan_row_reaches_only_the_queries_that_see_it) {
  for (const DType dtype : kCacheTypes) {
    const Case c{.dims = kRankDims, .sequences = {{3, 70}}, .cache_dtype = dtype, .seed = 12};
    Inputs in = make_inputs(c, act());
    HostTensor clean, bad;
    run(c, in, 0, 1, &clean);
    const auto block = static_cast<int64_t>(in.block_tables.at(0, 1));
    const auto row =
        static_cast<std::ptrdiff_t>((block * kCacheBlockTokens + 69 - 64) * in.format.row_bytes);
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
