// sample, step by step: failures, log-probabilities, penalties, bias, mask, greedy, forced.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "tests/ops/sample_rows.h"

namespace fathom::ops_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int32_t kInPrompt = INT32_MIN;

class SampleRulesTest : public SampleTest {};
INSTANTIATE_TEST_SUITE_P(backends, SampleRulesTest, testing::ValuesIn(tested_backends()),
                         backend_name);

SampleRow greedy_row(std::vector<double> logits) {
  SampleRow row;
  row.rules.logits = std::move(logits);
  row.rules.temperature = 0;
  return row;
}

TEST_P(SampleRulesTest, no_rows_give_nothing) { EXPECT_TRUE(sample({}).empty()); }

TEST_P(SampleRulesTest, greedy_takes_the_largest_logit_and_ties_go_to_the_lower_id) {
  SampleRow top_k_one = greedy_row({1, 5, 2, 5});
  top_k_one.rules.temperature = 0.8;
  top_k_one.rules.top_k = 1;
  const auto out = sample({greedy_row({0, 0, 0, 0}), greedy_row({-3, -1, -2, -1}), top_k_one});
  EXPECT_EQ(out[0].token, 0);
  EXPECT_EQ(out[1].token, 1);
  EXPECT_EQ(out[2].token, 1);
}

TEST_P(SampleRulesTest, log_probabilities_are_those_of_the_raw_logits) {
  ref::Random random(1);
  for (const int64_t vocab_size : {1, 61, 2046, 129280}) {
    SampleRow row = greedy_row(random_logits(random, vocab_size, 4));
    row.rules.counts.assign(static_cast<size_t>(vocab_size), 3);
    row.rules.frequency = 1.5;
    row.rules.temperature = 0.5;
    row.num_top = static_cast<int32_t>(std::min<int64_t>(vocab_size, kMaxTop));
    const SampleOutcome out = sample({row})[0];
    const std::vector<double> expected = ref::log_softmax(row.rules.logits);
    const std::vector<int32_t> order = ref::ranking(row.rules.logits);
    EXPECT_NEAR(static_cast<double>(out.logprob), expected[static_cast<size_t>(out.token)], 1e-5);
    for (size_t i = 0; i < static_cast<size_t>(row.num_top); ++i) {
      EXPECT_EQ(out.top_ids[i], order[i]);
      EXPECT_NEAR(static_cast<double>(out.top_logprobs[i]), expected[static_cast<size_t>(order[i])],
                  1e-5);
    }
  }
}

TEST_P(SampleRulesTest, top_log_probabilities_break_ties_by_id_and_leave_the_rest_empty) {
  SampleRow three = greedy_row({1, 2, 2, 0, 2, 1}), none = greedy_row({1, 2, 2, 0, 2, 1});
  SampleRow more_than_there_are = greedy_row({1, 2, 2, 0, 2, 1});
  three.num_top = 3;
  more_than_there_are.num_top = 5;
  const auto out = sample({three, none, more_than_there_are});
  EXPECT_EQ(out[0].top_ids, (std::vector<int32_t>{1, 2, 4, -1, -1}));
  EXPECT_EQ(out[0].top_logprobs[3], 0.0f);
  EXPECT_EQ(out[1].top_ids, (std::vector<int32_t>{-1, -1, -1, -1, -1}));
  EXPECT_EQ(out[2].top_ids, (std::vector<int32_t>{1, 2, 4, 0, 5}));
}

TEST_P(SampleRulesTest, a_non_finite_row_fails_alone) {
  const SampleRow good = greedy_row({1, 3, 2});
  SampleRow nan = greedy_row({1, std::nan(""), 2}), inf = greedy_row({1, kInfinity, 2});
  SampleRow minus_inf = greedy_row({1, -kInfinity, 2}), forced = nan;
  nan.num_top = 2;
  forced.forced = 0;
  const auto out = sample({good, nan, good, inf, minus_inf, forced, good});
  for (const size_t i : {size_t{0}, size_t{2}, size_t{6}}) {
    EXPECT_EQ(out[i].token, 1);
    EXPECT_EQ(out[i].failed, 0);
  }
  for (const size_t i : {size_t{1}, size_t{3}, size_t{4}, size_t{5}}) {
    EXPECT_EQ(out[i].token, -1) << i;
    EXPECT_EQ(out[i].failed, 1) << i;
    EXPECT_EQ(out[i].logprob, 0.0f) << i;
    EXPECT_EQ(out[i].top_ids[0], -1) << i;
  }
}

TEST_P(SampleRulesTest, garbage_in_other_rows_changes_no_bit) {
  ref::Random random(2);
  std::vector<SampleRow> rows(6);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].rules.logits = random_logits(random, 2046, 4);
    rows[i].rules.temperature = i == 0 ? 0 : 0.9;
    rows[i].rules.top_p = 0.95;
    rows[i].rules.top_k = i == 2 ? 40 : 0;
    rows[i].seed = 100 + i;
    rows[i].num_top = kMaxTop;
  }
  rows[2].rules.counts.assign(2046, 1);
  rows[2].rules.frequency = 0.5;
  const std::vector<SampleOutcome> clean = sample(rows);
  for (const double garbage : kGarbage) {
    for (const size_t i : {size_t{1}, size_t{4}, size_t{5}})
      rows[i].rules.logits.assign(2046, garbage);
    const std::vector<SampleOutcome> out = sample(rows);
    for (const size_t i : {size_t{0}, size_t{2}, size_t{3}}) {
      EXPECT_EQ(out[i].token, clean[i].token) << garbage;
      EXPECT_EQ(out[i].logprob, clean[i].logprob) << garbage;
      EXPECT_EQ(out[i].failed, 0) << garbage;
      EXPECT_EQ(out[i].top_ids, clean[i].top_ids) << garbage;
      EXPECT_EQ(out[i].top_logprobs, clean[i].top_logprobs) << garbage;
    }
  }
}

TEST_P(SampleRulesTest, minus_infinity_is_accepted_where_the_mask_forbids_the_token) {
  SampleRow row = greedy_row({1, -kInfinity, 2});
  row.rules.allowed = {true, false, true};
  const SampleOutcome out = sample({row})[0];
  EXPECT_EQ(out.failed, 0);
  EXPECT_EQ(out.token, 2);
  EXPECT_NEAR(static_cast<double>(out.logprob), -std::log(1 + std::exp(-1.0)), 1e-6);
}

TEST_P(SampleRulesTest, a_row_without_any_token_left_fails) {
  SampleRow masked = greedy_row({1, 2, 3}), banned = greedy_row({1, 2, 3});
  masked.rules.allowed = {false, false, false};
  banned.rules.allowed = {true, false, false};
  banned.rules.bias = {{0, -kInfinity}};
  banned.rules.temperature = 1;
  for (const SampleOutcome& out : sample({masked, banned})) {
    EXPECT_EQ(out.token, -1);
    EXPECT_EQ(out.failed, 2);
  }
}

TEST_P(SampleRulesTest, penalties_follow_the_formula_for_prompt_and_output_tokens) {
  // Token: 0 only in the prompt, 1 three times in the output, 2 both, 3 neither. The bias that makes two
  // tokens equal is the oracle's difference, so half a step to either side decides.
  ref::SamplerRow rules{.logits = {2.0, 1.5, -1.0, 0.25},
                        .temperature = 0,
                        .repetition = 1.25,
                        .frequency = 0.5,
                        .presence = 0.75,
                        .counts = {kInPrompt, 3, kInPrompt + 2, 0}};
  const std::vector<double> adjusted = ref::adjusted_logits(rules);
  EXPECT_DOUBLE_EQ(adjusted[0], 2.0 / 1.25);
  EXPECT_DOUBLE_EQ(adjusted[1], 1.5 / 1.25 - 0.5 * 3 - 0.75);
  EXPECT_DOUBLE_EQ(adjusted[2], -1.0 * 1.25 - 0.5 * 2 - 0.75);
  EXPECT_DOUBLE_EQ(adjusted[3], 0.25);
  for (int32_t token = 0; token < 3; ++token) {
    const double difference = adjusted[3] - adjusted[static_cast<size_t>(token)];
    SampleRow above{.rules = rules}, below{.rules = rules};
    for (int32_t other = 0; other < 3; ++other) {
      if (other == token) continue;
      above.rules.bias.emplace_back(other, -100);
      below.rules.bias.emplace_back(other, -100);
    }
    above.rules.bias.emplace_back(token, difference + 1e-4);
    below.rules.bias.emplace_back(token, difference - 1e-4);
    const auto out = sample({above, below});
    EXPECT_EQ(out[0].token, token);
    EXPECT_EQ(out[1].token, 3);
  }
}

TEST_P(SampleRulesTest, drafts_on_the_way_to_a_row_are_penalised_as_if_they_were_counted) {
  ref::Random random(41);
  for (const int64_t vocab_size : {9, 2046}) {
    std::vector<SampleRow> on_path, counted;
    for (int i = 0; i < 24; ++i) {
      SampleRow row;
      row.rules.logits = random_logits(random, vocab_size, 1);
      row.rules.temperature = i % 3 == 0 ? 0 : 1;
      row.rules.repetition = 1.5;
      row.rules.frequency = 0.75;
      row.rules.presence = 0.5;
      row.rules.counts.assign(static_cast<size_t>(vocab_size), 0);
      row.rules.counts[3] = 2;
      row.rules.counts[4] = kInPrompt;
      row.seed = static_cast<uint64_t>(i);
      const auto best =
          static_cast<int32_t>(std::max_element(row.rules.logits.begin(), row.rules.logits.end()) -
                               row.rules.logits.begin());
      // Twice the best token, one that is in the prompt, one that the output has.
      row.path = {best, 4, best, 3};
      row.path.resize(static_cast<size_t>(i % 5));
      on_path.push_back(row);
      for (const int32_t id : row.path) ++row.rules.counts[static_cast<size_t>(id)];
      row.path.clear();
      counted.push_back(row);
    }
    // Without penalties a path says nothing.
    SampleRow plain;
    plain.rules.logits = on_path[0].rules.logits;
    plain.rules.temperature = 0;
    counted.push_back(plain);
    plain.path = {0, 1, 2};
    on_path.push_back(plain);
    const auto out = sample(on_path), expected = sample(counted);
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(out[i].token, expected[i].token) << "row " << i;
      EXPECT_EQ(out[i].logprob, expected[i].logprob) << "row " << i;
    }
  }
}

TEST_P(SampleRulesTest, penalties_touch_only_the_rows_that_have_them) {
  SampleRow plain = greedy_row({3, 2, 1}), penalised = greedy_row({3, 2, 1});
  penalised.rules.counts = {2, 0, 0};
  penalised.rules.frequency = 1;
  SampleRow other = greedy_row({3, 2, 1});
  other.rules.counts = {2, 2, 0};
  other.rules.presence = 5;
  const auto out = sample({plain, penalised, plain, other});
  EXPECT_EQ(out[0].token, 0);
  EXPECT_EQ(out[1].token, 1);
  EXPECT_EQ(out[2].token, 0);
  EXPECT_EQ(out[3].token, 2);
}

TEST_P(SampleRulesTest, bias_shifts_bans_and_adds_up) {
  SampleRow shifted = greedy_row({3, 2, 1}), banned = greedy_row({3, 2, 1});
  SampleRow twice = greedy_row({3, 2, 1});
  shifted.rules.bias = {{2, 2.5}};
  banned.rules.bias = {{0, -kInfinity}, {1, -kInfinity}};
  twice.rules.bias = {{1, 0.75}, {1, 0.75}};
  const auto out = sample({shifted, banned, twice, greedy_row({3, 2, 1})});
  EXPECT_EQ(out[0].token, 2);
  EXPECT_EQ(out[1].token, 2);
  EXPECT_EQ(out[2].token, 1);
  EXPECT_EQ(out[3].token, 0);
}

TEST_P(SampleRulesTest, bans_hold_below_a_position_and_biases_always) {
  SampleRow early = greedy_row({3, 2, 1}), late = greedy_row({3, 2, 1});
  early.rules.bias = {{0, -kInfinity}, {2, 1.5}};
  early.position = 7;
  late = early;
  late.is_past_bans = true;
  const auto out = sample({early, late, greedy_row({3, 2, 1}), early});
  EXPECT_EQ(out[0].token, 2);
  EXPECT_EQ(out[1].token, 0);
  EXPECT_EQ(out[2].token, 0);
  EXPECT_EQ(out[3].token, 2);
}

TEST_P(SampleRulesTest, padding_takes_the_largest_logit_whatever_slots_say) {
  SampleRow padding = greedy_row({3, 5, 1});
  padding.rules.bias = {{1, -kInfinity}};
  padding.rules.temperature = 2;
  padding.num_top = 2;
  padding.is_padding = true;
  const auto out = sample({greedy_row({3, 5, 1}), padding});
  EXPECT_EQ(out[1].token, 1);
  EXPECT_EQ(out[1].failed, 0);
  EXPECT_EQ(out[1].top_ids[0], -1);
}

TEST_P(SampleRulesTest, the_mask_wins_over_everything) {
  ref::Random random(5);
  SampleRow row = greedy_row(random_logits(random, 130, 1));
  row.rules.allowed.assign(130, false);
  row.rules.allowed[129] = true;
  row.rules.allowed[63] = true;
  row.rules.bias = {{7, 1000}, {63, 50}};
  SampleRow drawn = row;
  drawn.rules.temperature = 2;
  const auto out = sample({row, drawn});
  EXPECT_EQ(out[0].token, 63);
  EXPECT_TRUE(out[1].token == 63 || out[1].token == 129);
}

TEST_P(SampleRulesTest, a_forced_row_reports_that_tokens_log_probability) {
  SampleRow row = greedy_row({1, 5, 2});
  row.forced = 2;
  row.num_top = 1;
  row.rules.bias = {{0, -kInfinity}, {1, -kInfinity}, {2, -kInfinity}};  // choosing would fail
  row.rules.counts = {0, 0, 7};
  row.rules.repetition = 2;
  const SampleOutcome out = sample({row})[0];
  EXPECT_EQ(out.token, 2);
  EXPECT_NEAR(static_cast<double>(out.logprob), ref::log_softmax({1, 5, 2})[2], 1e-6);
  EXPECT_EQ(out.top_ids[0], 1);
}

}  // namespace
}  // namespace fathom::ops_test
