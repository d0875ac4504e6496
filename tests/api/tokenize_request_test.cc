#include "api/tokenize_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using ::testing::ElementsAre;
using tests::accepted;
using tests::demo_served_model;
using tests::refused;

TokenizeRequest accept_tokenize(const std::string& body) {
  return accepted(parse_tokenize_request(body, demo_served_model()));
}

DetokenizeRequest accept_detokenize(const std::string& body) {
  return accepted(parse_detokenize_request(body, demo_served_model()));
}

TEST(TokenizeRequest, encodes_one_text_or_many) {
  const TokenizeRequest one = accept_tokenize(R"({"prompt": "<｜User｜>"})");
  EXPECT_FALSE(one.is_batch);
  EXPECT_THAT(one.tokens, ElementsAre(ElementsAre(0, 3)));
  const TokenizeRequest two =
      accept_tokenize(R"({"prompt": ["<think>", ""], "add_special_tokens": false})");
  EXPECT_TRUE(two.is_batch);
  EXPECT_THAT(two.tokens, ElementsAre(ElementsAre(5), ElementsAre()));
}

TEST(TokenizeRequest, messages_give_the_prompt_of_a_chat) {
  const std::string messages = R"("messages": [{"role": "user", "content": "<think> hi"}],
      "tools": [{"type": "function", "function": {"name": "f"}}],
      "chat_template_kwargs": {"thinking": true})";
  const GenerationRequest chat =
      accepted(parse_chat_request("{" + messages + "}", demo_served_model()));
  EXPECT_EQ(accept_tokenize("{" + messages + "}").tokens.at(0), chat.items.at(0).prompt);
}

TEST(TokenizeRequest, the_turn_of_the_assistant_may_be_left_out) {
  const std::string messages = R"("messages": [{"role": "user", "content": "hi"}])";
  const std::vector<int32_t> with = accept_tokenize("{" + messages + "}").tokens.at(0);
  const std::vector<int32_t> without =
      accept_tokenize("{" + messages + R"(, "add_generation_prompt": false})").tokens.at(0);
  EXPECT_EQ(without.size() + 2, with.size());
  EXPECT_TRUE(std::equal(without.begin(), without.end(), with.begin()));
}

TEST(TokenizeRequest, another_model_is_not_found) {
  EXPECT_EQ(refused(parse_tokenize_request(R"({"model": "x", "prompt": "a"})", demo_served_model()))
                .status,
            404);
}

TEST(DetokenizeRequest, reads_one_list_or_many) {
  const DetokenizeRequest one = accept_detokenize(R"({"tokens": [5, 6]})");
  EXPECT_FALSE(one.is_batch);
  EXPECT_TRUE(one.skip_special_tokens);
  EXPECT_THAT(one.tokens, ElementsAre(ElementsAre(5, 6)));
  const DetokenizeRequest two =
      accept_detokenize(R"({"tokens": [[5], []], "skip_special_tokens": false})");
  EXPECT_TRUE(two.is_batch);
  EXPECT_FALSE(two.skip_special_tokens);
  EXPECT_THAT(two.tokens, ElementsAre(ElementsAre(5), ElementsAre()));
}

}  // namespace
}  // namespace fathom::api
