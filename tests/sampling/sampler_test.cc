#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/rng.h"
#include "cpu/reference/reference_backend.h"

namespace fathom::sampling {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabSize = 8;

core::SamplingParams greedy() {
  core::SamplingParams params;
  params.temperature = 0;
  return params;
}

class SamplerTest : public ::testing::Test {
 protected:
  SamplerTest()
      : stream_(cpu::reference_backend().make_stream({})),
        writes_(cpu::reference_backend(), Sampler::kNumFrames),
        sampler_({.vocab_size = kVocabSize, .max_slots = 3, .max_rows = 16, .max_sampled_rows = 5},
                 cpu::reference_backend()) {}

  void admit(int32_t slot, const core::SamplingParams& params,
             const std::vector<int32_t>& prompt = {0, 1}, int32_t num_generated = 0,
             uint64_t seed = 0) {
    admit({.slot = slot,
           .prompt = prompt,
           .num_generated_tokens = num_generated,
           .sampling = params,
           .stop_token_ids = {7},
           .seed = seed});
  }

  void admit(const core::SlotAdmission& admission) {
    sampler_.admit(admission, writes_);
    writes_.send(0, *stream_);
    sampler_.send_counts(0, *stream_);
  }

  // One row of logits per sample row, sampled in pieces of `piece` rows.
  std::vector<Result<core::SampledToken>> sample(const std::vector<SampleRow>& rows,
                                                 std::vector<std::vector<float>> logits,
                                                 size_t piece = 100) {
    sampler_.begin_step(rows, 0, *stream_);
    for (const auto& [row, mask] : masks_) sampler_.set_mask(row, {&mask, 1});
    for (size_t begin = 0; begin < rows.size(); begin += piece) {
      std::vector<float> values;
      size_t end = begin;
      for (; end < std::min(begin + piece, rows.size()); ++end)
        values.insert(values.end(), logits[end].begin(), logits[end].end());
      sampler_.sample(static_cast<int64_t>(begin),
                      tensor::Tensor::contiguous(values.data(), tensor::DType::kF32,
                                                 {static_cast<int64_t>(end - begin), kVocabSize}),
                      *stream_);
    }
    sampler_.fetch(*stream_);
    stream_->synchronize();
    std::vector<Result<core::SampledToken>> results;
    for (size_t i = 0; i < rows.size(); ++i)
      results.push_back(sampler_.result(0, static_cast<int64_t>(i)));
    return results;
  }

  std::map<int64_t, uint64_t> masks_;  // of the next step: row -> allowed tokens
  std::unique_ptr<ops::Stream> stream_;
  ops::DeviceWrites writes_;
  Sampler sampler_;
};

const std::vector<float> kRising = {0, 1, 2, 3, 4, 5, 6, 7};
const std::vector<float> kFlat(kVocabSize, 1.0f);

TEST_F(SamplerTest, chooses_the_largest_logit_and_reports_log_softmax) {
  core::SamplingParams params = greedy();
  params.num_top_logprobs = 2;
  admit(0, params);
  const auto results = sample({{.slot = 0, .position = 2}}, {kRising});
  double sum = 0;
  for (float logit : kRising) sum += std::exp(static_cast<double>(logit));
  EXPECT_EQ(results[0]->token, 7);
  EXPECT_NEAR(results[0]->logprob, 7 - std::log(sum), 1e-5);
  ASSERT_EQ(results[0]->top_logprobs.size(), 2u);
  EXPECT_EQ(results[0]->top_logprobs[1].first, 6);
  EXPECT_NEAR(results[0]->top_logprobs[1].second, 6 - std::log(sum), 1e-5);
}

TEST_F(SamplerTest, draws_by_seed_and_position_in_any_row_of_any_piece) {
  core::SamplingParams params;
  constexpr uint64_t kSeed = 77;
  admit(0, params, {0, 1}, 0, kSeed);
  admit(1, greedy());
  for (const size_t piece : {1U, 3U, 100U}) {
    std::vector<SampleRow> rows;
    for (int32_t position = 2; position < 10; ++position) {
      rows.push_back({.slot = 0, .position = position});
      if (position % 3 == 0) rows.push_back({.slot = 1, .position = position});
    }
    const auto results = sample(rows, std::vector<std::vector<float>>(rows.size(), kFlat), piece);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].slot == 1) continue;
      // Equal probabilities: the draw cuts [0, 1) into equal parts in order of ids.
      const uint64_t bits = random_bits(philox(kSeed, 0, static_cast<uint64_t>(rows[i].position)));
      EXPECT_EQ(results[i]->token, static_cast<int32_t>(scale_bits(bits, kVocabSize)))
          << "row " << i;
    }
  }
}

TEST_F(SamplerTest, penalises_output_tokens_and_repeats_of_the_prompt) {
  core::SamplingParams presence = greedy();
  presence.presence_penalty = 2;
  admit(0, presence, {7, 7, 6},
        /*num_generated=*/1);  // 6 was generated: 6 -> 4, the prompt's 7 stays
  core::SamplingParams repetition = greedy();
  repetition.repetition_penalty = 2;
  admit(1, repetition, {7, 6});  // 7 -> 3.5, 6 -> 3
  admit(2, greedy(), {7, 6});
  EXPECT_GE(sampler_.penalty_row(0), 0);
  EXPECT_EQ(sampler_.penalty_row(2), -1);
  const auto results =
      sample({{.slot = 0, .position = 3}, {.slot = 1, .position = 2}, {.slot = 2, .position = 2}},
             {{0, 0, 0, 0, 0, 5, 6.5f, 3}, kRising, kRising});
  EXPECT_EQ(results[0]->token, 5);
  EXPECT_EQ(results[1]->token, 5);
  EXPECT_EQ(results[2]->token, 7);
}

TEST_F(SamplerTest, keeps_counts_only_for_requests_with_penalties_and_clears_them_on_reuse) {
  core::SamplingParams params = greedy();
  params.frequency_penalty = 2;
  admit(0, params, {0, 7, 7, 7}, 3);
  EXPECT_EQ(sampler_.penalty_row(0), 0);
  EXPECT_EQ(sample({{.slot = 0, .position = 4}}, {kRising})[0]->token, 6);
  sampler_.release(0);
  admit(1, params, {0, 1});
  EXPECT_EQ(sample({{.slot = 1, .position = 2}}, {kRising})[0]->token, 7);
}

TEST_F(SamplerTest, bans_stop_tokens_until_min_new_tokens_are_out) {
  core::SamplingParams params = greedy();
  params.min_new_tokens = 2;
  params.logit_bias = {{6, -100.0f}};
  admit(0, params);  // two prompt tokens, stop token 7
  admit(1, greedy());
  const auto results = sample({{.slot = 1, .position = 2},
                               {.slot = 0, .position = 2},
                               {.slot = 0, .position = 3},
                               {.slot = 0, .position = 4},
                               {.slot = 0, .position = 2, .forced = 7}},
                              {kRising, kRising, kRising, kRising, kRising}, 2);
  EXPECT_EQ(results[0]->token, 7);
  EXPECT_EQ(results[1]->token, 5);
  EXPECT_EQ(results[2]->token, 5);
  EXPECT_EQ(results[3]->token, 7);
  EXPECT_EQ(results[4]->token, 7);
  EXPECT_EQ(results[4]->logprob, results[0]->logprob);
}

TEST_F(SamplerTest, reports_a_forced_token_whatever_would_be_chosen) {
  core::SamplingParams params;
  params.repetition_penalty = 2;
  params.num_top_logprobs = 1;
  admit(0, params);
  const auto results =
      sample({{.slot = 0, .position = 1, .forced = 3}, {.slot = 0, .position = 1, .forced = 7}},
             {kRising, kRising});
  EXPECT_EQ(results[0]->token, 3);
  EXPECT_NEAR(results[1]->logprob - results[0]->logprob, 4, 1e-5);
  EXPECT_EQ(results[0]->top_logprobs.at(0).first, 7);
}

TEST_F(SamplerTest, says_why_a_row_has_no_token) {
  core::SamplingParams nothing_left = greedy();
  nothing_left.min_new_tokens = 5;
  admit({.slot = 0,
         .prompt = {0},
         .sampling = nothing_left,
         .stop_token_ids = {0, 1, 2, 3, 4, 5, 6, 7}});
  admit(1, greedy());
  std::vector<float> nan = kRising;
  nan[2] = std::numeric_limits<float>::quiet_NaN();
  const auto results =
      sample({{.slot = 0, .position = 1}, {.slot = 1, .position = 2}, {.slot = 1, .position = 3}},
             {kRising, nan, kRising});
  ASSERT_FALSE(results[0]);
  EXPECT_THAT(results[0].error().message, HasSubstr("leave no token to choose for token 1"));
  ASSERT_FALSE(results[1]);
  EXPECT_EQ(results[1].error().code, ErrorCode::kNumeric);
  EXPECT_EQ(results[1].error().message, "the logits for token 2 of the sequence are not finite");
  EXPECT_EQ(results[2]->token, 7);
}

TEST_F(SamplerTest, limits_masked_rows_and_no_others_in_any_pieces) {
  core::SamplingParams params = greedy();
  params.num_top_logprobs = 1;
  admit(0, params);
  for (const size_t piece : {1u, 2u, 3u, 5u}) {
    masks_ = {{1, 0b00001011}, {3, 0b00000001}, {4, 0b11111111}};
    std::vector<SampleRow> rows(5, {.slot = 0, .position = 2});
    rows[2].forced = 6;
    const auto results = sample(rows, std::vector<std::vector<float>>(5, kRising), piece);
    EXPECT_EQ(results[0]->token, 7) << piece;
    EXPECT_EQ(results[1]->token, 3) << piece;
    EXPECT_EQ(results[2]->token, 6) << piece;
    EXPECT_EQ(results[3]->token, 0) << piece;
    EXPECT_EQ(results[4]->token, 7) << piece;
    // Log-probabilities are of the raw logits: no mask changes them.
    EXPECT_FLOAT_EQ(results[0]->logprob - results[1]->logprob, 4);
    EXPECT_EQ(results[1]->top_logprobs.at(0).first, 7);
  }
  masks_.clear();  // the next step starts without
  const auto results =
      sample({{.slot = 0, .position = 2}, {.slot = 0, .position = 2}}, {kRising, kRising});
  EXPECT_EQ(results[1]->token, 7);
}

TEST_F(SamplerTest, draws_from_what_mask_bans_and_bias_leave) {
  core::SamplingParams params;
  params.min_new_tokens = 10;  // bans 7
  params.logit_bias = {{5, -std::numeric_limits<float>::infinity()}};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    admit(0, params, {0, 1}, 0, seed);
    masks_ = {{0, 0b10110010}};
    const auto results = sample({{.slot = 0, .position = 2}}, {kFlat});
    ASSERT_TRUE(results[0]);
    EXPECT_TRUE(results[0]->token == 1 || results[0]->token == 4) << results[0]->token;
  }
  masks_ = {{0, 0b10100000}};
  const auto results = sample({{.slot = 0, .position = 2}}, {kFlat});
  ASSERT_FALSE(results[0]);
  EXPECT_EQ(
      results[0].error().message,
      "grammar, logit_bias and stop tokens leave no token to choose for token 2 of the sequence");
}

// All slots have as many biases as there is room for: more words than are sent at once.
TEST_F(SamplerTest, takes_the_most_biases_in_every_slot) {
  constexpr int kLarge = 6000, kSlots = 8;
  Sampler sampler({.vocab_size = kLarge, .max_slots = kSlots, .max_rows = kSlots},
                  cpu::reference_backend());
  std::vector<SampleRow> rows;
  for (int32_t slot = 0; slot < kSlots; ++slot) {
    core::SamplingParams params = greedy();
    for (int32_t token = 0; token < core::kMaxBiasesOfSlot; ++token)
      params.logit_bias.emplace_back(token, token == 100 + slot ? 1.0f : -1.0f);
    sampler.admit({.slot = slot, .prompt = {0}, .sampling = params}, writes_);
    rows.push_back({.slot = slot, .position = 1});
  }
  static_assert(kSlots * 2 * core::kMaxBiasesOfSlot > ops::DeviceWrites::kWordsAtOnce);
  writes_.send(0, *stream_);
  sampler.begin_step(rows, 0, *stream_);
  std::vector<float> logits(kSlots * kLarge, 0.5f);
  sampler.sample(0,
                 tensor::Tensor::contiguous(logits.data(), tensor::DType::kF32, {kSlots, kLarge}),
                 *stream_);
  sampler.fetch(*stream_);
  for (int32_t slot = 0; slot < kSlots; ++slot)
    EXPECT_EQ(sampler.result(0, slot)->token, 100 + slot);
}

// Two prompts that take more than one part each, and one that shares a part with the end of the second.
TEST_F(SamplerTest, counts_prompts_longer_than_what_is_sent_at_once) {
  constexpr size_t kLong = Sampler::kTokensAtOnce + 5;
  core::SamplingParams params = greedy();
  params.frequency_penalty = 1;
  std::vector<core::SlotAdmission> admissions;
  for (int32_t slot = 0; slot < 3; ++slot) {
    core::SlotAdmission admission{.slot = slot, .sampling = params};
    admission.prompt.assign(slot == 2 ? 4 : kLong, 3);
    // The last three were generated: 3, slot, slot.
    admission.num_generated_tokens = 3;
    admission.prompt.end()[-1] = admission.prompt.end()[-2] = slot;
    admissions.push_back(std::move(admission));
  }
  for (const core::SlotAdmission& admission : admissions) sampler_.admit(admission, writes_);
  writes_.send(0, *stream_);
  sampler_.send_counts(0, *stream_);
  constexpr int32_t kInPrompt = INT32_MIN;
  for (int32_t slot = 0; slot < 3; ++slot) {
    std::vector<int32_t> expected(kVocabSize, 0);
    expected[static_cast<size_t>(slot)] = 2;
    expected[3] = kInPrompt + 1;
    const auto* const row = sampler_.counts().row<int32_t>(sampler_.penalty_row(slot));
    EXPECT_EQ(std::vector<int32_t>(row, row + kVocabSize), expected) << slot;
  }
}

}  // namespace
}  // namespace fathom::sampling
