// index_append_query from compressed queries beside its parts, on backends that take it.

#include <array>

#include "ops/index.h"
#include "ops/rms_norm.h"
#include "tests/ops/product_fixture.h"

namespace fathom::ops_test {
namespace {

struct IndexStepCase {
  int64_t tokens = 1, heads = 2, hidden = 512;
  DType norm = DType::kBf16;
  int64_t padding = -1;  // a token without a row of the cache
  uint64_t seed = 1;
};

class IndexQueryStepTest : public ProductTest {
 protected:
  static constexpr int64_t kDim = 128, kRope = 64, kCompressed = 1536, kBlockTokens = 4;

  // What a call reads, of the most tokens, and writes.
  struct Call {
    DeviceTensor q_a_and_k, q_norm, x, heads, weight, bias, table, rows, q, w, values, scales, out,
        weights;
    DeviceWeight wq_b;

    ops::IndexAppendQueryArgs of(int64_t begin, int64_t end) const {
      const Tensor both = q_a_and_k.view().slice(0, begin, end);
      const Tensor angles = table.view().slice(0, begin, end);
      ops::IndexAppendQueryArgs args;
      args.q_a = both.slice(1, 0, kCompressed);
      args.q_norm = q_norm.view();
      args.wq_b = wq_b.view();
      args.x = x.view().slice(0, begin, end);
      args.weights_proj = heads.view();
      args.append = {.k = both.slice(1, kCompressed, kCompressed + kDim),
                     .weight = weight.view(),
                     .bias = bias.view(),
                     .table = angles,
                     .kv_rows = rows.view().slice(0, begin, end),
                     .cache = {.values = values.view(), .scales = scales.view()}};
      args.query = {.q = q.view().slice(0, begin, end),
                    .w = w.view().slice(0, begin, end),
                    .table = angles,
                    .out = out.view().slice(0, begin, end),
                    .weights = weights.view().slice(0, begin, end)};
      return args;
    }
  };
  Call make_call(const IndexStepCase& c);
  bool takes(const ops::IndexAppendQueryArgs& args) {
    return backend().index_append_query.has(args, stream());
  }
  void run_parts(const ops::IndexAppendQueryArgs& args);
  // Each query times its weight, relative to the largest: what scores depend on.
  HostTensor queries(const Call& call);
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(IndexQueryStepTest);
INSTANTIATE_TEST_SUITE_P(backends, IndexQueryStepTest,
                         testing::ValuesIn(backends_with(&ops::Backend::index_append_query)),
                         backend_name);

IndexQueryStepTest::Call IndexQueryStepTest::make_call(const IndexStepCase& c) {
  ref::Random random(c.seed);
  HostTensor rows(DType::kI64, {c.tokens});
  for (int64_t t = 0; t < c.tokens; ++t)
    rows.at(t) = t == c.padding ? -1 : static_cast<double>(c.tokens - t);
  return {.q_a_and_k = upload(random.normal(act(), {c.tokens, kCompressed + kDim})),
          .q_norm = upload(random.uniform(c.norm, {kCompressed}, 0.5, 1.5)),
          .x = upload(random.normal(act(), {c.tokens, c.hidden})),
          .heads = upload(random.normal(DType::kBf16, {c.heads, c.hidden})),
          .weight = upload(random.normal(DType::kF32, {kDim})),
          .bias = upload(random.normal(DType::kF32, {kDim})),
          .table = upload(random.uniform(DType::kF32, {c.tokens, kRope}, -1, 1)),
          .rows = upload(rows),
          .q = empty(act(), {c.tokens, c.heads, kDim}),
          .w = empty(DType::kF32, {c.tokens, c.heads}),
          .values = upload(HostTensor(DType::kF8E4M3, {3, kBlockTokens, kDim}, 0)),
          .scales = upload(HostTensor(DType::kF32, {3, kBlockTokens}, 0)),
          .out = empty(DType::kF8E4M3, {c.tokens, c.heads, kDim}),
          .weights = empty(DType::kF32, {c.tokens, c.heads}),
          .wq_b = upload_weight(
              ref::random_weight(random, DType::kF8E4M3, {c.heads * kDim, kCompressed}))};
}

void IndexQueryStepTest::run_parts(const ops::IndexAppendQueryArgs& args) {
  const int64_t tokens = args.q_a.dim(0);
  const DeviceTensor normed = empty(act(), {tokens, kCompressed});
  ops::rms_norm({.x = args.q_a,
                 .weight = args.q_norm,
                 .eps = args.q_eps,
                 .residual = {},
                 .out = normed.view()},
                stream());
  const Tensor& q = args.query.q;
  ops::linear(
      {.x = normed.view(), .weight = args.wq_b, .out = q.reshape({tokens, q.dim(1) * q.dim(2)})},
      stream());
  ops::linear(ops::weights_product(args), stream());
  ops::index_append(args.append, stream());
  ops::index_query(args.query, stream());
  stream().synchronize();
}

HostTensor IndexQueryStepTest::queries(const Call& call) {
  HostTensor out = download(call.out.view());
  const HostTensor weights = download(call.weights.view());
  out.dtype = DType::kF32;
  double most = 0;
  for (size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] *= weights.values[i / kDim];
    most = std::max(most, std::abs(static_cast<double>(out.values[i])));
  }
  EXPECT_GT(most, 0);
  for (auto& value : out.values) value /= most;
  return out;
}

TEST_P(IndexQueryStepTest, is_what_its_parts_give_and_keys_to_the_bit) {
  for (const IndexStepCase& c :
       {IndexStepCase{},
        IndexStepCase{.tokens = 2, .heads = 64, .hidden = 7168, .norm = DType::kF32},
        IndexStepCase{.tokens = 3, .padding = 1},
        IndexStepCase{.tokens = 5, .heads = 3, .hidden = 1000},
        IndexStepCase{.tokens = 8, .heads = 4, .hidden = 8192, .padding = 7}}) {
    SCOPED_TRACE(testing::Message() << c.tokens << " tokens, " << c.heads << " heads");
    const Call one = make_call(c), parts = make_call(c);
    const ops::IndexAppendQueryArgs args = one.of(0, c.tokens);
    if (!takes(args)) continue;
    ops::index_append_query(args, stream());
    run_parts(parts.of(0, c.tokens));
    EXPECT_EQ(bytes(one.values.view()), bytes(parts.values.view()));
    EXPECT_EQ(bytes(one.scales.view()), bytes(parts.scales.view()));
    // A step of e4m3 where a value lies between two.
    constexpr Bound kBound{.abs = 2e-3, .rel = 0.13, .one_minus_cosine = 1e-3};
    expect_close(queries(one), queries(parts), {.f32 = kBound, .bf16 = kBound});
  }
}

TEST_P(IndexQueryStepTest, a_row_has_the_same_bits_at_every_number_of_tokens) {
  constexpr int64_t kMost = 8;
  const Call all = make_call({.tokens = kMost, .heads = 3, .hidden = 7168});
  if (!takes(all.of(0, kMost))) return;
  ops::index_append_query(all.of(0, kMost), stream());
  const auto expected = bytes(all.out.view()), expected_weights = bytes(all.weights.view());
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {7, 8}, {2, 4}, {1, 6}, {1, 8}}) {
    const Call some = make_call({.tokens = kMost, .heads = 3, .hidden = 7168});
    ops::index_append_query(some.of(begin, end), stream());
    // Not every compiler lets a lambda have names of a structured binding.
    const auto part = [first = begin, last = end](const std::vector<uint8_t>& of_all) {
      const auto size = static_cast<int64_t>(of_all.size()) / kMost;
      return std::vector<uint8_t>(of_all.begin() + first * size, of_all.begin() + last * size);
    };
    EXPECT_EQ(part(bytes(some.out.view())), part(expected)) << begin << ", " << end;
    EXPECT_EQ(part(bytes(some.weights.view())), part(expected_weights)) << begin << ", " << end;
  }
}

// Scores and choice behind it read lengths, tables and older keys before it ends, and may not read what it makes.
TEST_P(IndexQueryStepTest, scores_behind_it_see_what_it_makes) {
  constexpr int64_t kTokens = 2, kBlocks = 6, kBlockRows = 64, kRows = 330, kTopk = 40;
  const Call calls[] = {make_call({.tokens = kTokens, .heads = 4, .seed = 2}),
                        make_call({.tokens = kTokens, .heads = 4, .seed = 3})};
  if (!takes(calls[0].of(0, kTokens))) return;
  ref::Random random(4);
  const HostTensor keys = random.normal(DType::kF8E4M3, {kTokens * kBlocks, kBlockRows, kDim});
  const HostTensor ones(DType::kF32, {kTokens * kBlocks, kBlockRows}, 1);
  HostTensor table(DType::kI32, {kTokens, kBlocks}), last(DType::kI64, {kTokens});
  for (int64_t t = 0; t < kTokens; ++t) {
    last.at(t) = static_cast<double>(t * kBlocks * kBlockRows + kRows - 1);
    for (int64_t i = 0; i < kBlocks; ++i) table.at(t, i) = static_cast<double>(t * kBlocks + i);
  }
  const DeviceTensor starts = upload<int32_t>({kTokens + 1}, {0, 1, 2}),
                     lengths = upload<int32_t>({kTokens}, {kRows, kRows}), tables = upload(table),
                     kv_rows = upload(last);
  const auto run = [&](bool in_turn) {
    const DeviceTensor values = upload(keys), scales = upload(ones);
    const DeviceTensor scores = empty(DType::kF32, {kTokens, kBlocks * kBlockRows}),
                       rows = empty(DType::kI32, {kTokens, kTopk}),
                       counts = empty(DType::kI32, {kTokens});
    for (int i = 0; i < 20; ++i) {
      ops::IndexAppendQueryArgs args = calls[i % 2].of(0, kTokens);
      args.append.kv_rows = kv_rows.view();
      args.append.cache = {.values = values.view(), .scales = scales.view()};
      ops::index_append_query(args, stream());
      if (in_turn) stream().synchronize();
      const ops::IndexQueries queries{.settled = !in_turn,
                                      .query_start = starts.view(),
                                      .kv_len = lengths.view(),
                                      .block_tables = tables.view(),
                                      .tree_mask = {},
                                      .token_begin = 0,
                                      .token_end = kTokens};
      ops::index_scores({.q = args.query.out,
                         .weights = args.query.weights,
                         .cache = args.append.cache,
                         .queries = queries,
                         .topk = kTopk,
                         .scores = scores.view()},
                        stream());
      if (in_turn) stream().synchronize();
      ops::top_rows({.scores = scores.view(),
                     .queries = queries,
                     .block_tokens = kBlockRows,
                     .rows = rows.view(),
                     .counts = counts.view()},
                    stream());
      if (in_turn) stream().synchronize();
    }
    return std::array{bytes(scores.view()), bytes(rows.view()), bytes(counts.view())};
  };
  const auto expected = run(true);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(run(false), expected) << "run " << i;
}

TEST_P(IndexQueryStepTest, takes_few_tokens_of_the_published_sizes) {
  const bool is_any = takes(make_call({}).of(0, 1));
  EXPECT_EQ(is_any, backend().act == DType::kBf16 && !backend().batch_invariant);
  EXPECT_FALSE(takes(make_call({.tokens = 9}).of(0, 9)));
  EXPECT_EQ(takes(make_call({.hidden = 8192}).of(0, 1)), is_any);
  EXPECT_FALSE(takes(make_call({.hidden = 8200}).of(0, 1)));
}

}  // namespace
}  // namespace fathom::ops_test
