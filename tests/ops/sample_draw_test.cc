// sample: the draw. Against the oracle token by token, its distribution, and the edges of top-k, top-p and
// min-p.

#include <algorithm>
#include <cmath>
#include <set>

#include "base/rng.h"
#include "tests/ops/sample_rows.h"

namespace fathom::ops_test {
namespace {

class SampleDrawTest : public SampleTest {
 protected:
  // Tokens of `draws` rows that differ in position only.
  std::vector<int32_t> draw(const ref::SamplerRow& rules, int draws, uint64_t seed = 7) {
    std::vector<SampleRow> rows;
    for (int32_t i = 0; i < draws; ++i) {
      rows.push_back({.rules = rules, .seed = seed, .position = i});
    }
    std::vector<int32_t> tokens;
    for (const SampleOutcome& out : sample(rows)) tokens.push_back(out.token);
    return tokens;
  }
  std::set<int32_t> distinct(const ref::SamplerRow& rules, int draws) {
    const std::vector<int32_t> tokens = draw(rules, draws);
    return {tokens.begin(), tokens.end()};
  }
};
INSTANTIATE_TEST_SUITE_P(backends, SampleDrawTest, testing::ValuesIn(tested_backends()),
                         backend_name);

// All but the reference backend, to compare with it.
class OtherBackendsDrawTest : public SampleDrawTest {};
INSTANTIATE_TEST_SUITE_P(backends, OtherBackendsDrawTest, testing::ValuesIn([] {
                           std::vector<TestedBackend> backends = tested_backends();
                           backends.erase(backends.begin());
                           return backends;
                         }()),
                         backend_name);

double uniform_of(uint64_t seed, int32_t position) {
  return static_cast<double>(random_bits(philox(seed, 0, static_cast<uint64_t>(position)))) *
         0x1p-64;
}

// Settings that restrict in every way, and their crossings with temperatures.
std::vector<ref::SamplerRow> restrictions(double temperature) {
  const auto exact = [](float value) { return static_cast<double>(value); };
  std::vector<ref::SamplerRow> all;
  for (const int32_t top_k : {0, 2, 40, 1 << 20})
    for (const double top_p : {1.0, exact(0.9f), exact(0.3f), exact(1e-6f)})
      for (const double min_p : {0.0, exact(0.05f), 1.0})
        all.push_back({.temperature = temperature, .top_p = top_p, .min_p = min_p, .top_k = top_k});
  return all;
}

TEST_P(SampleDrawTest, equals_the_oracle_token_by_token_over_all_parameters) {
  ref::Random random(11);
  int compared = 0;
  for (const int64_t vocab_size : {1, 61, 2046}) {
    for (const float temperature : {0.3f, 1.0f, 1.7f}) {
      for (const ref::SamplerRow& rules : restrictions(static_cast<double>(temperature))) {
        std::vector<SampleRow> rows(4);
        for (SampleRow& row : rows) {
          row.rules = rules;
          row.rules.logits = random_logits(random, vocab_size, 2);
          row.seed = random.engine()();
          row.position = static_cast<int32_t>(random.engine()() % 100000);
        }
        const auto out = sample(rows);
        for (size_t i = 0; i < rows.size(); ++i) {
          const ref::Distribution expected = ref::restricted(rows[i].rules);
          const double u = uniform_of(rows[i].seed, rows[i].position);
          if (rules.min_p < 1 && expected.is_near_border(u, 2e-6)) continue;
          EXPECT_EQ(out[i].token, expected.draw(u))
              << vocab_size << " tokens, temperature " << temperature << ", top_k " << rules.top_k
              << ", top_p " << rules.top_p << ", min_p " << rules.min_p;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 1500);
}

TEST_P(SampleDrawTest, follows_the_distribution_by_chi_square) {
  const std::vector<ref::SamplerRow> cases = {
      {.logits = {0, 1, 2, 3, -1, 0.5, 0.5, 2}},
      {.logits = {0, 1, 2, 3, -1, 0.5, 0.5, 2}, .temperature = 2.5},
      {.logits = {0, 1, 2, 3, -1, 0.5, 0.5, 2}, .top_p = 0.8},
      {.logits = {0, 0, 0, 0, 0, 0}, .top_k = 4},
      {.logits = {0, 1, 2, 3, -1, 0.5, 0.5, 2}, .min_p = 0.1},
      {.logits = {0, 1, 2, 3, -1, 0.5, 0.5, 2}, .top_p = 0.9, .min_p = 0.05, .top_k = 6},
      {.logits = {0, 1, 2, 3, -1, 0.5, 0.5, 2},
       .bias = {{3, -2}},
       .allowed = {true, true, false, true, true, true, true, true}}};
  constexpr int kDraws = 8000;
  for (size_t c = 0; c < cases.size(); ++c) {
    const ref::Distribution expected = ref::restricted(cases[c]);
    const std::vector<int32_t> tokens = draw(cases[c], kDraws, 1000 + c);
    double chi_square = 0, seen = 0;
    for (size_t i = 0; i < expected.ids.size(); ++i) {
      const double hits =
          static_cast<double>(std::count(tokens.begin(), tokens.end(), expected.ids[i]));
      const double mean = expected.probabilities[i] * kDraws;
      chi_square += (hits - mean) * (hits - mean) / mean;
      seen += hits;
    }
    EXPECT_EQ(seen, kDraws) << "case " << c << ": a token outside the restricted set was drawn";
    // At most 7 degrees of freedom: above 29.9 with probability 1e-4. Seeds are fixed.
    EXPECT_LT(chi_square, 29.9) << "case " << c;
  }
}

// Blocks of the vocabulary are where a sum could go wrong: 40 groups of 125 tokens, each group's share.
TEST_P(SampleDrawTest, follows_the_distribution_across_a_large_vocabulary) {
  ref::Random random(31);
  const std::vector<double> logits = random_logits(random, 5000, 1);
  for (const double top_p : {1.0, 0.7}) {
    const ref::SamplerRow rules{.logits = logits, .top_p = top_p};
    const ref::Distribution expected = ref::restricted(rules);
    constexpr int kDraws = 2000;
    std::vector<double> mean(40), hits(40);
    for (size_t i = 0; i < expected.ids.size(); ++i)
      mean[static_cast<size_t>(expected.ids[i]) / 125] += expected.probabilities[i] * kDraws;
    for (const int32_t token : draw(rules, kDraws, 77)) ++hits[static_cast<size_t>(token) / 125];
    double chi_square = 0;
    for (size_t i = 0; i < 40; ++i)
      chi_square += (hits[i] - mean[i]) * (hits[i] - mean[i]) / mean[i];
    // 39 degrees of freedom: above 80.1 with probability 1e-4.
    EXPECT_LT(chi_square, 80.1) << "top_p " << top_p;
  }
}

// Logits of many kinds: spread, flat, with ties everywhere, all equal, of one token with strangers far away.
std::vector<std::vector<double>> kinds_of_logits(int64_t vocab_size) {
  ref::Random random(21);
  std::vector<std::vector<double>> kinds = {random_logits(random, vocab_size, 3),
                                            random_logits(random, vocab_size, 0.01)};
  std::vector<double> ties = random_logits(random, vocab_size, 2);
  for (double& logit : ties) logit = std::round(logit);
  for (size_t id = 0; id < ties.size(); id += 3)
    if (ties[id] == 0) ties[id] = -0.0;
  kinds.push_back(ties);
  kinds.emplace_back(static_cast<size_t>(vocab_size), -1.25);
  std::vector<double> peak(static_cast<size_t>(vocab_size), -100.0);
  peak[peak.size() / 2] = 5;
  kinds.push_back(peak);
  return kinds;
}

// Not within a tolerance: the contract leaves no rounding to a backend once the logits are given.
TEST_P(OtherBackendsDrawTest, draws_the_reference_backends_tokens_whatever_the_logits) {
  for (const int64_t vocab_size : {1, 3, 64, 1023, 1025, 2100}) {
    std::vector<SampleRow> rows;
    for (const double temperature : {1e-30, 0.3, 1.0, 1e30}) {
      for (const std::vector<double>& logits : kinds_of_logits(vocab_size)) {
        for (ref::SamplerRow rules :
             restrictions(static_cast<double>(static_cast<float>(temperature)))) {
          rules.logits = logits;
          rows.push_back(
              {.rules = rules, .seed = 3, .position = static_cast<int32_t>(rows.size())});
        }
      }
    }
    const std::vector<SampleOutcome> out = sample(rows), expected = sample_on_reference(rows);
    for (size_t i = 0; i < rows.size(); ++i)
      ASSERT_EQ(out[i].token, expected[i].token)
          << "row " << i << " of " << vocab_size << " tokens";
  }
}

TEST_P(OtherBackendsDrawTest, draws_the_reference_backends_tokens_from_a_large_vocabulary) {
  std::vector<SampleRow> rows;
  for (const std::vector<double>& logits : kinds_of_logits(129280)) {
    for (const int32_t top_k : {0, 50, 3000})
      for (const double top_p : {1.0, 0.5}) {
        const ref::SamplerRow rules{.logits = logits, .top_p = top_p, .top_k = top_k};
        rows.push_back({.rules = rules, .seed = 4, .position = static_cast<int32_t>(rows.size())});
      }
    rows.back().rules.allowed.assign(129280, true);
    for (size_t id = 0; id < 129280; id += 2) rows.back().rules.allowed[id] = false;
  }
  const std::vector<SampleOutcome> out = sample(rows), expected = sample_on_reference(rows);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(out[i].token, expected[i].token) << "row " << i;
}

// Half of a flat vocabulary: the limit lies among ties that fill every block.
TEST_P(SampleDrawTest, ties_everywhere_keep_the_lower_ids) {
  const std::vector<double> flat(5000, 0.5);
  const auto largest = [&](const ref::SamplerRow& rules) { return *distinct(rules, 400).rbegin(); };
  EXPECT_LT(largest({.logits = flat, .top_p = 0.5}), 2500);
  EXPECT_GT(largest({.logits = flat, .top_p = 0.5}), 2400);
  EXPECT_LT(largest({.logits = flat, .top_k = 1500}), 1500);
  EXPECT_LT(largest({.logits = flat, .top_p = 0.5, .top_k = 1500}), 1500);
  EXPECT_LT(largest({.logits = flat, .top_p = 0.25, .top_k = 1500}), 1250);
  EXPECT_GT(largest({.logits = flat, .top_p = 1, .min_p = 1, .top_k = 5000}), 4900);
}

TEST_P(SampleDrawTest, the_two_zeros_are_equal) {
  EXPECT_EQ(distinct({.logits = {-0.0, 0.0, -0.0, 0.0}, .top_k = 3}, 300),
            (std::set<int32_t>{0, 1, 2}));
}

TEST_P(SampleDrawTest, depends_on_seed_and_position_only) {
  ref::Random random(12);
  SampleRow row{.rules = {.logits = random_logits(random, 500, 1)}, .seed = 99, .position = 17};
  SampleRow stranger{.rules = {.logits = random_logits(random, 500, 3), .top_k = 3}, .seed = 5};
  const int32_t alone = sample({row})[0].token;
  EXPECT_EQ(sample({stranger, row, stranger, row})[1].token, alone);
  EXPECT_EQ(sample({stranger, row, stranger, row})[3].token, alone);
  EXPECT_GT(distinct(row.rules, 50).size(), 20u);
}

// More rows than a GPU takes at once.
TEST_P(SampleDrawTest, rows_of_a_large_batch_are_those_of_a_row_alone) {
  ref::Random random(13);
  std::vector<SampleRow> rows;
  for (int i = 0; i < 50; ++i) {
    SampleRow row{.rules = {.logits = random_logits(random, 4004, 3)},
                  .seed = 6,
                  .position = i,
                  .num_top = i % 6};
    if (i % 3 == 0) row.rules.temperature = 0;
    if (i % 5 == 4) row.forced = 17;
    rows.push_back(row);
  }
  const std::vector<SampleOutcome> out = sample(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const SampleOutcome alone = sample({rows[i]})[0];
    EXPECT_EQ(out[i].token, alone.token) << "row " << i;
    EXPECT_EQ(out[i].logprob, alone.logprob) << "row " << i;
    EXPECT_EQ(out[i].top_ids, alone.top_ids) << "row " << i;
    EXPECT_EQ(out[i].top_logprobs, alone.top_logprobs) << "row " << i;
  }
}

TEST_P(SampleDrawTest, top_k_with_ties_keeps_the_lower_ids) {
  EXPECT_EQ(distinct({.logits = {1, 2, 2, 2, 2}, .top_k = 2}, 200), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(distinct({.logits = {5, 5, 5, 5, 5}, .top_k = 3}, 300), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(distinct({.logits = {5, 5, 5}, .top_k = 100}, 300), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(distinct({.logits = {5, 5, 5}, .top_k = -1}, 300), (std::set<int32_t>{0, 1, 2}));
}

TEST_P(SampleDrawTest, top_p_includes_the_token_that_crosses_it) {
  const std::vector<double> quarters = {0, 0, 0, 0};
  EXPECT_EQ(distinct({.logits = quarters, .top_p = 0.5}, 300), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(distinct({.logits = quarters, .top_p = 0.51}, 300), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(distinct({.logits = quarters, .top_p = 1.0}, 300), (std::set<int32_t>{0, 1, 2, 3}));
}

TEST_P(SampleDrawTest, a_tiny_top_p_leaves_the_best_token) {
  EXPECT_EQ(distinct({.logits = {1, 3, 2, 3}, .top_p = 1e-9}, 100), (std::set<int32_t>{1}));
  EXPECT_EQ(distinct({.logits = {1, 3, 2, 3}, .top_p = 0}, 100), (std::set<int32_t>{1}));
}

TEST_P(SampleDrawTest, top_p_counts_the_whole_distribution_also_after_top_k) {
  // p = 0.25 each: the two that top_k leaves sum to 0.5 < 0.6, so both stay.
  EXPECT_EQ(distinct({.logits = {0, 0, 0, 0}, .top_p = 0.6, .top_k = 2}, 300),
            (std::set<int32_t>{0, 1}));
}

TEST_P(SampleDrawTest, min_p_is_relative_to_the_best_token) {
  const double half = std::log(0.5);
  EXPECT_EQ(distinct({.logits = {0, half - 0.01, half + 0.01, -5}, .min_p = 0.5}, 300),
            (std::set<int32_t>{0, 2}));
  EXPECT_EQ(distinct({.logits = {2, 2, 1.9}, .min_p = 1}, 300), (std::set<int32_t>{0, 1}));
}

TEST_P(SampleDrawTest, banned_and_masked_tokens_are_never_drawn) {
  const double banned = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(distinct({.logits = {9, 9, 0, 0, 0},
                      .bias = {{0, banned}, {1, banned}},
                      .allowed = {true, true, true, false, true}},
                     300),
            (std::set<int32_t>{2, 4}));
}

TEST_P(SampleDrawTest, extreme_temperatures_and_logits_stay_in_range) {
  EXPECT_EQ(distinct({.logits = {1, 3, 2}, .temperature = 1e-30}, 50), (std::set<int32_t>{1}));
  EXPECT_EQ(distinct({.logits = {0, 1, 2}, .temperature = 1e30}, 300),
            (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(distinct({.logits = {-3e38, 3e38, 0}}, 50), (std::set<int32_t>{1}));
}

}  // namespace
}  // namespace fathom::ops_test
