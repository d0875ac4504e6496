#include "api/tables/api_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "core/request.h"

namespace fathom::api {
namespace {

TEST(ApiError, has_the_shape_of_openais_errors) {
  const http::Response response = to_response(invalid_parameter("n", "n is 0"));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.content_type, "application/json");
  EXPECT_EQ(
      response.body,
      R"({"error":{"message":"n is 0","type":"invalid_request_error","param":"n","code":null}})");
  EXPECT_TRUE(response.headers.empty());
}

TEST(ApiError, every_kind_has_its_status_and_code) {
  EXPECT_EQ(context_too_long("prompt", "m").code, "context_length_exceeded");
  EXPECT_EQ(context_too_long("prompt", "m").status, 400);
  EXPECT_EQ(model_not_found("x").status, 404);
  EXPECT_EQ(model_not_found("x").code, "model_not_found");
  EXPECT_EQ(overloaded().status, 429);
  EXPECT_EQ(draining().status, 503);
  EXPECT_EQ(internal_error().status, 500);
}

TEST(ApiError, whoever_shall_come_back_is_told_when) {
  for (const ApiError& error : {overloaded(), draining()}) {
    const http::Response response = to_response(error);
    ASSERT_EQ(response.headers.size(), 1U);
    EXPECT_EQ(response.headers[0].first, "retry-after");
    EXPECT_GT(std::stoi(response.headers[0].second), 0);
  }
}

TEST(ApiError, translates_what_the_engine_refuses) {
  const auto status = [](ErrorCode code) { return from_engine({code, "text"}).status; };
  EXPECT_EQ(status(ErrorCode::kInvalidArgument), 400);
  EXPECT_EQ(status(ErrorCode::kTooLong), 400);
  EXPECT_EQ(status(ErrorCode::kResourceEmpty), 429);
  EXPECT_EQ(status(ErrorCode::kCancelled), 503);
  EXPECT_EQ(status(ErrorCode::kNumeric), 500);
  EXPECT_EQ(status(ErrorCode::kInternal), 500);
  EXPECT_EQ(status(ErrorCode::kNotFound), 500);
  EXPECT_EQ(from_engine({ErrorCode::kTooLong, "too long"}).message, "too long");
}

TEST(ApiError, what_a_grammar_ended_is_no_fault_of_the_model) {
  EXPECT_EQ(from_runner(core::kGrammarDeadEnd).code, "grammar_dead_end");
  EXPECT_EQ(from_runner(core::kGrammarRefusal).code, "grammar_mismatch");
  for (const std::string_view why : {core::kGrammarDeadEnd, core::kGrammarRefusal}) {
    EXPECT_EQ(from_runner(why).status, 500);
    EXPECT_EQ(from_runner(why).type, "server_error");
    EXPECT_THAT(from_runner(why).message, testing::Not(testing::HasSubstr("not a number")));
  }
  EXPECT_EQ(from_runner(core::kNoMemory).code, "out_of_memory");
  EXPECT_EQ(from_runner("rank 1 stands still: start the server again").code, "model_failed");
  EXPECT_EQ(from_runner("the logits are not finite").code, "numeric_error");
}

TEST(ApiError, an_inner_failure_says_nothing_of_the_inside) {
  for (const ErrorCode code : {ErrorCode::kInternal, ErrorCode::kNotFound, ErrorCode::kNumeric}) {
    EXPECT_THAT(to_json(from_engine({code, "slot 7 at 0x7ffc00001234"})),
                testing::Not(testing::HasSubstr("0x7ffc")));
  }
}

TEST(ApiError, a_body_is_json_whatever_the_text) {
  const ApiError error = invalid_parameter("a\"b", "bad \xff\n\"quoted\" " + std::string(1, '\0'));
  EXPECT_TRUE(json::parse(to_json(error)));
  EXPECT_TRUE(json::parse(to_json(model_not_found(std::string(1000, '\xc3')))));
  EXPECT_LT(model_not_found(std::string(100'000, 'x')).message.size(), 300U);
}

}  // namespace
}  // namespace fathom::api
