#include "core/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fathom::core {
namespace {

constexpr int kVocabSize = 100;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  std::string name;
  void (*change)(SamplingParams&);
  std::string message;  // empty = valid
};

class Validate : public ::testing::TestWithParam<Case> {};

TEST_P(Validate, accepts_the_range_and_names_field_value_and_rule_outside) {
  SamplingParams params;
  GetParam().change(params);
  const Status status = validate(params, kVocabSize);
  if (GetParam().message.empty()) {
    EXPECT_TRUE(status) << status.error().message;
  } else {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(status.error().message, GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, Validate,
    ::testing::Values(
        Case{"defaults", [](SamplingParams&) {}, ""},
        Case{"max_zero", [](SamplingParams& p) { p.max_new_tokens = 0; }, ""},
        Case{"max_negative", [](SamplingParams& p) { p.max_new_tokens = -1; },
             "max_new_tokens is -1, must be >= 0"},
        Case{"max_largest",
             [](SamplingParams& p) { p.max_new_tokens = std::numeric_limits<int>::max(); }, ""},
        Case{"min_equals_max", [](SamplingParams& p) { p.min_new_tokens = 128; }, ""},
        Case{"min_above_max", [](SamplingParams& p) { p.min_new_tokens = 129; },
             "min_new_tokens is 129, must be in [0, max_new_tokens = 128]"},
        Case{"min_negative", [](SamplingParams& p) { p.min_new_tokens = -1; },
             "min_new_tokens is -1, must be in [0, max_new_tokens = 128]"},
        Case{"temperature_zero", [](SamplingParams& p) { p.temperature = 0; }, ""},
        Case{"temperature_100", [](SamplingParams& p) { p.temperature = 100; }, ""},
        Case{"temperature_101", [](SamplingParams& p) { p.temperature = 101; },
             "temperature is 101, must be in [0, 100]"},
        Case{"temperature_negative", [](SamplingParams& p) { p.temperature = -0.5f; },
             "temperature is -0.5, must be in [0, 100]"},
        Case{"temperature_nan", [](SamplingParams& p) { p.temperature = kNan; },
             "temperature is nan, must be in [0, 100]"},
        Case{"temperature_inf", [](SamplingParams& p) { p.temperature = kInf; },
             "temperature is inf, must be in [0, 100]"},
        Case{"top_k_all", [](SamplingParams& p) { p.top_k = -1; }, ""},
        Case{"top_k_zero", [](SamplingParams& p) { p.top_k = 0; }, ""},
        Case{"top_k_huge", [](SamplingParams& p) { p.top_k = std::numeric_limits<int>::max(); },
             ""},
        Case{"top_k_minus_2", [](SamplingParams& p) { p.top_k = -2; },
             "top_k is -2, must be -1 (all) or >= 0"},
        Case{"top_p_one", [](SamplingParams& p) { p.top_p = 1; }, ""},
        Case{"top_p_small", [](SamplingParams& p) { p.top_p = 1e-6f; }, ""},
        Case{"top_p_zero", [](SamplingParams& p) { p.top_p = 0; }, "top_p is 0, must be in (0, 1]"},
        Case{"top_p_above", [](SamplingParams& p) { p.top_p = 1.5f; },
             "top_p is 1.5, must be in (0, 1]"},
        Case{"top_p_nan", [](SamplingParams& p) { p.top_p = kNan; },
             "top_p is nan, must be in (0, 1]"},
        Case{"min_p_one", [](SamplingParams& p) { p.min_p = 1; }, ""},
        Case{"min_p_negative", [](SamplingParams& p) { p.min_p = -0.25f; },
             "min_p is -0.25, must be in [0, 1]"},
        Case{"repetition_two", [](SamplingParams& p) { p.repetition_penalty = 2; }, ""},
        Case{"repetition_zero", [](SamplingParams& p) { p.repetition_penalty = 0; },
             "repetition_penalty is 0, must be in (0, 2]"},
        Case{"frequency_ends", [](SamplingParams& p) { p.frequency_penalty = -2; }, ""},
        Case{"frequency_above", [](SamplingParams& p) { p.frequency_penalty = 2.5f; },
             "frequency_penalty is 2.5, must be in [-2, 2]"},
        Case{"presence_below", [](SamplingParams& p) { p.presence_penalty = -3; },
             "presence_penalty is -3, must be in [-2, 2]"},
        Case{"presence_nan", [](SamplingParams& p) { p.presence_penalty = kNan; },
             "presence_penalty is nan, must be in [-2, 2]"},
        Case{"top_logprobs_20", [](SamplingParams& p) { p.num_top_logprobs = 20; }, ""},
        Case{"top_logprobs_21", [](SamplingParams& p) { p.num_top_logprobs = 21; },
             "num_top_logprobs is 21, must be in [0, 20]"},
        Case{"top_logprobs_negative", [](SamplingParams& p) { p.num_top_logprobs = -1; },
             "num_top_logprobs is -1, must be in [0, 20]"},
        Case{"stop_last_id", [](SamplingParams& p) { p.stop_token_ids = {99}; }, ""},
        Case{"stop_beyond", [](SamplingParams& p) { p.stop_token_ids.assign({5, 100}); },
             "stop_token_ids token id is 100, must be in [0, 100), the vocabulary"},
        Case{"stop_negative", [](SamplingParams& p) { p.stop_token_ids = {-1}; },
             "stop_token_ids token id is -1, must be in [0, 100), the vocabulary"},
        Case{"stop_many", [](SamplingParams& p) { p.stop_token_ids.assign(1024, 3); }, ""},
        Case{"stop_too_many", [](SamplingParams& p) { p.stop_token_ids.assign(1025, 3); },
             "stop_token_ids has 1025 entries, must have at most 1024"},
        Case{"bias_too_many", [](SamplingParams& p) { p.logit_bias.assign(1025, {3, 1.0f}); },
             "logit_bias has 1025 entries, must have at most 1024"},
        Case{"bias_ends",
             [](SamplingParams& p) { p.logit_bias.assign({{0, -100.0f}, {99, 100.0f}}); }, ""},
        Case{"bias_beyond", [](SamplingParams& p) { p.logit_bias.assign({{100, 1.0f}}); },
             "logit_bias token id is 100, must be in [0, 100), the vocabulary"},
        Case{"bias_value", [](SamplingParams& p) { p.logit_bias.assign({{7, 101.0f}}); },
             "logit_bias of token 7 is 101, must be in [-100, 100]"},
        Case{"bias_nan", [](SamplingParams& p) { p.logit_bias.assign({{7, kNan}}); },
             "logit_bias of token 7 is nan, must be in [-100, 100]"},
        Case{"bias_twice",
             [](SamplingParams& p) { p.logit_bias.assign({{7, 1.0f}, {3, 1.0f}, {7, 2.0f}}); },
             "logit_bias names token 7 twice, must name a token once"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fathom::core
