// Steps as bytes: everything comes back, and what is cut, mutated or out of a lane's range is refused as a whole.

#include "core/step_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace fathom::core {
namespace {

using ::testing::HasSubstr;

StepLimits codec_limits() {
  return {.vocab_size = 130,
          .lane = 1,
          .num_lanes = 2,
          .num_slots = 8,
          .max_batch_tokens = 64,
          .max_context_tokens = 100,
          .max_drafts = 5,
          .num_blocks = {10, 20}};
}

// Every member has a value that is not its default.
Batch full_batch() {
  const SamplingParams sampling{.max_new_tokens = 9,
                                .min_new_tokens = 2,
                                .temperature = 0.5f,
                                .top_k = 7,
                                .top_p = 0.9f,
                                .min_p = 0.1f,
                                .repetition_penalty = 1.5f,
                                .frequency_penalty = 0.25f,
                                .presence_penalty = -0.5f,
                                .logit_bias = {{3, 1.0f}, {129, -100.0f}},
                                .seed = 1ull << 63,
                                .stop_token_ids = {4},
                                .ignore_eos = true,
                                .return_logprobs = true,
                                .num_top_logprobs = 3,
                                .return_prompt_logprobs = true};
  Batch batch{.step_id = 1ll << 40};
  batch.admissions.push_back({.slot = 7,
                              .num_cached_tokens = 1,
                              .prompt = {5, 129, 0},
                              .num_generated_tokens = 2,
                              .max_rows = 40,
                              .sampling = sampling,
                              .stop_token_ids = {4, 100'000},
                              .seed = 42});
  batch.block_appends.push_back({.slot = 7, .kv_group = 1, .block_ids = {19, 0}});
  batch.slices.push_back({.slot = 7,
                          .num_tokens = 2,
                          .tokens = {129, 0},
                          .tree_mask = {0, 1},
                          .relative_positions = {0, 1},
                          .outputs = Outputs::kAll,
                          .wants_mask = true,
                          .num_drafts_to_propose = 5});
  batch.slices.push_back({.slot = 0, .num_tokens = 6, .outputs = Outputs::kNone});
  batch.releases = {3, 0};
  batch.shape = {
      .lane_tokens = {50, 8}, .lane_slices = {8, 2}, .most_drafts = 5, .going_on_tokens = 6};
  return batch;
}

StepMasks full_masks() {
  return {.step_id = 5,
          .masks = {{.slice_idx = 7, .words = {1, 2, ~0ull}},
                    {.slice_idx = 0, .words = {4, 5, 6, 7, 8, 9}}}};
}

StepResult full_result() {
  const SampledToken token{
      .token = 129, .logprob = -0.5f, .top_logprobs = {{1, -1.0f}, {2, -2.0f}}};
  return {.step_id = 6,
          .slices = {{.slot = 7,
                      .tokens = {token, token},
                      .num_verified_drafts = 5,
                      .drafts = {{.token = 1, .parent = -1}, {.token = 2, .parent = 0}},
                      .prompt_logprobs = {token}},
                     {.slot = 0, .error = "no token to choose"}},
          .wall_seconds = 1.5,
          .forward_seconds = 1,
          .sampling_seconds = 0.25,
          .mask_wait_seconds = 0.125};
}

using Bytes = std::vector<std::byte>;

// The bytes of what was decoded, or none: only the same value has the same bytes.
Bytes batch_again(const Bytes& bytes) {
  const auto value = decode_batch(bytes, codec_limits());
  return value ? encode(*value) : Bytes();
}
Bytes masks_again(const Bytes& bytes) {
  const auto value = decode_masks(bytes, codec_limits());
  return value ? encode(*value) : Bytes();
}
Bytes result_again(const Bytes& bytes) {
  const auto value = decode_result(bytes, codec_limits());
  return value ? encode(*value) : Bytes();
}

TEST(StepCodec, brings_back_every_member) {
  const auto decoded = decode_batch(encode(full_batch()), codec_limits());
  ASSERT_TRUE(decoded) << decoded.error().message;
  const SlotAdmission& admission = decoded->admissions.at(0);
  EXPECT_EQ(decoded->step_id, 1ll << 40);
  EXPECT_EQ(admission.prompt, (std::vector<int32_t>{5, 129, 0}));
  EXPECT_EQ(admission.sampling.seed, 1ull << 63);
  EXPECT_EQ(admission.sampling.logit_bias, full_batch().admissions[0].sampling.logit_bias);
  EXPECT_TRUE(admission.sampling.return_prompt_logprobs);
  EXPECT_EQ(decoded->slices.at(0).outputs, Outputs::kAll);
  EXPECT_EQ(decoded->slices.at(0).tree_mask, (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(decoded->shape.lane_tokens, (std::vector<int32_t>{50, 8}));
  EXPECT_EQ(batch_again(encode(full_batch())), encode(full_batch()));
  EXPECT_EQ(masks_again(encode(full_masks())), encode(full_masks()));
  EXPECT_EQ(result_again(encode(full_result())), encode(full_result()));
  const auto result = decode_result(encode(full_result()), codec_limits());
  EXPECT_EQ(result->slices.at(0).tokens.at(1).top_logprobs,
            full_result().slices[0].tokens[1].top_logprobs);
  EXPECT_EQ(result->slices.at(1).error, "no token to choose");
  EXPECT_EQ(result->mask_wait_seconds, 0.125);
}

struct BrokenBatch {
  const char* rule;
  std::function<void(Batch&)> change;
};

TEST(StepCodec, names_the_value_and_the_rule_that_a_batch_breaks) {
  const std::vector<BrokenBatch> all = {
      {"an admission's slot is 8, must be in [0, 8)", [](Batch& b) { b.admissions[0].slot = 8; }},
      {"an admission's token is 130", [](Batch& b) { b.admissions[0].prompt[1] = 130; }},
      {"number of tokens is 101", [](Batch& b) { b.admissions[0].prompt.assign(101, 1); }},
      {"cached tokens is 3", [](Batch& b) { b.admissions[0].num_cached_tokens = 3; }},
      {"temperature is 101", [](Batch& b) { b.admissions[0].sampling.temperature = 101; }},
      {"kv_group is 2", [](Batch& b) { b.block_appends[0].kv_group = 2; }},
      {"an appended block is 20", [](Batch& b) { b.block_appends[0].block_ids[1] = 20; }},
      {"a slice's slot is -1", [](Batch& b) { b.slices[1].slot = -1; }},
      {"a slice's number of tokens is 7", [](Batch& b) { b.slices[1].num_tokens = 7; }},
      {"as many tokens", [](Batch& b) { b.slices[0].tokens.pop_back(); }},
      {"a slice's outputs is 3", [](Batch& b) { b.slices[0].outputs = static_cast<Outputs>(3); }},
      {"a slice's number of drafts is 6", [](Batch& b) { b.slices[0].num_drafts_to_propose = 6; }},
      {"released once", [](Batch& b) { b.slices[1].slot = 7; }},
      {"a released slot is 9", [](Batch& b) { b.releases[0] = 9; }},
      {"an entry for each", [](Batch& b) { b.shape.lane_tokens.clear(); }},
      {"the lane's tokens and slices", [](Batch& b) { b.shape.lane_tokens[1] = 7; }},
      {"the step's number of tokens is 65", [](Batch& b) { b.shape.lane_tokens[0] = 57; }}};
  for (const BrokenBatch& broken : all) {
    Batch batch = full_batch();
    broken.change(batch);
    const auto decoded = decode_batch(encode(batch), codec_limits());
    ASSERT_FALSE(decoded) << broken.rule;
    EXPECT_THAT(decoded.error().message, HasSubstr(broken.rule));
  }
}

TEST(StepCodec, refuses_masks_and_results_that_a_lane_cannot_have) {
  StepMasks masks = full_masks();
  masks.masks[0].words.pop_back();
  EXPECT_THAT(decode_masks(encode(masks), codec_limits()).error().message, HasSubstr("whole rows"));
  StepResult result = full_result();
  result.slices[0].drafts[1].parent = 1;
  EXPECT_THAT(decode_result(encode(result), codec_limits()).error().message,
              HasSubstr("a draft's parent is 1, must be in [-1, 1)"));
}

TEST(StepCodec, refuses_another_kind_another_version_and_other_lengths) {
  const Bytes batch = encode(full_batch());
  EXPECT_TRUE(masks_again(batch).empty());
  Bytes other = batch;
  other[1] = std::byte(99);
  EXPECT_THAT(decode_batch(other, codec_limits()).error().message, HasSubstr("version 99"));
  for (size_t length = 0; length < batch.size(); ++length)
    ASSERT_TRUE(
        batch_again(Bytes(batch.begin(), batch.begin() + static_cast<int64_t>(length))).empty())
        << length;
  other = batch;
  other.push_back(std::byte(0));
  EXPECT_TRUE(batch_again(other).empty());
}

// One to four bytes are others, or a piece is missing or twice.
Bytes mutated(Bytes bytes, std::mt19937_64& rng) {
  const auto below = [&](size_t end) { return static_cast<size_t>(rng() % end); };
  const auto at = [&](size_t index) { return bytes.begin() + static_cast<int64_t>(index); };
  const size_t begin = below(bytes.size()), end = begin + below(bytes.size() - begin) + 1;
  switch (below(4)) {
    case 0:
      bytes.erase(at(begin), at(end));
      return bytes;
    case 1: {
      const Bytes piece(at(begin), at(end));
      bytes.insert(at(begin), piece.begin(), piece.end());
      return bytes;
    }
    default:
      for (size_t i = below(4) + 1; i > 0; --i) bytes[below(bytes.size())] = std::byte(below(256));
      return bytes;
  }
}

// What is taken is within the limits, and has the bytes that came; most is refused.
TEST(StepCodec, takes_mutated_bytes_as_what_they_say_or_not_at_all) {
  constexpr int kTries = 10'000;
  std::mt19937_64 rng(7);
  const std::pair<Bytes, Bytes (*)(const Bytes&)> kinds[] = {{encode(full_batch()), batch_again},
                                                             {encode(full_masks()), masks_again},
                                                             {encode(full_result()), result_again}};
  int num_refused = 0;
  for (int i = 0; i < kTries; ++i)
    for (const auto& [bytes, again] : kinds) {
      const Bytes other = mutated(bytes, rng);
      const Bytes taken = again(other);
      num_refused += taken.empty() ? 1 : 0;
      if (!taken.empty()) {
        ASSERT_EQ(taken, other);
      }
    }
  EXPECT_GT(num_refused, kTries);
}

}  // namespace
}  // namespace fathom::core
