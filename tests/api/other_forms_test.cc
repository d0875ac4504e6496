// What clients of other servers send that OpenAI's form has no word for.

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "api/chat_request.h"
#include "api/score_request.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api::tests {
namespace {

std::string chat(const std::string& content, const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": ")" + content + "\"}]" + more + "}";
}

TEST(OtherForms, no_share_of_the_tokens_is_the_likeliest_token) {
  const ServedModel model = demo_served_model();
  EXPECT_EQ(
      accepted(parse_chat_request(chat("hi", R"(, "top_p": 0)"), model)).items.at(0).sampling.top_p,
      std::numeric_limits<float>::min());
  EXPECT_EQ(refused(parse_chat_request(chat("hi", R"(, "top_p": -0.1)"), model)).param, "top_p");
}

TEST(OtherForms, half_a_surrogate_pair_is_the_replacement_character) {
  const ServedModel model = demo_served_model();
  EXPECT_EQ(accepted(parse_chat_request(chat(R"(cut \ud83d)"), model)).items.at(0).prompt,
            accepted(parse_chat_request(chat("cut \xef\xbf\xbd"), model)).items.at(0).prompt);
}

TEST(OtherForms, any_model_is_answered_for_where_the_operator_says_so) {
  ServedModel model = demo_served_model();
  const std::string body = chat("hi", R"(, "model": "gpt-4.1")");
  EXPECT_EQ(refused(parse_chat_request(body, model)).code, "model_not_found");
  model.takes_any_name = true;
  EXPECT_EQ(accepted(parse_chat_request(body, model)).model, "demo");
}

TEST(OtherForms, a_score_of_no_items_has_none) {
  const std::string body = R"({"query": "a", "items": [], "label_token_ids": [5]})";
  EXPECT_TRUE(accepted(parse_score_request(body, demo_served_model())).items.empty());
}

}  // namespace
}  // namespace fathom::api::tests
