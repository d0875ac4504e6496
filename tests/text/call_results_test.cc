// Results and the calls that they answer: the order of the prompt, and what is refused.

#include "text/call_results.h"

#include <gtest/gtest.h>

#include <string>

#include "text/chat_encoder.h"

namespace fathom::text {
namespace {

Message user(const std::string& text) { return {.role = "user", .content = text}; }
Message says(const std::string& text) { return {.role = "assistant", .content = text}; }

// Calls of f with these ids; of an empty one, a call without an id.
Message calls(const std::vector<std::string>& ids) {
  Message message{.role = "assistant", .content = std::nullopt};
  for (const std::string& id : ids) {
    message.tool_calls.push_back({.id = id, .name = "f", .arguments = "{\"of\": \"" + id + "\"}"});
  }
  return message;
}

Message result(const std::string& id, const std::string& text) {
  return {.role = "tool", .content = text, .tool_call_id = id};
}

// The texts of the results as they stand after binding, or the error.
std::string bound(std::vector<Message> messages, const ResultRules& rules = {}) {
  std::vector<size_t> order;
  if (const Status status = bind_results(messages, rules, order); !status) {
    return status.error().message;
  }
  EXPECT_EQ(order.size(), messages.size());
  std::string texts;
  for (const Message& message : messages) {
    if (message.role == "tool") texts += *message.content + ' ';
    if (message.role == "assistant") texts += message.tool_calls.empty() ? "" : "| ";
    if (message.role == "user") texts += "user ";
  }
  return texts;
}

constexpr ResultRules kAnthropic = {.place = ResultPlace::kBehindTurn};
constexpr ResultRules kResponses = {.place = ResultPlace::kAnywhereBehind};
const std::vector<ResultRules> kEveryRule = {{}, kAnthropic, kResponses};

TEST(CallResults, stand_in_the_order_of_the_calls) {
  for (const ResultRules& rules : kEveryRule) {
    EXPECT_EQ(bound({user("?"), calls({"a", "b", "c"}), result("c", "C"), result("a", "A"),
                     result("b", "B"), user("!")},
                    rules),
              "user | A B C user ");
  }
}

TEST(CallResults, keep_the_order_they_were_sent_in_where_the_format_shows_ids) {
  EXPECT_EQ(bound({user("?"), calls({"a", "b"}), result("b", "B"), result("a", "A")},
                  {.keeps_order = true}),
            "user | B A ");
}

TEST(CallResults, answer_their_own_turn_where_clients_use_ids_again) {
  for (const ResultRules& rules : kEveryRule) {
    EXPECT_EQ(bound({user("?"), calls({"call_0", "call_1"}), result("call_1", "B"),
                     result("call_0", "A"), says("so"), user("?"), calls({"call_0", "call_1"}),
                     result("call_1", "D"), result("call_0", "C")},
                    rules),
              "user | A B user | C D ");
  }
}

TEST(CallResults, with_equal_ids_in_one_turn_answer_the_calls_one_after_the_other) {
  for (const ResultRules& rules : kEveryRule) {
    EXPECT_EQ(bound({calls({"x", "x", "y"}), result("y", "Y"), result("x", "1"), result("x", "2")},
                    rules),
              "| 1 2 Y ");
  }
}

TEST(CallResults, without_ids_take_the_calls_that_are_left) {
  EXPECT_EQ(bound({calls({"a", "b", "c"}), result("", "A"), result("b", "B"), result("", "C")}),
            "| A B C ");
  EXPECT_EQ(bound({calls({"", ""}), result("p", "1"), result("q", "2")}), "| 1 2 ");
}

TEST(CallResults, of_an_id_shown_format_get_the_id_of_the_call_they_took) {
  std::vector<Message> messages = {calls({"a", "b"}), result("b", "B"), result("", "A")};
  std::vector<size_t> order;
  ASSERT_TRUE(bind_results(messages, {.keeps_order = true}, order));
  EXPECT_EQ(messages[2].tool_call_id, "a");
}

TEST(CallResults, system_messages_between_them_do_not_part_them) {
  std::vector<Message> messages = {calls({"a", "b"}),
                                   result("b", "B"),
                                   {.role = "system", .content = "remember"},
                                   result("a", "A")};
  std::vector<size_t> order;
  ASSERT_TRUE(bind_results(messages, {}, order));
  EXPECT_EQ(order, (std::vector<size_t>{0, 3, 1, 2}));
  EXPECT_EQ(messages[3].role, "system");
}

TEST(CallResults, of_responses_may_stand_anywhere_behind_their_calls) {
  EXPECT_EQ(bound({calls({"a"}), user("wait"), calls({"b"}), result("a", "A"), result("b", "B")},
                  kResponses),
            "| A user | B ");
}

TEST(CallResults, of_anthropic_answer_a_turn_of_several_messages) {
  EXPECT_EQ(bound({user("?"), calls({"a"}), says("and"), calls({"b"}), result("b", "B"),
                   result("a", "A")},
                  kAnthropic),
            "user | A B ");
}

TEST(CallResults, that_stand_right_move_nothing) {
  std::vector<Message> messages = {user("?"), calls({"a", "b"}), result("a", "A"),
                                   result("b", "B")};
  const std::string* const text = &*messages[2].content;
  std::vector<size_t> order;
  ASSERT_TRUE(bind_results(messages, {}, order));
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(text, &*messages[2].content);
}

TEST(CallResults, may_be_missing_only_at_the_end_of_a_conversation_that_nobody_goes_on_with) {
  const std::vector<Message> open = {user("?"), calls({"a"})};
  EXPECT_EQ(bound(open),
            "messages[1].tool_calls[0]: the call \"a\" has no result, must have one in "
            "the messages right behind it");
  EXPECT_EQ(bound(open, {.may_end_in_calls = true}), "user | ");
  EXPECT_NE(bound({calls({"a", "b"}), result("a", "A")}, {.may_end_in_calls = true}).find("\"b\""),
            std::string::npos);
}

struct BadResults {
  const char* name;
  std::vector<Message> messages;
  const char* begins;  // of the error
  ResultRules rules = {};
};

class BadResultsTest : public testing::TestWithParam<BadResults> {};

TEST_P(BadResultsTest, are_refused_by_id) {
  const std::string error = bound(GetParam().messages, GetParam().rules);
  EXPECT_TRUE(error.starts_with(GetParam().begins)) << error;
}

const BadResults kBadResults[] = {
    {"missing",
     {user("?"), calls({"a", "b"}), result("a", "A"), user("!")},
     "messages[1].tool_calls[1]: the call \"b\" has no result"},
    {"missing_all", {calls({"a"}), user("!")}, "messages[0].tool_calls[0]: the call \"a\""},
    {"missing_in_an_older_turn",
     {calls({"a"}), says("x"), user("y"), calls({"a"}), result("a", "A")},
     "messages[0].tool_calls[0]: the call \"a\""},
    {"missing_without_id",
     {calls({""}), user("!")},
     "messages[0].tool_calls[0]: the call of \"f\" has no result"},
    {"missing_of_anthropic",
     {calls({"a"}), user("!"), result("a", "A")},
     "messages[0].tool_calls[0]: the call \"a\" has no result",
     kAnthropic},
    {"missing_of_responses",
     {calls({"a"}), user("!")},
     "messages[0].tool_calls[0]: the call \"a\" has no result, must have one behind it",
     kResponses},
    {"doubled",
     {calls({"a", "b"}), result("a", "A"), result("a", "A"), result("b", "B")},
     "messages[2]: is a second result of the call \"a\""},
    {"doubled_of_responses",
     {calls({"a"}), result("a", "A"), user("!"), result("a", "A")},
     "messages[3]: is a second result of the call \"a\"",
     kResponses},
    {"doubled_without_id",
     {calls({"a"}), result("", "A"), result("a", "A")},
     "messages[1]: is a result without tool_call_id"},
    {"foreign",
     {calls({"a"}), result("b", "B")},
     "messages[1]: is the result of the call \"b\", which is none of the calls right before it"},
    {"of_an_older_turn",
     {calls({"a"}), result("a", "A"), says("x"), calls({"b"}), result("a", "A")},
     "messages[4]: is the result of the call \"a\""},
    {"before_its_call",
     {result("a", "A"), calls({"a"})},
     "messages[0]: is the result of the call \"a\"",
     kResponses},
    {"without_calls", {user("?"), result("a", "A")}, "messages[1]: role is \"tool\" but"},
    {"after_the_user",
     {calls({"a"}), result("a", "A"), user("?"), result("a", "A")},
     "messages[3]: role is \"tool\" but"},
    {"of_a_joined_turn",
     {calls({"a"}), calls({"b"}), result("a", "A"), result("c", "C")},
     "messages[3]: is the result of the call \"c\"",
     kAnthropic},
};

INSTANTIATE_TEST_SUITE_P(Rules, BadResultsTest, testing::ValuesIn(kBadResults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CallResults, of_calls_that_were_cut_may_be_missing) {
  Message cut = calls({"a", "b"});
  cut.tool_calls[1].arguments = R"({"of": "b)";
  for (const ResultRules& rules : kEveryRule) {
    EXPECT_EQ(bound({user("?"), cut, result("a", "A"), user("!")}, rules), "user | A user ");
    EXPECT_EQ(bound({user("?"), cut, result("b", "B"), result("a", "A"), user("!")}, rules),
              "user | A B user ");
    EXPECT_NE(
        bound({user("?"), cut, result("b", "B"), user("!")}, rules).find("\"a\" has no result"),
        std::string::npos);
  }
}

TEST(CallResults, of_many_turns_cost_time_in_proportion) {
  std::vector<Message> messages;
  for (int i = 0; i < 20'000; ++i) {
    messages.push_back(calls({"call_0", "call_1"}));
    messages.push_back(result("call_1", "B"));
    messages.push_back(result("call_0", "A"));
  }
  for (const ResultRules& rules : {ResultRules{}, kResponses}) {
    std::vector<Message> copy = messages;
    std::vector<size_t> order;
    ASSERT_TRUE(bind_results(copy, rules, order));
    EXPECT_EQ(*copy[1].content, "A");
    EXPECT_EQ(*copy.back().content, "B");
  }
}

}  // namespace
}  // namespace fathom::text
