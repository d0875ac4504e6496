#include "apps/flags/speculation_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/startup_error.h"

namespace fathom::apps {
namespace {

using ::testing::HasSubstr;

// As given behind the program's name.
SpeculationFlags parsed(const std::string& arguments) {
  CLI::App app;
  SpeculationFlags flags;
  speculation_flags().add_to(app, flags);
  app.parse(arguments);
  return flags;
}

std::string refusal(const std::string& arguments) {
  try {
    drafter_shape(parsed(arguments));
  } catch (const StartupError& error) {
    return error.what();
  } catch (const CLI::ParseError& error) {
    return std::string("command line: ") + error.what();
  }
  return "";
}

std::vector<int> shape_of(const std::string& arguments) {
  const runner::DrafterInfo shape = drafter_shape(parsed(arguments));
  return {shape.num_steps, shape.top_k, shape.num_draft_tokens};
}

TEST(SpeculationFlags, the_algorithm_alone_drafts_one_token) {
  EXPECT_EQ(shape_of("--speculative-algorithm NEXTN"), (std::vector<int>{1, 1, 2}));
  EXPECT_EQ(shape_of("--speculative-algorithm EAGLE"), (std::vector<int>{1, 1, 2}));
  EXPECT_EQ(shape_of(""), (std::vector<int>{0, 1, 0}));
}

TEST(SpeculationFlags, fill_in_the_draft_tokens_of_chains_and_trees) {
  const std::string nextn = "--speculative-algorithm NEXTN --speculative-num-steps 3 ";
  EXPECT_EQ(shape_of(nextn), (std::vector<int>{3, 1, 4}));
  EXPECT_EQ(shape_of(nextn + "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4"),
            (std::vector<int>{3, 1, 4}));
  EXPECT_EQ(shape_of(nextn + "--speculative-eagle-topk 4"), (std::vector<int>{3, 4, 13}));
  EXPECT_EQ(shape_of(nextn + "--speculative-eagle-topk 4 --speculative-num-draft-tokens 37"),
            (std::vector<int>{3, 4, 37}));  // 4 + 16 + 16 and the root
}

TEST(SpeculationFlags, refuse_what_contradicts_itself_in_one_sentence) {
  const std::string nextn = "--speculative-algorithm NEXTN ";
  EXPECT_EQ(refusal(nextn + "--speculative-num-steps 3 --speculative-num-draft-tokens 3"),
            "--speculative-num-draft-tokens is 3, must be 4: with --speculative-eagle-topk 1 it is "
            "--speculative-num-steps + 1");
  EXPECT_EQ(refusal(nextn + "--speculative-num-steps 2 --speculative-eagle-topk 2 "
                            "--speculative-num-draft-tokens 8"),
            "--speculative-num-draft-tokens is 8, must be in [2, 7]: the root and what a tree of 2 "
            "steps with the top 2 reaches, at most 64");
  EXPECT_EQ(refusal(nextn + "--speculative-num-steps 2 --simulate-accept-length 3.5"),
            "--simulate-accept-length is 3.5, must be in [1, 3.0]: one token and at most 2.0 "
            "accepted drafts");
  EXPECT_THAT(refusal(nextn + "--simulate-accept-length 0.5"), HasSubstr("is 0.5, must be in [1,"));
  EXPECT_THAT(refusal("--speculative-algorithm EAGLE3"), HasSubstr("command line: "));
  EXPECT_THAT(refusal(nextn + "--speculative-num-steps 0"), HasSubstr("command line: "));
  EXPECT_THAT(refusal(nextn + "--speculative-draft-model-quantization int8"),
              HasSubstr("command line: "));
}

TEST(SpeculationFlags, refuse_every_flag_that_would_do_nothing) {
  for (const char* flag : {"--speculative-num-steps 1", "--speculative-eagle-topk 1",
                           "--speculative-num-draft-tokens 2", "--speculative-draft-model-path .",
                           "--speculative-draft-model-quantization fp8", "--speculative-adaptive",
                           "--no-speculative-adaptive", "--simulate-accept-length 1.5"}) {
    const std::string name = std::string(flag).substr(0, std::string(flag).find(' '));
    EXPECT_EQ(refusal(flag), name + " does nothing without --speculative-algorithm NEXTN or EAGLE");
  }
}

TEST(SpeculationFlags, tell_every_effective_setting) {
  const json::Value off = speculation_settings(parsed(""));
  for (const auto& [name, value] : off.items()) EXPECT_TRUE(value.is_null()) << name;
  const json::Value on = speculation_settings(
      parsed("--speculative-algorithm NEXTN --speculative-num-steps 2 --simulate-accept-length 2"));
  EXPECT_EQ(on["speculative_algorithm"], "NEXTN");
  EXPECT_EQ(on["speculative_num_steps"], 2);
  EXPECT_EQ(on["speculative_eagle_topk"], 1);
  EXPECT_EQ(on["speculative_num_draft_tokens"], 3);
  EXPECT_EQ(on["speculative_adaptive"], true);
  EXPECT_TRUE(on["speculative_draft_model_quantization"].is_null());
  EXPECT_EQ(on["simulate_accept_length"], 2);
  EXPECT_EQ(off.size(), on.size());
}

TEST(SpeculationFlags, tell_the_engine_what_was_asked_for) {
  const engine::SpeculationConfig off = speculation_config(parsed(""));
  EXPECT_FALSE(off.enabled);
  EXPECT_FALSE(off.adaptive);
  const engine::SpeculationConfig fixed =
      speculation_config(parsed("--speculative-algorithm NEXTN --no-speculative-adaptive"));
  EXPECT_TRUE(fixed.enabled);
  EXPECT_FALSE(fixed.adaptive);
  EXPECT_EQ(fixed.num_draft_tokens, 2);
  EXPECT_TRUE(speculation_config(parsed("--speculative-algorithm NEXTN")).adaptive);
}

TEST(SpeculationFlags, an_accept_length_and_its_agreement_belong_together) {
  EXPECT_DOUBLE_EQ(accept_length_for(0.5, 3), 1.875);
  for (const double length : {1.0, 1.3, 2.0, 3.99, 4.0}) {
    EXPECT_NEAR(accept_length_for(agreement_for(length, 3), 3), length, 1e-9);
  }
}

}  // namespace
}  // namespace fathom::apps
