// Kernels by every choice that files of `fathom tune` may name: right, and with the same bits within a class of rows.
// A backend without such choices runs as ever.

#include "ops/moe.h"
#include "tests/ops/product_fixture.h"
#include "tuned/table.h"

namespace fathom::ops_test {
namespace {

using tuned::ExpertChoice, tuned::ExpertKernel, tuned::MatrixChoice, tuned::MatrixKernel,
    tuned::Tile;

constexpr Bounds kTunedBounds{.f32 = {.abs = 1e-5, .rel = 1e-5, .one_minus_cosine = 1e-10},
                              .bf16 = {.abs = 2e-2, .rel = 1e-2, .one_minus_cosine = 1e-4}};
constexpr Bounds kTunedExpertBounds{
    .f32 = {.abs = 2e-2, .rel = 1e-3, .one_minus_cosine = 1e-5},
    .bf16 = {.abs = 1e-1, .rel = 5e-2, .one_minus_cosine = 2e-4, .rare = 5e-3}};

class TunedChoiceTest : public ProductTest {
 protected:
  void TearDown() override { tuned::set_table({}); }

  static void choose_for(const tuned::MatrixShape& shape, int64_t rows,
                         const MatrixChoice& choice) {
    ASSERT_EQ(tuned::why_not(shape, rows, choice), "");
    tuned::Table table;
    table.put(tuned::MatrixChoices{
        .device = {}, .shape = shape, .entries = {{.rows = rows, .choice = choice}}, .from = {}});
    tuned::set_table(std::move(table));
  }
  static void choose_for(const tuned::ExpertShape& shape, int64_t tokens,
                         const ExpertChoice& choice) {
    ASSERT_EQ(tuned::why_not(shape, tokens, choice), "");
    tuned::Table table;
    table.put(tuned::ExpertChoices{
        .device = {}, .shape = shape, .entries = {{.rows = tokens, .choice = choice}}, .from = {}});
    tuned::set_table(std::move(table));
  }

  HostTensor product(const HostTensor& x, const DeviceWeight& weight, int64_t out) {
    const DeviceTensor device_x = upload(x), result = empty(act(), {x.shape[0], out});
    ops::linear({.x = device_x.view(), .weight = weight.view(), .out = result.view()}, stream());
    return download(result.view());
  }
};
INSTANTIATE_TEST_SUITE_P(backends, TunedChoiceTest, testing::ValuesIn(one_of_each_backend()),
                         backend_name);

struct TunedCase {
  int64_t rows, part;  // of a class
  MatrixChoice choice;
};

TEST_P(TunedChoiceTest, every_division_of_k_matches_float64_and_keeps_rows_alike) {
  const int64_t in = 4112, out = 144;  // a line that is not whole, and an odd number of tiles
  const auto streaming = [](int cluster, int warps, int stages) {
    return MatrixChoice{
        .kernel = MatrixKernel::kStreaming, .cluster = cluster, .warps = warps, .stages = stages};
  };
  const auto batch = [](int cluster) {
    return MatrixChoice{.kernel = MatrixKernel::kBatch, .cluster = cluster};
  };
  const TunedCase cases[] = {{8, 1, streaming(1, 1, 2)}, {8, 1, streaming(1, 4, 4)},
                             {8, 3, streaming(1, 8, 0)}, {8, 1, streaming(2, 8, 3)},
                             {8, 5, streaming(4, 8, 2)}, {64, 9, batch(1)},
                             {64, 33, batch(2)},         {128, 9, batch(8)}};
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3}) {
    if (!backend().supports("linear", dtype)) continue;
    ref::Random random(7);
    const ref::HostWeight weight = ref::random_weight(random, dtype, {out, in});
    const DeviceWeight device_weight = upload_weight(weight);
    for (const TunedCase& tuned_case : cases) {
      SCOPED_TRACE(testing::Message()
                   << tensor::dtype_name(dtype) << ", " << tuned_case.rows << " rows, cluster "
                   << tuned_case.choice.cluster << ", warps " << tuned_case.choice.warps);
      const HostTensor x = random.normal(act(), {tuned_case.rows, in});
      choose_for(tuned::MatrixShape{.dtype = dtype, .n = out, .k = in}, tuned_case.rows,
                 tuned_case.choice);
      const HostTensor all = product(x, device_weight, out);
      expect_close(all, ref::linear(x, weight), kTunedBounds);
      const HostTensor some = product(x.rows(0, tuned_case.part), device_weight, out);
      EXPECT_EQ(some.values, all.rows(0, tuned_case.part).values);
    }
  }
}

TEST_P(TunedChoiceTest, every_tile_matches_float64) {
  const int64_t in = 272, out = 520, rows = 300;
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3}) {
    if (!backend().supports("linear", dtype)) continue;
    ref::Random random(11);
    const ref::HostWeight weight = ref::random_weight(random, dtype, {out, in});
    const DeviceWeight device_weight = upload_weight(weight);
    const HostTensor x = random.normal(act(), {rows, in});
    for (const Tile tile : {Tile::kSmall, Tile::kLarge})
      for (const int raster : {1, 4, 32}) {
        choose_for(tuned::MatrixShape{.dtype = dtype, .n = out, .k = in}, rows,
                   {.kernel = MatrixKernel::kTiled, .tile = tile, .raster = raster});
        expect_close(product(x, device_weight, out), ref::linear(x, weight), kTunedBounds);
      }
  }
}

class TunedExpertsTest : public TunedChoiceTest {
 protected:
  // The experts' results by each choice in turn; with the same bits where `alike`.
  void expect_right(DType dtype, int64_t tokens, const std::vector<ExpertChoice>& choices,
                    bool alike) {
    SCOPED_TRACE(testing::Message() << tensor::dtype_name(dtype) << ", " << tokens << " tokens");
    const int64_t hidden = 512, inter = 128, experts = 4, chosen = 2;
    ref::Random random(static_cast<uint64_t>(tokens));
    const HostTensor x = random.normal(act(), {tokens, hidden});
    HostTensor ids(DType::kI32, {tokens, chosen});
    const HostTensor weights = random.uniform(DType::kF32, {tokens, chosen}, 0.1, 1);
    for (int64_t t = 0; t < tokens; ++t) {
      const std::vector<int32_t> order = random.permutation(static_cast<int>(experts));
      for (int64_t j = 0; j < chosen; ++j) ids.at(t, j) = order[static_cast<size_t>(j)];
    }
    const ref::HostWeight gate_up = ref::random_weight(random, dtype, {experts, 2, inter, hidden});
    const ref::HostWeight down = ref::random_weight(random, dtype, {experts, hidden, inter});
    const DeviceTensor device_x = upload(x), device_ids = upload(ids),
                       device_weights = upload(weights);
    const DeviceWeight device_gate_up = upload_weight(gate_up), device_down = upload_weight(down);
    const HostTensor expected = ref::moe_experts(x, ids, weights, gate_up, down);
    std::vector<double> first;
    for (const ExpertChoice& choice : choices) {
      choose_for(tuned::ExpertShape{.dtype = dtype, .experts = experts, .inter = inter}, tokens,
                 choice);
      const DeviceTensor out = empty(act(), {tokens, hidden});
      ops::moe_experts({.x = device_x.view(),
                        .ids = device_ids.view(),
                        .weights = device_weights.view(),
                        .gate_up = device_gate_up.view(),
                        .down = device_down.view(),
                        .out = out.view()},
                       stream());
      const HostTensor result = download(out.view());
      expect_close(result, expected, kTunedExpertBounds);
      if (first.empty()) first.assign(result.values.begin(), result.values.end());
      if (alike) {
        EXPECT_TRUE(std::equal(first.begin(), first.end(), result.values.begin()));
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(backends, TunedExpertsTest, testing::ValuesIn(one_of_each_backend()),
                         backend_name);

TEST_P(TunedExpertsTest, kernels_of_few_tokens_match_float64_with_the_same_bits) {
  const std::vector<ExpertChoice> choices = {
      {.kernel = ExpertKernel::kPairs, .gate_up_stages = 2, .down_stages = 4},
      {.kernel = ExpertKernel::kPairs, .gate_up_stages = 4, .down_stages = 2},
      {.kernel = ExpertKernel::kNarrow},
      {.kernel = ExpertKernel::kNarrow, .gate_up_stages = 3, .down_stages = 3},
      {.kernel = ExpertKernel::kWide}};
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3})
    for (const int64_t tokens : {1, 9, 70})
      if (backend().supports("moe_experts", dtype))
        expect_right(dtype, tokens, choices, /*alike=*/true);
}

TEST_P(TunedExpertsTest, kernels_of_many_tokens_match_float64) {
  const std::vector<ExpertChoice> choices = {
      {.kernel = ExpertKernel::kWide},
      {.kernel = ExpertKernel::kTiled, .down_tile = Tile::kSmall},
      {.kernel = ExpertKernel::kTiled, .down_tile = Tile::kLarge}};
  for (const DType dtype : {DType::kBf16, DType::kF8E4M3})
    if (backend().supports("moe_experts", dtype))
      expect_right(dtype, 300, choices, /*alike=*/false);
}

}  // namespace
}  // namespace fathom::ops_test
