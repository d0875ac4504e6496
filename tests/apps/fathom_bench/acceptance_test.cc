#include "apps/fathom_bench/acceptance.h"
#include "base/json.h"

#include <gtest/gtest.h>

namespace fathom::apps {
namespace {

json::Value info(const char* text) { return json::parse(text).value(); }

TEST(Acceptance, is_that_of_the_run_and_not_of_what_came_before) {
  const json::Value before = info(
      R"({"internal_states":[{"avg_spec_accept_length":3.0,"spec_verify_ct":100,
          "spec_num_verified_drafts":300,"spec_num_accepted_drafts":200}]})");
  const json::Value after = info(
      R"({"simulate_accept_length":null,"engine":"model",
          "internal_states":[{"avg_spec_accept_length":2.9,"spec_verify_ct":150,
          "spec_num_verified_drafts":420,"spec_num_accepted_drafts":260}]})");
  const Acceptance run = acceptance(before, after);
  EXPECT_DOUBLE_EQ(run.length.value(), 2.2);
  EXPECT_DOUBLE_EQ(run.rate.value(), 0.5);
  EXPECT_EQ(run.num_verify_steps, 50);
  EXPECT_FALSE(run.simulated);

  const Acceptance since_start = acceptance(nullptr, after);
  EXPECT_EQ(since_start.num_verify_steps, 150);
  const Acceptance restarted = acceptance(after, before);
  EXPECT_EQ(restarted.num_verify_steps, 100);
}

TEST(Acceptance, of_a_server_without_counts_is_its_mean) {
  const Acceptance run =
      acceptance(nullptr, info(R"({"internal_states":[{"avg_spec_accept_length":2.5}]})"));
  EXPECT_DOUBLE_EQ(run.length.value(), 2.5);
  EXPECT_FALSE(run.num_verify_steps.has_value());
}

TEST(Acceptance, is_none_without_speculation_or_verified_drafts) {
  for (const char* text :
       {"null", "{}", R"({"internal_states":[]})", R"({"internal_states":[null]})",
        R"({"internal_states":[{"avg_spec_accept_length":null}]})",
        R"({"internal_states":[{"spec_verify_ct":0,"spec_num_verified_drafts":0,
            "spec_num_accepted_drafts":0}]})"}) {
    EXPECT_FALSE(acceptance(nullptr, info(text)).length.has_value()) << text;
  }
}

TEST(Acceptance, is_called_simulated_where_no_model_judged_the_drafts) {
  EXPECT_TRUE(acceptance(nullptr, info(R"({"simulate_accept_length":2.5})")).simulated);
  EXPECT_TRUE(acceptance(nullptr, info(R"({"engine":"sim"})")).simulated);
}

}  // namespace
}  // namespace fathom::apps
