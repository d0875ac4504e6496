// top_k against a sort of the row and its log softmax in float64.

#include "ops/top_k.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/ops/device.h"
#include "tests/ops/sample_rows.h"
#include "tests/ref/sampler.h"

namespace fathom::ops_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = HUGE_VALF;

using Rows = std::vector<std::vector<double>>;

struct BestTokens {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
};

class TopKTest : public OpsTest {
 protected:
  // Of rows that lie `gap` logits apart, which are garbage.
  std::vector<BestTokens> top_k(const Rows& rows, int64_t k, int64_t gap = 0) {
    const auto num = static_cast<int64_t>(rows.size());
    const auto vocab_size = static_cast<int64_t>(rows[0].size());
    std::vector<float> values;
    for (const std::vector<double>& row : rows) {
      for (const double logit : row) values.push_back(static_cast<float>(logit));
      values.insert(values.end(), static_cast<size_t>(gap), kNan);
    }
    const DeviceTensor logits = upload({num, vocab_size + gap}, values);
    const DeviceTensor ids = empty(DType::kI32, {num, k});
    const DeviceTensor logprobs = empty(DType::kF32, {num, k});
    ops::top_k({.logits = logits.view().slice(1, 0, vocab_size),
                .ids = ids.view(),
                .logprobs = logprobs.view()},
               stream());
    const auto all_ids = download_as<int32_t>(ids.view());
    const auto all_logprobs = download_as<float>(logprobs.view());
    std::vector<BestTokens> best;
    for (int64_t at = 0; at < num * k; at += k)
      best.push_back({.ids = {all_ids.begin() + at, all_ids.begin() + at + k},
                      .logprobs = {all_logprobs.begin() + at, all_logprobs.begin() + at + k}});
    return best;
  }
};
INSTANTIATE_TEST_SUITE_P(backends, TopKTest, testing::ValuesIn(tested_backends()), backend_name);

TEST_P(TopKTest, the_best_of_each_row_come_with_their_log_probabilities) {
  ref::Random random(1);
  for (const int64_t vocab_size : {1, 61, 2046, 129280}) {
    const Rows rows = {random_logits(random, vocab_size, 4), random_logits(random, vocab_size, 0.1),
                       random_logits(random, vocab_size, 10)};
    const int64_t k = std::min<int64_t>(vocab_size, 10);
    const std::vector<BestTokens> best = top_k(rows, k, /*gap=*/3);
    for (size_t row = 0; row < rows.size(); ++row) {
      const std::vector<double> expected = ref::log_softmax(rows[row]);
      const std::vector<int32_t> order = ref::ranking(rows[row]);
      for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
        EXPECT_EQ(best[row].ids[i], order[i]) << vocab_size << " row " << row;
        EXPECT_NEAR(static_cast<double>(best[row].logprobs[i]),
                    expected[static_cast<size_t>(order[i])], 1e-5);
      }
    }
  }
}

TEST_P(TopKTest, equal_logits_come_by_id_and_what_is_not_there_is_empty) {
  const std::vector<BestTokens> best =
      top_k({{1, 2, 2, 0, 2, 1}, {0.0, -0.0, 0.0, -1, -0.0, 1}}, 7);
  EXPECT_THAT(best[0].ids, testing::ElementsAre(1, 2, 4, 0, 5, 3, -1));
  EXPECT_THAT(best[1].ids, testing::ElementsAre(5, 0, 1, 2, 4, 3, -1));
  EXPECT_EQ(best[0].logprobs[6], 0.0f);
  EXPECT_LT(best[0].logprobs[5], best[0].logprobs[4]);
  EXPECT_EQ(best[0].logprobs[0], best[0].logprobs[2]);
}

// Their log-probabilities are equal once they are rounded: the logits decide.
TEST_P(TopKTest, the_larger_of_two_close_logits_is_first) {
  std::vector<double> row(5000, 0.0);
  row[3] = std::nextafter(0.125f, 0.0f);
  row[4711] = 0.125f;
  const BestTokens best = top_k({row}, 2)[0];
  EXPECT_THAT(best.ids, testing::ElementsAre(4711, 3));
  EXPECT_EQ(best.logprobs[0], best.logprobs[1]);
}

TEST_P(TopKTest, a_row_that_is_not_finite_has_none_and_the_others_keep_their_bits) {
  ref::Random random(2);
  Rows rows;
  for (int i = 0; i < 4; ++i) rows.push_back(random_logits(random, 2046, 4));
  const std::vector<BestTokens> clean = top_k(rows, 5);
  size_t place = 7;
  for (const float bad : {kNan, kInf, -kInf}) {
    Rows broken = rows;
    broken[2][place *= 6] = static_cast<double>(bad);
    const std::vector<BestTokens> best = top_k(broken, 5);
    for (size_t row = 0; row < rows.size(); ++row) {
      if (row == 2) {
        EXPECT_THAT(best[row].ids, testing::Each(-1)) << bad;
        EXPECT_THAT(best[row].logprobs, testing::Each(0.0f)) << bad;
        continue;
      }
      EXPECT_EQ(best[row].ids, clean[row].ids) << bad;
      EXPECT_EQ(best[row].logprobs, clean[row].logprobs) << bad;
    }
  }
}

TEST_P(TopKTest, a_rows_bits_do_not_depend_on_the_batch) {
  ref::Random random(3);
  Rows rows;
  for (int i = 0; i < 9; ++i) rows.push_back(random_logits(random, 1000, 3));
  const std::vector<BestTokens> together = top_k(rows, 6);
  for (size_t row = 0; row < rows.size(); ++row) {
    const BestTokens alone = top_k({rows[row]}, 6)[0];
    EXPECT_EQ(alone.ids, together[row].ids) << row;
    EXPECT_EQ(alone.logprobs, together[row].logprobs) << row;
  }
}

TEST_P(TopKTest, no_row_and_no_token_that_is_wanted_are_nothing_to_do) {
  const DeviceTensor logits = empty(DType::kF32, {0, 61}), one = empty(DType::kF32, {1, 61});
  const DeviceTensor ids = empty(DType::kI32, {0, 4}), none = empty(DType::kI32, {1, 0});
  const DeviceTensor logprobs = empty(DType::kF32, {0, 4}),
                     no_logprobs = empty(DType::kF32, {1, 0});
  ops::top_k({.logits = logits.view(), .ids = ids.view(), .logprobs = logprobs.view()}, stream());
  ops::top_k({.logits = one.view(), .ids = none.view(), .logprobs = no_logprobs.view()}, stream());
  stream().synchronize();
}

using TopKDeathTest = TopKTest;
INSTANTIATE_TEST_SUITE_P(reference, TopKDeathTest, testing::Values(tested_backends().front()),
                         backend_name);

TEST_P(TopKDeathTest, shapes_that_differ_are_named) {
  const DeviceTensor logits = empty(DType::kF32, {2, 61}), ids = empty(DType::kI32, {2, 4});
  const DeviceTensor logprobs = empty(DType::kF32, {2, 5});
  EXPECT_DEATH(ops::top_k({.logits = logits.view(), .ids = ids.view(), .logprobs = logprobs.view()},
                          stream()),
               "logprobs axis 1: k is 4, got 5");
}

}  // namespace
}  // namespace fathom::ops_test
