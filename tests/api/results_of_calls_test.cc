// Two calls and their results on every endpoint that takes a conversation, in every format that has tools: however the
// results come, the prompt has them in the order of the calls, and what answers no call is refused by its id.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "api/chat_request.h"
#include "api/messages_request.h"
#include "api/responses/responses_request.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using tests::accepted;
using tests::demo_served_model;
using tests::refused;

using Results = std::vector<std::pair<std::string, std::string>>;  // id and text

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

// The calls a (Oslo) and b (Rome), and what follows them.
struct Wire {
  const char* name;
  std::string (*body)(const Results& results);
  Parsed<GenerationRequest> (*parse)(std::string_view body, const ServedModel& model);
};

std::string chat_body(const Results& results) {
  std::vector<std::string> messages = {R"({"role":"user","content":"weather?"})",
                                       R"({"role":"assistant","content":null,"tool_calls":[
          {"id":"a","type":"function","function":{"name":"w","arguments":"{\"city\":\"Oslo\"}"}},
          {"id":"b","type":"function","function":{"name":"w","arguments":"{\"city\":\"Rome\"}"}}]})"};
  for (const auto& [id, text] : results) {
    messages.push_back(R"({"role":"tool","tool_call_id":")" + id + R"(","content":")" + text +
                       "\"}");
  }
  return R"({"max_tokens":1,"messages":[)" + joined(messages) + "]}";
}

std::string messages_body(const Results& results) {
  std::vector<std::string> blocks;
  for (const auto& [id, text] : results) {
    blocks.push_back(R"({"type":"tool_result","tool_use_id":")" + id + R"(","content":")" + text +
                     "\"}");
  }
  return R"({"max_tokens":1,"messages":[{"role":"user","content":"weather?"},
      {"role":"assistant","content":[
        {"type":"tool_use","id":"a","name":"w","input":{"city":"Oslo"}},
        {"type":"tool_use","id":"b","name":"w","input":{"city":"Rome"}}]},
      {"role":"user","content":[)" +
         joined(blocks) + "]}]}";
}

// One message for each result: Anthropic takes messages in a row for one turn.
std::string split_messages_body(const Results& results) {
  std::string body = R"({"max_tokens":1,"messages":[{"role":"user","content":"weather?"},
      {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"w","input":{"city":"Oslo"}}]},
      {"role":"assistant","content":[{"type":"tool_use","id":"b","name":"w","input":{"city":"Rome"}}]})";
  for (const auto& [id, text] : results) {
    body += R"(,{"role":"user","content":[{"type":"tool_result","tool_use_id":")" + id +
            R"(","content":")" + text + "\"}]}";
  }
  return body + "]}";
}

std::string responses_body(const Results& results) {
  std::vector<std::string> items = {
      R"({"role":"user","content":"weather?"})",
      R"({"type":"function_call","call_id":"a","name":"w","arguments":"{\"city\":\"Oslo\"}"})",
      R"({"type":"function_call","call_id":"b","name":"w","arguments":"{\"city\":\"Rome\"}"})"};
  for (const auto& [id, text] : results) {
    items.push_back(R"({"type":"function_call_output","call_id":")" + id + R"(","output":")" +
                    text + "\"}");
  }
  return R"({"max_output_tokens":1,"input":[)" + joined(items) + "]}";
}

Parsed<GenerationRequest> parse_responses(std::string_view body, const ServedModel& model) {
  return parse_responses_request(body, model, {});
}

const Wire kWires[] = {{"chat", chat_body, parse_chat_request},
                       {"messages", messages_body, parse_messages_request},
                       {"split_messages", split_messages_body, parse_messages_request},
                       {"responses", responses_body, parse_responses}};

using Case = std::tuple<Wire, text::ChatFormatTraits>;

class ResultsOfCalls : public testing::TestWithParam<Case> {
 protected:
  Parsed<GenerationRequest> parse(const Results& results) const {
    const auto& [wire, format] = GetParam();
    ServedModel model = demo_served_model(4096);
    model.chat_format = format.format;
    return wire.parse(wire.body(results), model);
  }
  std::string prompt(const Results& results) const {
    GenerationRequest request = accepted(parse(results));
    return request.items.empty() ? ""
                                 : tests::demo_tokenizer()->decode(request.items[0].prompt, false);
  }
  std::string problem(const Results& results) const { return refused(parse(results)).message; }
};

TEST_P(ResultsOfCalls, stand_in_the_order_of_the_calls) {
  const std::string sorted = prompt({{"a", "snow"}, {"b", "sun"}});
  const std::string swapped = prompt({{"b", "sun"}, {"a", "snow"}});
  EXPECT_LT(sorted.find("Oslo"), sorted.find("Rome"));
  EXPECT_LT(sorted.find("snow"), sorted.find("sun"));
  EXPECT_NE(sorted.find("sun"), std::string::npos);
  if (std::get<1>(GetParam()).shows_call_ids) {
    EXPECT_LT(swapped.find("Return of b\nsun"), swapped.find("Return of a\nsnow")) << swapped;
  } else {
    EXPECT_EQ(swapped, sorted);
  }
}

TEST_P(ResultsOfCalls, are_refused_by_their_id_when_they_are_missing_doubled_or_foreign) {
  EXPECT_NE(problem({{"b", "sun"}}).find("the call \"a\" has no result"), std::string::npos);
  EXPECT_NE(problem({{"a", "snow"}, {"b", "sun"}, {"a", "snow"}})
                .find("a second result of the call \"a\""),
            std::string::npos);
  EXPECT_NE(problem({{"a", "snow"}, {"c", "fog"}}).find("the result of the call \"c\""),
            std::string::npos);
}

std::vector<text::ChatFormatTraits> formats_with_tools() {
  std::vector<text::ChatFormatTraits> formats;
  std::ranges::copy_if(text::chat_formats(), std::back_inserter(formats),
                       &text::ChatFormatTraits::takes_tools);
  return formats;
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, ResultsOfCalls,
                         testing::Combine(testing::ValuesIn(kWires),
                                          testing::ValuesIn(formats_with_tools())),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param).name;
                           name += "_" + std::string(std::get<1>(info.param).name);
                           std::ranges::replace_if(
                               name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

TEST(ResultsOfCallsPlaces, name_where_the_body_has_them) {
  const ServedModel model = demo_served_model();
  EXPECT_EQ(refused(parse_chat_request(chat_body({{"a", "x"}}), model)).param,
            "messages[1].tool_calls[1]");
  EXPECT_EQ(refused(parse_chat_request(chat_body({{"a", "x"}, {"c", "x"}}), model)).param,
            "messages[3]");
  EXPECT_EQ(refused(parse_messages_request(messages_body({{"a", "x"}, {"a", "x"}}), model)).param,
            "messages[2].content[1]");
  EXPECT_EQ(refused(parse_responses(responses_body({{"a", "x"}, {"a", "x"}}), model)).param,
            "input[4]");
  EXPECT_EQ(refused(parse_responses(responses_body({{"a", "x"}}), model)).param, "input[1]");
}

// As OpenAI takes it: an agent's user speaks while the tool runs.
TEST(ResultsOfCallsPlaces, of_responses_may_come_behind_other_items) {
  const std::string body = R"({"input":[
      {"type":"function_call","call_id":"a","name":"w","arguments":"{}"},
      {"role":"user","content":"hurry"},
      {"type":"function_call_output","call_id":"a","output":"snow"}]})";
  const GenerationRequest request = accepted(parse_responses(body, demo_served_model()));
  const std::string prompt = tests::demo_tokenizer()->decode(request.items[0].prompt, false);
  EXPECT_LT(prompt.find("snow"), prompt.find("hurry"));
}

}  // namespace
}  // namespace fathom::api
