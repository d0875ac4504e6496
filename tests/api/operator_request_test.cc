#include "api/operators/operator_request.h"

#include <gtest/gtest.h>

#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using tests::accepted;
using tests::demo_served_model;
using tests::refused;

using PauseMode = PauseRequest::Mode;

TEST(PauseRequest, knows_sglangs_modes) {
  const auto mode_of = [](const std::string& body) {
    return accepted(parse_pause_request(body, demo_served_model())).mode;
  };
  EXPECT_EQ(mode_of(""), PauseMode::kAbort);
  EXPECT_EQ(mode_of("{}"), PauseMode::kAbort);
  EXPECT_EQ(mode_of(R"({"mode": null})"), PauseMode::kAbort);
  EXPECT_EQ(mode_of(R"({"mode": "abort"})"), PauseMode::kAbort);
  EXPECT_EQ(mode_of(R"({"mode": "in_place"})"), PauseMode::kInPlace);
  EXPECT_EQ(mode_of(R"({"mode": "retract"})"), PauseMode::kRetract);
}

TEST(PauseRequest, refuses_what_it_does_not_know) {
  const auto error_of = [](const std::string& body) {
    return refused(parse_pause_request(body, demo_served_model()));
  };
  EXPECT_EQ(error_of(R"({"mode": "drain"})").message,
            "mode is \"drain\", must be abort, in_place or retract");
  EXPECT_EQ(error_of(R"({"mode": ["abort"]})").param, "mode");
  EXPECT_EQ(error_of(R"({"wait": true})").param, "wait");
  EXPECT_EQ(error_of("[]").status, 400);
}

TEST(PauseRequest, continuing_asks_for_nothing) {
  const ServedModel model = demo_served_model();
  EXPECT_FALSE(check_continue_request("", model));
  EXPECT_FALSE(check_continue_request(R"({"torch_empty_cache": false})", model));
  EXPECT_EQ(check_continue_request(R"({"mode": "abort"})", model)->param, "mode");
  EXPECT_EQ(check_continue_request("{", model)->status, 400);
}

TEST(AbortRequest, names_requests_or_all) {
  const ServedModel model = demo_served_model();
  EXPECT_EQ(accepted(parse_abort_request(R"({"rid": "a"})", model)).rid, "a");
  EXPECT_TRUE(accepted(parse_abort_request(R"({"abort_all": true})", model)).all);
  for (const char* body :
       {"", "{}", R"({"rid": ""})", R"({"rid": 5})", R"({"abort_all": false})"}) {
    EXPECT_EQ(refused(parse_abort_request(body, model)).param, "rid") << body;
  }
  EXPECT_EQ(refused(parse_abort_request(R"({"abort_all": 1})", model)).param, "abort_all");
  EXPECT_EQ(refused(parse_abort_request(R"({"rids": "a"})", model)).param, "rids");
}

TEST(StartProfile, takes_what_asks_for_what_there_is) {
  const ServedModel model = demo_served_model();
  for (const char* body : {"", "{}", R"({"activities": ["CPU", "GPU"], "num_steps": null})",
                           R"({"with_stack": false})"}) {
    EXPECT_FALSE(check_start_profile_request(body, model)) << body;
  }
  EXPECT_EQ(check_start_profile_request(R"({"activities": ["MEM"]})", model)->param, "activities");
  EXPECT_EQ(check_start_profile_request(R"({"output_dir": "/tmp"})", model)->param, "output_dir");
  EXPECT_EQ(check_start_profile_request(R"({"outputdir": "/tmp"})", model)->param, "outputdir");
}

}  // namespace
}  // namespace fathom::api
