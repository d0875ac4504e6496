// Bad input against the whole server over a socket: thousands of malformed HTTP requests and thousands of
// bodies with wrong, extreme and broken parameters. None is answered with 5xx, none hangs, no answer tells
// what only the inside knows, each body gets its documented status, and after every 100 of them a fixed
// greedy request gets the answer that it got before.

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "tests/api/parameter_cases.h"
#include "tests/http/malformed_requests.h"
#include "tests/sanitized.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve::tests {
namespace {

// Small, so that a body which asks for all the model can give is soon done; the cases need as much.
constexpr int kMaxContextTokens = 1024;
constexpr size_t kCasesPerCanary = 100;
// A hundred at a time, on a busy machine. What one costs is bounded in time of the processor by
// tests/api/parameter_table_test.cc.
constexpr double kMaxRefusalSeconds = 60;
constexpr size_t kEveryNth = kIsSanitized ? 8 : 1;  // sanitizers slow the server down tenfold

SimServerOptions server_options() {
  return {.num_blocks = 2048,
          .max_slots = 64,
          .max_queued_requests = 100'000,
          .max_context_tokens = kMaxContextTokens};
}

// The answer to a fixed greedy prompt.
std::string canary(SimServer& server) {
  const json::Value answer = server.post_json(
      "/generate",
      {{"input_ids", {5, 6, 7, 8, 9}},
       {"sampling_params", {{"temperature", 0}, {"max_new_tokens", 8}, {"ignore_eos", true}}}});
  return answer.contains("output_ids") ? json::dump(answer["output_ids"]) + answer["text"].dump()
                                       : "";
}

std::string described(const api::tests::ParameterCase& c) {
  return c.path + " " + c.field + " = " + c.value.substr(0, 100) + "\n" + c.body.substr(0, 300);
}

struct TimedResponse {
  client::ClientResponse response;
  double seconds = 0;
};

// Shared with the callbacks, which may come late when a test gives up.
struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<TimedResponse> responses;
  size_t num_done = 0;
};

// All at the same time, so that generating ones share their steps.
std::vector<TimedResponse> send_all(SimServer& server,
                                    std::span<const api::tests::ParameterCase> cases) {
  const auto answers = std::make_shared<Answers>();
  answers->responses.resize(cases.size());
  const Stopwatch watch;
  for (size_t i = 0; i < cases.size(); ++i) {
    server.client().send(
        {.method = "POST", .url = server.url(cases[i].path), .body = cases[i].body},
        {.on_done = [answers, watch, i](const client::ClientResponse& response) {
          const std::lock_guard lock(answers->mutex);
          answers->responses[i] = {response, watch.seconds()};
          ++answers->num_done;
          answers->changed.notify_one();
        }});
  }
  std::unique_lock lock(answers->mutex);
  const bool all_came = answers->changed.wait_for(
      lock, std::chrono::seconds(120), [&] { return answers->num_done == cases.size(); });
  EXPECT_TRUE(all_came) << "a request without an answer";
  return answers->responses;
}

// The parsers' cases do not say which grammars compile: such a field may be refused where a case expects 200.
bool is_grammar(std::string_view param) {
  const size_t dot = param.rfind('.');
  const std::string_view name = dot == std::string_view::npos ? param : param.substr(dot + 1);
  return name == "ebnf" || name == "regex" || name == "json_schema" || name == "structural_tag" ||
         param.starts_with("response_format") || param.starts_with("tools");
}

void check_refusal(const api::tests::ParameterCase& c, const TimedResponse& answer) {
  const std::string where = described(c) + "\n" + answer.response.body.substr(0, 1000);
  EXPECT_LT(answer.seconds, kMaxRefusalSeconds) << where;
  const Result<json::Value> body = json::parse(answer.response.body);
  ASSERT_TRUE(body.has_value() && body->contains("error")) << where;
  // Anthropic's form has no place for it but the message.
  const bool has_param = c.path != api::tests::kMessagesPath;
  const json::Value& named = (*body)["error"][has_param ? "param" : "type"];
  const std::string param = named.is_string() ? named.get<std::string>() : "";
  EXPECT_FALSE(api::tests::leaks_internals(answer.response.body)) << where;
  if (c.status == 200) {
    EXPECT_TRUE(answer.response.status == 400 && is_grammar(param)) << where;
  } else {
    EXPECT_EQ(answer.response.status, c.status) << where;
    EXPECT_EQ(has_param ? param : c.param, c.param) << where;
  }
}

void check_answer(const api::tests::ParameterCase& c, const TimedResponse& answer) {
  EXPECT_EQ(answer.response.error, "") << described(c);
  if (answer.response.status != 200) return check_refusal(c, answer);
  EXPECT_EQ(c.status, 200) << described(c) << "\n" << answer.response.body.substr(0, 500);
}

TEST(BadInput, every_body_gets_its_documented_answer_and_hurts_nobody_else) {
  SimServer server(server_options());
  const std::string expected_canary = canary(server);
  ASSERT_NE(expected_canary, "");
  std::vector<api::tests::ParameterCase> cases;
  size_t num_seen = 0;
  for (api::tests::ParameterCase& c :
       api::tests::parameter_cases({.vocab_size = 2048, .max_context_tokens = kMaxContextTokens})) {
    if (num_seen++ % kEveryNth == 0) cases.push_back(std::move(c));
  }
  EXPECT_GE(cases.size(), 3000U / kEveryNth);
  for (size_t begin = 0; begin < cases.size(); begin += kCasesPerCanary) {
    const size_t count = std::min(kCasesPerCanary, cases.size() - begin);
    const auto part = std::span<const api::tests::ParameterCase>(cases).subspan(begin, count);
    const std::vector<TimedResponse> answers = send_all(server, part);
    for (size_t i = 0; i < count; ++i) check_answer(part[i], answers[i]);
    ASSERT_EQ(canary(server), expected_canary) << "after the cases up to " << begin + count;
  }
  RecordProperty("cases", static_cast<int>(cases.size()));
  EXPECT_TRUE(server.eventually([&] { return server.is_idle(); }));
  EXPECT_EQ(server.http().counters().responses[5].load(), 0);
}

TEST(BadInput, malformed_requests_to_the_api_are_refused_and_hurt_nobody_else) {
  SimServer server(server_options());
  const std::string expected_canary = canary(server);
  ASSERT_NE(expected_canary, "");
  const std::vector<http::tests::MalformedRequest> requests =
      http::tests::malformed_requests({.get_path = "/v1/models", .post_path = "/tokenize"});
  EXPECT_GE(requests.size(), 2000U);
  int num_failed = 0;
  for (size_t i = 0; i < requests.size() && num_failed < 20; i += kEveryNth) {
    const std::string problem = http::tests::try_malformed(server.http().port(), requests[i]);
    EXPECT_EQ(problem, "") << requests[i].name << "\n" << requests[i].bytes.substr(0, 300);
    if (!problem.empty()) ++num_failed;
    if (i / kEveryNth % kCasesPerCanary == kCasesPerCanary - 1) {
      ASSERT_EQ(canary(server), expected_canary) << "after request " << i;
    }
  }
  RecordProperty("requests", static_cast<int>(requests.size() / kEveryNth));
  EXPECT_TRUE(server.eventually([&] { return server.is_idle(); }));
  EXPECT_TRUE(server.eventually([&] { return server.http().counters().open_streams.load() == 0; }));
  EXPECT_EQ(server.http().counters().responses[5].load(), 0);
}

}  // namespace
}  // namespace fathom::serve::tests
