// Reasoning over HTTP, on every endpoint that has conversations: stops wait for its end, and budgets bring that end,
// streamed or not, with several choices, drafts and grammars. The simulated model reasons for ever by itself.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;
using tests::SimServerOptions;

constexpr int kMaxTokens = 40;

int32_t think_end() { return api::tests::demo_tokenizer()->token_id("</think>").value(); }

json::Value chat_body() {
  return {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
          {"max_tokens", kMaxTokens},
          {"temperature", 0},
          {"ignore_eos", true},
          {"return_token_ids", true},
          {"thinking", {{"type", "enabled"}}}};
}

json::Value with(json::Value body, const json::Value& more) {
  body.update(more);
  return body;
}

std::vector<int32_t> ids_of(const json::Value& choice) {
  return choice["token_ids"].get<std::vector<int32_t>>();
}

// What a choice's tokens must be when its reasoning has `budget` tokens: the same as without it, the end marker, an
// answer.
void expect_ended_by(const std::vector<int32_t>& ids, const std::vector<int32_t>& unbounded,
                     size_t budget) {
  ASSERT_EQ(ids.size(), static_cast<size_t>(kMaxTokens));
  const auto end = std::ranges::find(ids, think_end());
  ASSERT_EQ(static_cast<size_t>(end - ids.begin()), std::max<size_t>(budget, 1) - 1);
  EXPECT_TRUE(std::equal(ids.begin(), end, unbounded.begin()));
  EXPECT_EQ(std::ranges::count(ids, think_end()), 1);
}

class ReasoningBudgets : public testing::TestWithParam<SimServerOptions> {};

TEST_P(ReasoningBudgets, end_it_once_and_by_then) {
  SimServer server(GetParam());
  const json::Value free = server.post_json("/v1/chat/completions", chat_body())["choices"][0];
  ASSERT_EQ(std::ranges::count(ids_of(free), think_end()), 0);
  for (const int budget : {0, 1, 2, 3, 7, 16, 39, 40}) {
    SCOPED_TRACE(budget);
    const json::Value answer = server.post_json(
        "/v1/chat/completions", with(chat_body(), {{"thinking_token_budget", budget}}));
    expect_ended_by(ids_of(answer["choices"][0]), ids_of(free), static_cast<size_t>(budget));
    EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
              std::max(budget, 1));
  }
  for (const int budget : {-1, 41, 1000}) {
    const json::Value answer = server.post_json(
        "/v1/chat/completions", with(chat_body(), {{"thinking_token_budget", budget}}));
    EXPECT_EQ(ids_of(answer["choices"][0]), ids_of(free)) << budget;
  }
  ASSERT_TRUE(server.eventually([&] { return server.is_idle(); }));
}

TEST_P(ReasoningBudgets, hold_for_every_choice_and_in_streams) {
  SimServer server(GetParam());
  json::Value body =
      with(chat_body(), {{"n", 3}, {"temperature", 1}, {"seed", 5}, {"thinking_token_budget", 9}});
  const json::Value answer = server.post_json("/v1/chat/completions", body);
  std::vector<std::vector<int32_t>> streamed(3);
  for (const json::Value& event : server.post_stream("/v1/chat/completions", body)) {
    if (!event.is_object()) continue;
    for (const json::Value& choice : event["choices"]) {
      if (!choice.contains("token_ids") || choice["token_ids"].is_null()) continue;
      auto& ids = streamed.at(choice["index"].get<size_t>());
      for (const json::Value& id : choice["token_ids"]) ids.push_back(id.get<int32_t>());
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    const std::vector<int32_t> ids = ids_of(answer["choices"][i]);
    EXPECT_EQ(std::ranges::find(ids, think_end()) - ids.begin(), 8) << i;
    EXPECT_EQ(streamed[i], ids);
  }
}

TEST_P(ReasoningBudgets, hand_over_to_a_grammar) {
  SimServer server(GetParam());
  for (const int budget : {0, 1, 5, 20}) {
    const json::Value answer = server.post_json(
        "/v1/chat/completions",
        with(chat_body(), {{"thinking_token_budget", budget}, {"regex", "(red|blue) [0-9]{3}!"}}));
    const json::Value& choice = answer["choices"][0];
    const std::string content = choice["message"]["content"].get<std::string>();
    EXPECT_TRUE(content.starts_with("red ") || content.starts_with("blue ")) << content;
    EXPECT_TRUE(content.ends_with('!')) << content;
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"],
              std::max(budget, 1));
  }
}

TEST_P(ReasoningBudgets, are_kept_on_every_endpoint) {
  SimServer server(GetParam());
  const json::Value message =
      server.post_json("/v1/messages", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                        {"max_tokens", kMaxTokens},
                                        {"temperature", 0},
                                        {"thinking", {{"type", "enabled"}, {"budget_tokens", 7}}}});
  ASSERT_EQ(message["content"].size(), 2U) << json::dump(message);
  EXPECT_EQ(message["content"][0]["type"], "thinking");
  EXPECT_EQ(message["content"][1]["type"], "text");
  EXPECT_EQ(message["usage"]["output_tokens_details"]["thinking_tokens"], 7);
  const json::Value response =
      server.post_json("/v1/responses", {{"input", "Hi"},
                                         {"max_output_tokens", kMaxTokens},
                                         {"temperature", 0},
                                         {"reasoning", {{"max_tokens", 7}}}});
  ASSERT_EQ(response["output"].size(), 2U) << json::dump(response);
  EXPECT_EQ(response["output"][0]["type"], "reasoning");
  EXPECT_EQ(response["output"][1]["type"], "message");
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 7);
}

// Stops: the second token of the reasoning, and what the same text is in the answer.

struct Known {
  std::string reasoning, content;  // without stops, with a budget of 10
  std::vector<int32_t> ids;
};

Known known_answer(SimServer& server) {
  const json::Value answer =
      server.post_json("/v1/chat/completions", with(chat_body(), {{"thinking_token_budget", 10}}));
  const json::Value& choice = answer["choices"][0];
  return {.reasoning = choice["message"]["reasoning_content"].get<std::string>(),
          .content = choice["message"]["content"].get<std::string>(),
          .ids = ids_of(choice)};
}

// A byte that is plain ASCII in both; the texts of the simulation are random.
std::string common_byte(const Known& known) {
  for (const char c : known.content) {
    const bool is_plain = c > ' ' && c < '\x7f';
    if (is_plain && known.reasoning.find(c) != std::string::npos) return std::string(1, c);
  }
  ADD_FAILURE() << "no byte in common: " << known.reasoning << " / " << known.content;
  return "?";
}

TEST_P(ReasoningBudgets, and_stops_wait_for_the_answer) {
  SimServer server(GetParam());
  const Known known = known_answer(server);
  const std::string stop = common_byte(known);
  const std::string content = known.content.substr(0, known.content.find(stop));
  const json::Value bounded = with(chat_body(), {{"thinking_token_budget", 10}, {"stop", {stop}}});
  const json::Value chat = server.post_json("/v1/chat/completions", bounded)["choices"][0];
  EXPECT_EQ(chat["message"]["reasoning_content"], known.reasoning);
  EXPECT_EQ(chat["message"]["content"].is_null() ? json::Value("") : chat["message"]["content"],
            content);
  EXPECT_EQ(chat["finish_reason"], "stop");
  EXPECT_EQ(chat["matched_stop"], stop);
  const json::Value early = server.post_json(
      "/v1/chat/completions", with(bounded, {{"stop_in_reasoning", true}}))["choices"][0];
  EXPECT_EQ(early["message"]["reasoning_content"],
            known.reasoning.substr(0, known.reasoning.find(stop)));
  const json::Value unparsed = server.post_json(
      "/v1/chat/completions", with(bounded, {{"separate_reasoning", false}}))["choices"][0];
  EXPECT_EQ(unparsed["message"]["content"], known.reasoning.substr(0, known.reasoning.find(stop)));
  std::string streamed;
  for (const json::Value& event : server.post_stream("/v1/chat/completions", bounded)) {
    if (!event.is_object() || event["choices"].empty()) continue;
    const json::Value& delta = event["choices"][0]["delta"];
    if (delta.contains("content") && delta["content"].is_string())
      streamed += delta["content"].get<std::string>();
  }
  EXPECT_EQ(streamed, content);
}

TEST_P(ReasoningBudgets, and_stop_tokens_wait_for_the_answer) {
  SimServer server(GetParam());
  const Known known = known_answer(server);
  const int32_t of_reasoning = known.ids[2], of_answer = known.ids[20];
  const json::Value bounded = with(
      chat_body(), {{"thinking_token_budget", 10}, {"stop_token_ids", {of_reasoning, of_answer}}});
  const json::Value answer = server.post_json("/v1/chat/completions", bounded);
  const auto first_in_answer =
      std::find_if(known.ids.begin() + 10, known.ids.end(),
                   [&](int32_t id) { return id == of_reasoning || id == of_answer; });
  const std::vector<int32_t> expected(known.ids.begin(), first_in_answer + 1);
  EXPECT_EQ(ids_of(answer["choices"][0]), expected);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["matched_stop"], *first_in_answer);
  EXPECT_EQ(answer["usage"]["completion_tokens"], expected.size());
  const json::Value early =
      server.post_json("/v1/chat/completions", with(bounded, {{"stop_in_reasoning", true}}));
  EXPECT_LE(ids_of(early["choices"][0]).size(), 3U);
  ASSERT_TRUE(server.eventually([&] { return server.is_idle(); }));
}

TEST_P(ReasoningBudgets, and_stop_sequences_of_messages_wait_for_the_answer) {
  SimServer server(GetParam());
  const json::Value body = {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                            {"max_tokens", kMaxTokens},
                            {"temperature", 0},
                            {"thinking", {{"type", "enabled"}, {"budget_tokens", 10}}}};
  const json::Value free = server.post_json("/v1/messages", body);
  const Known known{.reasoning = free["content"][0]["thinking"].get<std::string>(),
                    .content = free["content"][1]["text"].get<std::string>(),
                    .ids = {}};
  const std::string stop = common_byte(known);
  const json::Value message =
      server.post_json("/v1/messages", with(body, {{"stop_sequences", {stop}}}));
  EXPECT_EQ(message["content"][0]["thinking"], known.reasoning);
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], stop);
}

std::string engine_name(const testing::TestParamInfo<SimServerOptions>& info) {
  static const std::vector<std::string> names = {"overlapped", "alone", "chains", "trees"};
  return names.at(info.index);
}

runner::SimDrafterConfig drafter(int top_k, int num_draft_tokens) {
  return {.shape = {.num_steps = 3, .top_k = top_k, .num_draft_tokens = num_draft_tokens},
          .agreement = 0.8};
}

INSTANTIATE_TEST_SUITE_P(Engines, ReasoningBudgets,
                         testing::Values(SimServerOptions{}, SimServerOptions{.overlap = false},
                                         SimServerOptions{.drafter = drafter(1, 4)},
                                         SimServerOptions{.drafter = drafter(2, 6)}),
                         engine_name);

}  // namespace
}  // namespace fathom::serve
