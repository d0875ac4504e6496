// Tool calls through the whole server with the vocabulary that DeepSeek publishes, in every form that its models write
// calls in. The simulation writes any text that the constraint allows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "tests/published_tokenizer.h"
#include "tests/serve/sim_server.h"

namespace fathom::serve {
namespace {

using tests::SimServer;
using text::ChatFormat;

api::ServedModel published_model(ChatFormat format) {
  api::ServedModel model = api::tests::demo_served_model();
  model.tokenizer = published_tokenizer().tokenizer;
  model.vocab_size = kPublishedVocabSize;
  model.eos_token_ids = {model.tokenizer->eos_id()};
  model.chat_format = format;
  model.longest_token_bytes = api::longest_token_bytes(*model.tokenizer);
  return model;
}

json::Value parameters() {
  return json::parse(R"({"type":"object","properties":{
      "unit":{"enum":["function","celsius"]},"days":{"type":"integer","minimum":1,"maximum":9}},
      "required":["unit","days"],"additionalProperties":false})")
      .value();
}

void expect_fits(const json::Value& arguments) {
  ASSERT_TRUE(arguments.is_object()) << json::dump(arguments);
  EXPECT_EQ(arguments.size(), 2U);
  const std::string unit = arguments["unit"].get<std::string>();
  EXPECT_TRUE(unit == "function" || unit == "celsius") << unit;
  EXPECT_GE(arguments["days"].get<int>(), 1);
  EXPECT_LE(arguments["days"].get<int>(), 9);
}

class PublishedVocabulary : public testing::TestWithParam<ChatFormat> {};

TEST_P(PublishedVocabulary, calls_come_as_the_schema_asks) {
  if (!published_tokenizer().tokenizer) GTEST_SKIP() << published_tokenizer().missing;
  SimServer server({.model = published_model(GetParam())});
  const json::Value function = {{"name", "weather"}, {"parameters", parameters()}};
  json::Value chat = {{"messages", {{{"role", "user"}, {"content", "The weather?"}}}},
                      {"tools", {{{"type", "function"}, {"function", function}}}},
                      {"parallel_tool_calls", false},
                      {"max_tokens", 600},
                      {"temperature", 1}};
  const json::Value named = {{"type", "function"}, {"function", {{"name", "weather"}}}};
  for (const json::Value& choice : {json::Value("required"), named}) {
    chat["tool_choice"] = choice;
    for (int seed = 1; seed <= 3; ++seed) {
      chat["seed"] = seed;
      const json::Value answer = server.post_json("/v1/chat/completions", chat)["choices"][0];
      ASSERT_EQ(answer["finish_reason"], json::Value("tool_calls")) << json::dump(answer);
      for (const json::Value& call : answer["message"]["tool_calls"]) {
        expect_fits(json::parse(call["function"]["arguments"].get<std::string>()).value());
      }
    }
  }
  const json::Value messages = {{"messages", chat["messages"]},
                                {"tools", {{{"name", "weather"}, {"input_schema", parameters()}}}},
                                {"tool_choice", {{"type", "any"}}},
                                {"max_tokens", 2000}};
  const json::Value answer = server.post_json("/v1/messages", messages);
  EXPECT_EQ(answer["stop_reason"], json::Value("tool_use")) << json::dump(answer);
  for (const json::Value& block : answer["content"]) {
    if (json::is_text(block["type"], "tool_use")) expect_fits(block["input"]);
  }
}

std::string format_label(const testing::TestParamInfo<ChatFormat>& info) {
  std::string name(text::chat_format_name(info.param));
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

// r1 begins in the reasoning, which is free text of any length.
INSTANTIATE_TEST_SUITE_P(formats, PublishedVocabulary,
                         testing::Values(ChatFormat::kV3, ChatFormat::kV3_0324,
                                         ChatFormat::kV3Tools, ChatFormat::kV31),
                         format_label);

}  // namespace
}  // namespace fathom::serve
