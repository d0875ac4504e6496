#include "api/sampling_defaults.h"
#include "tests/source_tree.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace fathom::api {
namespace {

TEST(SamplingDefaults, takes_what_the_checkpoint_recommends) {
  const Result<SamplingDefaults> defaults = sampling_defaults_from_model(
      R"({"temperature": 0.6, "top_p": 0.95, "top_k": 50, "min_p": 0.1,
          "repetition_penalty": 1.1, "do_sample": true, "eos_token_id": 1})");
  ASSERT_TRUE(defaults) << defaults.error().message;
  EXPECT_EQ(defaults->temperature, 0.6f);
  EXPECT_EQ(defaults->top_p, 0.95f);
  EXPECT_EQ(defaults->top_k, 50);
  EXPECT_EQ(defaults->min_p, 0.1f);
  EXPECT_EQ(defaults->repetition_penalty, 1.1f);
}

TEST(SamplingDefaults, silence_keeps_openais_values) {
  std::ifstream file(source_path("models/demo/generation_config.json"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Result<SamplingDefaults> defaults = sampling_defaults_from_model(text);
  ASSERT_TRUE(defaults) << defaults.error().message;
  EXPECT_EQ(defaults->temperature, 1.0f);
  EXPECT_EQ(defaults->top_p, 1.0f);
  EXPECT_EQ(defaults->top_k, -1);
}

TEST(SamplingDefaults, a_broken_file_is_an_error_that_names_the_key) {
  const Result<SamplingDefaults> defaults = sampling_defaults_from_model(R"({"top_p": 2})");
  ASSERT_FALSE(defaults);
  EXPECT_EQ(defaults.error().message,
            "generation_config.json: top_p is 2, must be a number in (0, 1]");
  EXPECT_FALSE(sampling_defaults_from_model("[]"));
  EXPECT_FALSE(sampling_defaults_from_model("{"));
}

}  // namespace
}  // namespace fathom::api
