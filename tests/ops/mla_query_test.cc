// mla_query beside its parts, bit for bit, on backends that have it.

#include "ops/mla_query.h"

#include <array>
#include <cmath>

#include "ops/embedding.h"
#include "ops/index.h"
#include "tests/mla_parts.h"
#include "tests/ops/product_fixture.h"

namespace fathom::ops_test {
namespace {

struct MlaQueryCase {
  int64_t tokens = 1, heads = 2;
  bool compressed = true;
  DType cache = DType::kBf16, norm = DType::kBf16;
  int64_t beside = 0;    // values between the rows of q_a
  int64_t padding = -1;  // a token without a row of the cache
  bool settled = false;
};

class MlaQueryTest : public ProductTest {
 protected:
  static constexpr int64_t kLatent = 512, kRope = 64, kHead = 128, kQuery = kHead + kRope;
  static constexpr int64_t kCompressed = 1536, kBlockTokens = 16;

  // What a call reads and writes.
  struct Call {
    DeviceTensor q_a, q_norm, q, w_uk, kv_a, kv_norm, table, kv_rows, cache, q_latent;
    DeviceWeight q_b;
    ops::MlaQueryArgs args{};
  };
  Call make_call(const MlaQueryCase& c);
  std::vector<uint8_t> rotated(const Call& call) {
    const Tensor rope = call.q.view().slice(2, kHead, kQuery);
    const DeviceTensor copy = upload(download(rope));
    return bytes(copy.view());
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MlaQueryTest);
INSTANTIATE_TEST_SUITE_P(backends, MlaQueryTest,
                         testing::ValuesIn(backends_with(&ops::Backend::mla_query)), backend_name);

MlaQueryTest::Call MlaQueryTest::make_call(const MlaQueryCase& c) {
  ref::Random random(static_cast<uint64_t>(c.heads + c.tokens));
  const ops::KvFormat format = ops::KvFormat::of(c.cache, kLatent, kRope);
  HostTensor rows(DType::kI64, {c.tokens});
  const int64_t blocks = 2 + c.tokens / kBlockTokens;
  const std::vector<int32_t> order = random.permutation(static_cast<int>(blocks * kBlockTokens));
  for (int64_t t = 0; t < c.tokens; ++t)
    rows.at(t) = t == c.padding ? -1 : order[static_cast<size_t>(t)];
  Call call{.q_a = upload(random.normal(act(), {c.tokens, kCompressed + c.beside})),
            .q_norm = upload(random.uniform(c.norm, {kCompressed}, 0.5, 1.5)),
            .q = upload(random.normal(act(), {c.tokens, c.heads, kQuery})),
            .w_uk = upload(random.uniform(DType::kBf16, {c.heads, kLatent, kHead}, -0.1, 0.1)),
            .kv_a = upload(random.normal(act(), {c.tokens, kLatent + kRope})),
            .kv_norm = upload(random.uniform(c.norm, {kLatent}, 0.5, 1.5)),
            .table = upload(random.uniform(DType::kF32, {c.tokens, kRope}, -1, 1)),
            .kv_rows = upload(rows),
            .cache = upload(HostTensor(DType::kU8, {blocks, kBlockTokens, format.row_bytes}, 7)),
            .q_latent = empty(act(), {c.tokens, c.heads, kLatent}),
            .q_b = upload_weight(
                ref::random_weight(random, DType::kF8E4M3, {c.heads * kQuery, kCompressed}))};
  ops::MlaQueryArgs& args = call.args;
  if (c.compressed) {
    args.q_a = call.q_a.view().slice(1, 0, kCompressed);
    args.q_norm = call.q_norm.view();
    args.q_b = call.q_b.view();
  }
  args.q = call.q.view();
  args.w_uk.data = call.w_uk.view();
  args.rows = {.kv_a = call.kv_a.view(),
               .weight = call.kv_norm.view(),
               .table = call.table.view(),
               .kv_rows = call.kv_rows.view(),
               .cache = {.rows = call.cache.view(), .format = format}};
  args.q_latent = call.q_latent.view();
  args.settled = c.settled;
  return call;
}

TEST_P(MlaQueryTest, gives_the_bits_of_its_parts) {
  for (const MlaQueryCase& c :
       {MlaQueryCase{}, MlaQueryCase{.tokens = 2, .cache = DType::kF8E4M3, .norm = DType::kF32},
        MlaQueryCase{.tokens = 3, .beside = 128, .padding = 1},
        MlaQueryCase{.tokens = 4, .heads = 16},
        MlaQueryCase{.cache = DType::kF8E4M3, .beside = 128, .settled = true},
        MlaQueryCase{.tokens = 6, .heads = 3, .padding = 2, .settled = true},
        MlaQueryCase{.tokens = 5, .cache = DType::kF8E4M3, .padding = 4},
        MlaQueryCase{.tokens = 8, .heads = 1, .norm = DType::kF32},
        MlaQueryCase{.tokens = 8, .heads = 16, .beside = 128},
        MlaQueryCase{.tokens = 1, .compressed = false},
        MlaQueryCase{.tokens = 7, .heads = 16, .compressed = false, .cache = DType::kF8E4M3},
        MlaQueryCase{.tokens = 8, .compressed = false, .padding = 0},
        MlaQueryCase{.tokens = 9, .compressed = false},
        MlaQueryCase{.tokens = 32, .heads = 16, .compressed = false, .padding = 31},
        MlaQueryCase{.tokens = 50, .heads = 16, .compressed = false, .cache = DType::kF8E4M3},
        MlaQueryCase{.tokens = 96, .heads = 17, .compressed = false, .norm = DType::kF32},
        MlaQueryCase{.tokens = 128, .heads = 17, .compressed = false, .padding = 5}}) {
    SCOPED_TRACE(testing::Message()
                 << c.tokens << " tokens, " << c.heads << " heads, "
                 << (c.compressed ? "compressed" : "whole") << (c.settled ? ", settled" : ""));
    const Call one = make_call(c), parts = make_call(c);
    const bool takes = c.tokens <= 8 || !backend().batch_invariant;
    ASSERT_EQ(backend().mla_query.takes(one.args, stream()), takes);
    if (!takes) continue;
    ops::mla_query(one.args, stream());
    run_query_parts(parts.args, stream());
    EXPECT_EQ(bytes(one.q_latent.view()), bytes(parts.q_latent.view()));
    EXPECT_EQ(rotated(one), rotated(parts));
    EXPECT_EQ(bytes(one.cache.view()), bytes(parts.cache.view()));
  }
}

// It runs beside the choice and ends before it: who reads the list comes behind both.
TEST_P(MlaQueryTest, what_comes_behind_a_settled_call_comes_behind_the_choice) {
  constexpr int64_t kBlocks = 512, kBlockRows = 64, kRows = kBlocks * kBlockRows, kTopk = 2048;
  ref::Random random(5);
  const Call call = make_call({.cache = DType::kF8E4M3, .settled = true});
  const DeviceTensor scores[] = {upload(random.normal(DType::kF32, {1, kRows})),
                                 upload(random.normal(DType::kF32, {1, kRows}))};
  HostTensor table(DType::kI32, {1, kBlocks});
  for (int64_t i = 0; i < kBlocks; ++i) table.at(0, i) = static_cast<double>(i);
  const DeviceTensor starts = upload<int32_t>({2}, {0, 1}), lengths = upload<int32_t>({1}, {kRows}),
                     tables = upload(table), of_rows = upload(random.normal(act(), {kRows, 8}));
  const auto run = [&](bool in_turn) {
    const DeviceTensor list = empty(DType::kI32, {1, kTopk}), count = empty(DType::kI32, {1}),
                       read[] = {empty(act(), {kTopk, 8}), empty(act(), {kTopk, 8})};
    const auto wait = [&] {
      if (in_turn) stream().synchronize();
    };
    for (int i = 0; i < 20; ++i) {
      ops::top_rows({.scores = scores[i % 2].view(),
                     .queries = {.settled = false,
                                 .query_start = starts.view(),
                                 .kv_len = lengths.view(),
                                 .block_tables = tables.view(),
                                 .tree_mask = {},
                                 .token_begin = 0,
                                 .token_end = 1},
                     .block_tokens = kBlockRows,
                     .rows = list.view(),
                     .counts = count.view()},
                    stream());
      wait();
      ops::mla_query(call.args, stream());
      wait();
      ops::embedding({.ids = Tensor::contiguous(list.view().data(), DType::kI32, {kTopk}),
                      .table = of_rows.view(),
                      .out = read[i % 2].view()},
                     stream());
      wait();
    }
    return std::array{bytes(read[0].view()), bytes(read[1].view())};
  };
  const auto expected = run(true);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run(false), expected) << "run " << i;
}

TEST_P(MlaQueryTest, takes_no_call_of_more_tokens_or_heads) {
  EXPECT_TRUE(backend().mla_query.takes(make_call({.tokens = 8}).args, stream()));
  EXPECT_FALSE(backend().mla_query.takes(make_call({.tokens = 9}).args, stream()));
  EXPECT_FALSE(
      backend().mla_query.takes(make_call({.tokens = 129, .compressed = false}).args, stream()));
  EXPECT_FALSE(backend().mla_query.takes(make_call({.heads = 17}).args, stream()));
}

}  // namespace
}  // namespace fathom::ops_test
