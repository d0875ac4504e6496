// mla_decode beside its parts, bit for bit, on backends that have it; on the others no call is taken.

#include "ops/mla_decode.h"

#include <algorithm>
#include <cmath>

#include "ops/head_linear.h"
#include "ops/mla.h"
#include "ops/parts_only.h"
#include "ops/quantize_fp8.h"
#include "tests/mla_parts.h"
#include "tests/ops/product_fixture.h"

namespace fathom::ops_test {
namespace {

constexpr int64_t kLatent = 512, kRope = 64, kHead = 128, kQuery = kHead + kRope;
constexpr int64_t kCompressed = 1536, kBlockTokens = 64;

struct DecodeCase {
  int64_t heads = 2, room = 0;    // room: for rows in the tables, at least
  std::vector<int32_t> kv_len{};  // of each sequence; 0 = padding
  int64_t tokens = 1;             // of each sequence
  int64_t without_place = 0;      // of the tokens, the last ones: rows that nobody sees are NaN
  bool compressed = true, quantised = true;
  DType norm = DType::kF32;
};

class MlaDecodeTest : public ProductTest {
 protected:
  // What a call reads, and the cache that it writes.
  struct Call {
    DeviceTensor q_a, q_norm, q, w_uk, kv_b, kv_a, kv_norm, table, kv_rows, cache, kv_len, tables;
    DeviceWeight q_b;
    DeviceTensor out, out_scale;
    ops::MlaDecodeArgs args{};
  };
  Call make_call(const DecodeCase& c);
  // Into `out` of the call, quantised where it is.
  void run_parts(const Call& call);
};
INSTANTIATE_TEST_SUITE_P(backends, MlaDecodeTest, testing::ValuesIn(one_of_each_backend()),
                         backend_name);

// Blocks of all sequences, shuffled: sequence s has every size()-th one from s on.
MlaDecodeTest::Call MlaDecodeTest::make_call(const DecodeCase& c) {
  ref::Random random(static_cast<uint64_t>(c.heads + c.kv_len[0]));
  const auto seqs = static_cast<int64_t>(c.kv_len.size());
  const int64_t tokens = seqs * c.tokens;
  const int64_t most = *std::max_element(c.kv_len.begin(), c.kv_len.end());
  const int64_t blocks =
      std::max((most + kBlockTokens - 1) / kBlockTokens + 1, c.room / kBlockTokens);
  const ops::KvFormat format = ops::KvFormat::of(act(), kLatent, kRope);
  HostTensor tables(DType::kI32, {seqs, blocks}), rows(DType::kI64, {tokens}, -1);
  const std::vector<int32_t> order = random.permutation(static_cast<int>(seqs * blocks));
  for (int64_t s = 0; s < seqs; ++s)
    for (int64_t i = 0; i < blocks; ++i) tables.at(s, i) = order[static_cast<size_t>(i * seqs + s)];
  HostTensor kv_a = random.normal(act(), {tokens, kLatent + kRope});
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t s = t / c.tokens, kv_len = c.kv_len[static_cast<size_t>(s)];
    const int64_t row = kv_len - c.tokens + t % c.tokens;
    if (kv_len == 0) continue;
    if (t % c.tokens >= c.tokens - c.without_place) {
      for (int64_t i = 0; i < kLatent + kRope; ++i) kv_a.at(t, i) = std::nan("");
      continue;
    }
    rows.at(t) = tables.at(s, row / kBlockTokens) * static_cast<double>(kBlockTokens) +
                 static_cast<double>(row % kBlockTokens);
  }
  const HostTensor cached = random.normal(act(), {seqs * blocks * kBlockTokens, kLatent + kRope});
  const DType weights = act() == DType::kBf16 ? DType::kBf16 : DType::kF32;
  const auto heads_of = [&](int64_t out, int64_t in) {
    return random.uniform(weights, {c.heads, out, in}, -0.1, 0.1);
  };
  Call call{.q_a = upload(random.normal(act(), {tokens, kCompressed})),
            .q_norm = upload(random.uniform(c.norm, {kCompressed}, 0.5, 1.5)),
            .q = upload(random.normal(act(), {tokens, c.heads, kQuery})),
            .w_uk = upload(heads_of(kLatent, kHead)),
            .kv_b = upload(heads_of(2 * kHead, kLatent)),
            .kv_a = upload(kv_a),
            .kv_norm = upload(random.uniform(c.norm, {kLatent}, 0.5, 1.5)),
            .table = upload(random.uniform(DType::kF32, {tokens, kRope}, -1, 1)),
            .kv_rows = upload(rows),
            .cache = upload(cached),
            .kv_len = upload({seqs}, c.kv_len),
            .tables = upload(tables),
            .q_b = upload_weight(
                ref::random_weight(random, DType::kF8E4M3, {c.heads * kQuery, kCompressed})),
            .out = c.quantised ? empty(DType::kF8E4M3, {tokens, c.heads * kHead})
                               : empty(act(), {tokens, c.heads, kHead}),
            .out_scale = empty(DType::kF32, {tokens, c.heads})};
  ops::MlaDecodeArgs& args = call.args;
  if (c.compressed) {
    args.q_a = call.q_a.view();
    args.q_norm = call.q_norm.view();
    args.q_b = call.q_b.view();
  } else {
    args.q = call.q.view();
  }
  args.w_uk.data = call.w_uk.view();
  args.w_uv.data = call.kv_b.view().slice(1, kHead, 2 * kHead);
  args.rows = {
      .kv_a = call.kv_a.view(),
      .weight = call.kv_norm.view(),
      .table = call.table.view(),
      .kv_rows = call.kv_rows.view(),
      .cache = {.rows = Tensor::contiguous(call.cache.view().data(), DType::kU8,
                                           {seqs * blocks, kBlockTokens, format.row_bytes}),
                .format = format}};
  args.kv_len = call.kv_len.view();
  args.block_tables = call.tables.view();
  args.scale = 1.0f / std::sqrt(static_cast<float>(kQuery));
  args.out = c.quantised ? ops::Activation(call.out.view(), call.out_scale.view())
                         : ops::Activation(call.out.view());
  return call;
}

void MlaDecodeTest::run_parts(const Call& call) {
  const ops::MlaDecodeArgs& args = call.args;
  const int64_t seqs = args.kv_len.dim(0), tokens = args.rows.kv_rows.dim(0);
  const int64_t heads = args.w_uk.data.dim(0);
  const DeviceTensor q = upload(download(call.q.view())),
                     q_latent = empty(act(), {tokens, heads, kLatent}),
                     latent = empty(act(), {tokens, heads, kLatent}),
                     out = empty(act(), {tokens, heads, kHead});
  std::vector<int32_t> starts(static_cast<size_t>(seqs) + 1);
  for (size_t i = 0; i < starts.size(); ++i)
    starts[i] = static_cast<int32_t>(static_cast<int64_t>(i) * tokens / seqs);
  const DeviceTensor query_start = upload({seqs + 1}, starts);
  run_query_parts({.q_a = args.q_a,
                   .q_norm = args.q_norm,
                   .q_eps = args.q_eps,
                   .q_b = args.q_b,
                   .q = q.view(),
                   .w_uk = args.w_uk,
                   .rows = args.rows,
                   .q_latent = q_latent.view()},
                  stream());
  ops::mla_absorbed({.q_latent = q_latent.view(),
                     .q_rope = q.view().slice(2, kHead, kQuery),
                     .cache = args.rows.cache,
                     .query_start = query_start.view(),
                     .kv_len = args.kv_len,
                     .block_tables = args.block_tables,
                     .tree_mask = {},
                     .plan = {},
                     .scale = args.scale,
                     .out = latent.view()},
                    stream());
  const Tensor to = args.out.is_quantised() ? out.view() : args.out.values;
  ops::head_linear({.x = latent.view(), .weight = args.w_uv, .out = to}, stream());
  if (args.out.is_quantised())
    ops::quantize_fp8({.x = out.view().reshape({tokens, heads * kHead}),
                       .q = args.out.values,
                       .scale = args.out.scale},
                      stream());
  stream().synchronize();
}

// Ends of splits of 128 rows, of tiles of 32 and of chunks of 1024.
TEST_P(MlaDecodeTest, gives_the_bits_of_its_parts) {
  for (const DecodeCase& c :
       {DecodeCase{.kv_len = {1}},
        DecodeCase{.kv_len = {33}, .norm = DType::kBf16},
        DecodeCase{.kv_len = {128}, .compressed = false},
        DecodeCase{.kv_len = {517}, .quantised = false},
        DecodeCase{.heads = 16, .kv_len = {1024}},
        DecodeCase{.kv_len = {1030}, .compressed = false, .quantised = false},
        DecodeCase{.kv_len = {1900}},
        DecodeCase{.kv_len = {1984}},
        DecodeCase{.heads = 4, .room = 2048, .kv_len = {1}},
        DecodeCase{.heads = 16, .kv_len = {1900}},
        DecodeCase{.heads = 8, .kv_len = {1030}, .compressed = false, .quantised = false},
        DecodeCase{.heads = 4, .kv_len = {1984}, .compressed = false},
        DecodeCase{.heads = 16, .room = 1920, .kv_len = {700}, .quantised = false},
        DecodeCase{.kv_len = {0}},
        DecodeCase{.heads = 4, .room = 2048, .kv_len = {0}},
        DecodeCase{.kv_len = {0}, .compressed = false, .quantised = false},
        DecodeCase{.kv_len = {2}, .tokens = 2},
        DecodeCase{.kv_len = {129}, .tokens = 3},
        DecodeCase{.heads = 16, .kv_len = {1024}, .tokens = 2, .norm = DType::kBf16},
        DecodeCase{.kv_len = {130}, .tokens = 3, .quantised = false},
        DecodeCase{.heads = 16, .kv_len = {513}, .tokens = 4},
        DecodeCase{.heads = 4, .room = 2048, .kv_len = {3}, .tokens = 3},
        DecodeCase{.heads = 16, .kv_len = {1025}, .tokens = 2},
        DecodeCase{.heads = 16, .kv_len = {1026}, .tokens = 3},
        DecodeCase{.heads = 4, .room = 2048, .kv_len = {1984}, .tokens = 2, .quantised = false},
        DecodeCase{.heads = 8, .kv_len = {1153}, .tokens = 3, .without_place = 1},
        DecodeCase{.heads = 4, .room = 2048, .kv_len = {4}, .tokens = 4},
        DecodeCase{.heads = 16, .kv_len = {1027}, .tokens = 4},
        DecodeCase{.heads = 4, .room = 2048, .kv_len = {1984}, .tokens = 4, .quantised = false},
        DecodeCase{.heads = 8, .kv_len = {1154}, .tokens = 4, .without_place = 2},
        DecodeCase{.kv_len = {642}, .tokens = 4, .without_place = 2},
        DecodeCase{.kv_len = {0}, .tokens = 3}}) {
    SCOPED_TRACE(testing::Message()
                 << c.heads << " heads, " << c.tokens << " tokens, " << c.kv_len[0] << " rows, "
                 << (c.compressed ? "compressed" : "whole") << (c.quantised ? ", quantised" : ""));
    if (!backend().device_memory) {
      const DecodeCase small{.heads = 2, .kv_len = {1}};
      EXPECT_FALSE(backend().mla_decode.has(make_call(small).args, stream()));
      return;
    }
    const Call one = make_call(c), parts = make_call(c);
    ASSERT_TRUE(backend().mla_decode.has(one.args, stream()));
    ops::mla_decode(one.args, stream());
    run_parts(parts);
    for (int64_t t = 0; t < c.tokens - c.without_place; ++t) {
      SCOPED_TRACE(t);
      const auto token_of = [this, t](const DeviceTensor& rows) {
        return bytes(rows.view().slice(0, t, t + 1));
      };
      EXPECT_EQ(token_of(one.out), token_of(parts.out));
      EXPECT_EQ(token_of(one.out_scale), token_of(parts.out_scale));
    }
    EXPECT_EQ(bytes(one.cache.view()), bytes(parts.cache.view()));
  }
}

TEST_P(MlaDecodeTest, takes_no_call_of_more_tokens_or_rows_or_of_parts_alone) {
  for (const DecodeCase& c :
       {DecodeCase{.kv_len = {7, 7}}, DecodeCase{.kv_len = {2049}},
        DecodeCase{.kv_len = {70}, .tokens = 5}, DecodeCase{.kv_len = {1030}, .tokens = 2},
        DecodeCase{.kv_len = {1030}, .tokens = 4},
        DecodeCase{.kv_len = {70}, .tokens = 2, .compressed = false}}) {
    SCOPED_TRACE(testing::Message() << c.heads << " heads, " << c.tokens << " tokens");
    EXPECT_FALSE(backend().mla_decode.has(make_call(c).args, stream()));
  }
  const ops::Backend parts = ops::parts_only(backend());
  EXPECT_EQ(parts.mla_decode.run, nullptr);
  for (const ops::LongAttention& limit : parts.long_attention) EXPECT_EQ(limit.op, "mla_absorbed");
}

}  // namespace
}  // namespace fathom::ops_test
