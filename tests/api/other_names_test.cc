// Fields by the names that vLLM, DeepSeek, OpenRouter and llama.cpp give them: each does what ours does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/tokenize_request.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api::tests {
namespace {

using ::testing::HasSubstr;
using Kind = GrammarSource::Kind;

std::string chat_body(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "hi"}], )" + more + "}";
}

GenerationRequest chat_of(const std::string& more) {
  return accepted(parse_chat_request(chat_body(more), demo_served_model()));
}

ApiError refused_chat(const std::string& more) {
  return tests::refused(parse_chat_request(chat_body(more), demo_served_model()));
}

GrammarSource grammar_of(const std::string& more) { return *chat_of(more).items.at(0).grammar; }

TEST(OtherNames, reasoning_is_switched_by_every_name) {
  for (
      const char* on :
      {R"("thinking": {"type": "enabled"})", R"("thinking": true)", R"("enable_thinking": true)",
       R"("reasoning": {"effort": "low"})", R"("reasoning": {"enabled": true})",
       R"("thinking": {"type": "enabled"}, "reasoning_effort": "high", "enable_thinking": true)"}) {
    EXPECT_TRUE(chat_of(on).chat.starts_in_reasoning) << on;
  }
  ServedModel model = demo_served_model();
  model.thinks_by_default = true;
  for (const char* off : {R"("thinking": {"type": "disabled"})", R"("thinking": false)",
                          R"("enable_thinking": false)", R"("reasoning": {"effort": "none"})",
                          R"("reasoning": {"enabled": false})"}) {
    EXPECT_FALSE(accepted(parse_chat_request(chat_body(off), model)).chat.starts_in_reasoning)
        << off;
  }
  EXPECT_TRUE(accepted(parse_chat_request(chat_body(R"("reasoning": {})"), model))
                  .chat.starts_in_reasoning);
}

TEST(OtherNames, switches_that_contradict_each_other_or_say_nothing_are_refused) {
  EXPECT_EQ(refused_chat(R"("thinking": {"type": "enabled"}, "enable_thinking": false)").param,
            "enable_thinking");
  EXPECT_EQ(refused_chat(R"("thinking": {"type": "enabled"}, "reasoning_effort": "none")").param,
            "reasoning_effort");
  EXPECT_EQ(refused_chat(R"("reasoning": {"enabled": true, "effort": "none"})").param,
            "reasoning.effort");
  EXPECT_EQ(refused_chat(R"("thinking": {})").param, "thinking.type");
  EXPECT_EQ(refused_chat(R"("thinking": {"type": "adaptive"})").param, "thinking.type");
  EXPECT_EQ(refused_chat(R"("thinking": {"type": "disabled", "budget_tokens": 5})").param,
            "thinking.budget_tokens");
  ServedModel never = demo_served_model();
  never.chat_format = text::ChatFormat::kV3;
  const ApiError error =
      tests::refused(parse_chat_request(chat_body(R"("thinking": {"type": "enabled"})"), never));
  EXPECT_EQ(error.param, "thinking.type");
}

TEST(OtherNames, budgets_of_the_reasoning_are_one_under_every_name) {
  for (const char* named : {R"("thinking": {"type": "enabled", "budget_tokens": 5})",
                            R"("reasoning": {"max_tokens": 5})", R"("thinking_token_budget": 5)",
                            R"("thinking_budget": 5)", R"("reasoning_budget": 5)",
                            R"("max_thinking_tokens": 5, "thinking_token_budget": 5)"}) {
    EXPECT_EQ(chat_of(named).chat.thinking_budget, 5) << named;
  }
  EXPECT_EQ(chat_of(R"("thinking_token_budget": 0)").chat.thinking_budget, 0);
  EXPECT_EQ(chat_of(R"("thinking_token_budget": -1)").chat.thinking_budget, std::nullopt);
  EXPECT_EQ(chat_of(R"("n": 1)").chat.thinking_budget, std::nullopt);
  const ApiError error =
      refused_chat(R"("reasoning": {"max_tokens": 5}, "thinking_token_budget": 6)");
  EXPECT_EQ(error.param, "thinking_token_budget");
  EXPECT_NE(error.message.find("reasoning.max_tokens is 5, must be the same"), std::string::npos);
}

TEST(OtherNames, of_budgets_the_one_in_reasoning_asks_for_reasoning) {
  EXPECT_TRUE(chat_of(R"("reasoning": {"max_tokens": 5})").chat.starts_in_reasoning);
  EXPECT_FALSE(chat_of(R"("thinking_token_budget": 5)").chat.starts_in_reasoning);
  EXPECT_EQ(refused_chat(R"("reasoning": {"max_tokens": 5, "enabled": false})").param,
            "reasoning.max_tokens");
}

TEST(OtherNames, the_effort_may_stand_in_chat_template_kwargs) {
  EXPECT_TRUE(
      chat_of(R"("chat_template_kwargs": {"reasoning_effort": "low"})").chat.starts_in_reasoning);
  ServedModel model = demo_served_model();
  model.thinks_by_default = true;
  EXPECT_FALSE(
      accepted(parse_chat_request(
                   chat_body(R"("chat_template_kwargs": {"reasoning_effort": "none"})"), model))
          .chat.starts_in_reasoning);
  EXPECT_EQ(refused_chat(R"("chat_template_kwargs": {"reasoning_effort": "much"})").param,
            "chat_template_kwargs.reasoning_effort");
}

TEST(OtherNames, stops_wait_for_the_answer_unless_the_request_or_the_server_says_otherwise) {
  EXPECT_FALSE(chat_of(R"("stop": "7")").chat.stop_in_reasoning);
  EXPECT_TRUE(chat_of(R"("stop": "7", "stop_in_reasoning": true)").chat.stop_in_reasoning);
  ServedModel model = demo_served_model();
  model.stop_in_reasoning = true;
  EXPECT_TRUE(
      accepted(parse_chat_request(chat_body(R"("stop": "7")"), model)).chat.stop_in_reasoning);
  EXPECT_FALSE(accepted(parse_chat_request(chat_body(R"("stop_in_reasoning": false)"), model))
                   .chat.stop_in_reasoning);
}

TEST(OtherNames, tokenize_makes_the_same_prompt) {
  const std::string body = chat_body(R"("thinking": {"type": "enabled"})");
  const auto tokens = accepted(parse_tokenize_request(body, demo_served_model())).tokens;
  EXPECT_EQ(tokens.at(0),
            accepted(parse_chat_request(body, demo_served_model())).items.at(0).prompt);
}

TEST(OtherNames, reasoning_can_be_left_out_or_stay_in_the_content) {
  EXPECT_TRUE(chat_of(R"("n": 1)").chat.include_reasoning);
  EXPECT_FALSE(chat_of(R"("include_reasoning": false)").chat.include_reasoning);
  EXPECT_FALSE(chat_of(R"("reasoning_format": "none")").chat.separate_reasoning);
  EXPECT_TRUE(chat_of(R"("reasoning_format": "deepseek", "separate_reasoning": true)")
                  .chat.separate_reasoning);
  EXPECT_EQ(refused_chat(R"("reasoning_format": "none", "separate_reasoning": true)").param,
            "reasoning_format");
  EXPECT_EQ(refused_chat(R"("reasoning_format": "deepseek-legacy")").param, "reasoning_format");
  EXPECT_EQ(refused_chat(R"("include_reasoning": false, "separate_reasoning": false)").param,
            "include_reasoning");
}

TEST(OtherNames, a_form_of_the_answer_by_every_name) {
  const std::string schema = R"({"type":"object"})";
  for (const std::string& field : std::vector<std::string>{
           R"("guided_json": )" + schema, R"("guided_json": "{\"type\": \"object\"}")",
           R"("structured_outputs": {"json": )" + schema + "}",
           R"("response_format": {"type": "json_object", "schema": )" + schema + "}"}) {
    const GrammarSource grammar = grammar_of(field);
    EXPECT_EQ(grammar.kind, Kind::kJsonSchema) << field;
    EXPECT_EQ(grammar.text, schema) << field;
  }
  for (const char* field :
       {R"("guided_regex": "a+")", R"("structured_outputs": {"regex": "a+"})"}) {
    EXPECT_EQ(grammar_of(field).kind, Kind::kRegex) << field;
    EXPECT_EQ(grammar_of(field).text, "a+") << field;
  }
  for (const char* field :
       {R"("guided_grammar": "root ::= \"a\"")", R"("grammar": "root ::= \"a\"")",
        R"("structured_outputs": {"grammar": "root ::= \"a\""})"}) {
    EXPECT_EQ(grammar_of(field).kind, Kind::kEbnf) << field;
    EXPECT_EQ(grammar_of(field).text, R"(root ::= "a")") << field;
  }
  EXPECT_EQ(grammar_of(R"("structured_outputs": {"json_object": true})").kind, Kind::kJsonObject);
  EXPECT_EQ(grammar_of(R"("structured_outputs": {"json_object": false})").kind, Kind::kNone);
  EXPECT_EQ(accepted(parse_completion_request(R"({"prompt": "a", "guided_regex": "b"})",
                                              demo_served_model()))
                .items.at(0)
                .grammar->text,
            "b");
}

TEST(OtherNames, settings_of_json_hold_whichever_field_has_the_form) {
  const std::string schema = R"("guided_json": {}, )", more = R"("response_format": )";
  for (
      const std::string& fields : std::vector<std::string>{
          R"("structured_outputs": {"json": {}, "disable_any_whitespace": true})",
          schema + R"("guided_whitespace_pattern": "")",
          schema + R"("guided_decoding_backend": "xgrammar:no-fallback,disable-any-whitespace")",
          R"("structured_outputs": {"disable_any_whitespace": true, "disable_additional_properties": false}, )" +
              more + R"({"type": "json_object"})"}) {
    EXPECT_EQ(grammar_of(fields).white_space, "") << fields;
    EXPECT_FALSE(grammar_of(fields).is_closed) << fields;
  }
  EXPECT_EQ(
      grammar_of(R"("structured_outputs": {"json": {}, "whitespace_pattern": "[ ]?"})").white_space,
      "[ ]?");
  for (const std::string& fields : std::vector<std::string>{
           R"("structured_outputs": {"json": {}, "disable_additional_properties": true})",
           schema + R"("guided_decoding_backend": "guidance:no-additional-properties")",
           schema + R"("guided_decoding_backend": "guidance:disable-additional-properties")"}) {
    EXPECT_TRUE(grammar_of(fields).is_closed) << fields;
    EXPECT_FALSE(grammar_of(fields).white_space.has_value()) << fields;
  }
  EXPECT_FALSE(grammar_of(schema + R"("guided_decoding_backend": "xgrammar")").is_closed);
  EXPECT_EQ(refused_chat(R"("guided_regex": "a", "guided_whitespace_pattern": "")").param,
            "guided_whitespace_pattern");
  EXPECT_EQ(refused_chat(R"("structured_outputs": {"disable_any_whitespace": true})").param,
            "structured_outputs.disable_any_whitespace");
  EXPECT_EQ(
      refused_chat(
          R"("structured_outputs": {"json": {}, "disable_any_whitespace": true, "whitespace_pattern": " "})")
          .param,
      "structured_outputs.disable_any_whitespace");
  EXPECT_EQ(refused_chat(schema + R"("guided_decoding_backend": "outlines:fast")").param,
            "guided_decoding_backend");
}

TEST(OtherNames, the_server_may_have_no_white_space_where_the_request_does_not_say) {
  ServedModel model = demo_served_model();
  model.json_without_white_space = true;
  const auto grammar = [&](const std::string& fields) {
    return *accepted(parse_chat_request(chat_body(fields), model)).items.at(0).grammar;
  };
  EXPECT_EQ(grammar(R"("response_format": {"type": "json_object"})").white_space, "");
  EXPECT_EQ(grammar(R"("json_schema": "{}")").white_space, "");
  EXPECT_EQ(grammar(R"("guided_json": {}, "guided_whitespace_pattern": " ")").white_space, " ");
  EXPECT_EQ(grammar(R"("regex": "a")").white_space, std::nullopt);
  EXPECT_EQ(grammar(R"("n": 1)").white_space, std::nullopt);
}

TEST(OtherNames, a_choice_is_rules_with_its_texts_quoted) {
  const std::string texts = R"(["yes", "a \"b\" \\ c", "line\nbreak", "é"])";
  for (const std::string& field :
       {R"("guided_choice": )" + texts, R"("structured_outputs": {"choice": )" + texts + "}"}) {
    const GrammarSource grammar = grammar_of(field);
    EXPECT_EQ(grammar.kind, Kind::kEbnf);
    EXPECT_EQ(grammar.text, R"(root ::= "yes" | "a \"b\" \\ c" | "line\x0abreak" | "é")");
  }
  EXPECT_EQ(refused_chat(R"("guided_choice": [])").param, "guided_choice");
  EXPECT_EQ(refused_chat(R"("guided_choice": ["a", 1])").param, "guided_choice[1]");
  EXPECT_EQ(refused_chat(R"("guided_choice": [")" + std::string(300'000, 'a') + "\"]").param,
            "guided_choice");
}

TEST(OtherNames, one_form_at_most) {
  EXPECT_EQ(refused_chat(R"("guided_regex": "a", "regex": "a")").param, "regex");
  EXPECT_EQ(refused_chat(R"("structured_outputs": {"json": {}, "regex": "a"})").param,
            "structured_outputs.regex");
  EXPECT_EQ(refused_chat(R"("structured_outputs": {"structural_tag": "a"})").param,
            "structured_outputs.structural_tag");
  EXPECT_EQ(refused_chat(R"("response_format": {"type": "text", "schema": {}})").param,
            "response_format.schema");
}

TEST(OtherNames, the_length_by_three_names_if_they_agree) {
  EXPECT_EQ(chat_of(R"("max_new_tokens": 5)").items[0].sampling.max_new_tokens, 5);
  EXPECT_EQ(chat_of(R"("max_new_tokens": 5, "max_tokens": 5)").items[0].sampling.max_new_tokens, 5);
  const ApiError error = refused_chat(R"("max_new_tokens": 5, "max_tokens": 6)");
  EXPECT_EQ(error.param, "max_tokens");
  EXPECT_THAT(error.message, HasSubstr("max_new_tokens is 5"));
}

TEST(OtherNames, ids_and_stop_strings) {
  EXPECT_EQ(chat_of(R"("request_id": "a")").form.id, "a");
  EXPECT_EQ(refused_chat(R"("request_id": "a", "rid": "b")").param, "request_id");
  EXPECT_TRUE(chat_of(R"("include_stop_str_in_output": true)").items[0].no_stop_trim);
  EXPECT_TRUE(chat_of(R"("no_stop_trim": true)").items[0].no_stop_trim);
  EXPECT_EQ(refused_chat(R"("include_stop_str_in_output": true, "no_stop_trim": false)").param,
            "include_stop_str_in_output");
}

std::string two_messages(const std::string& assistant) {
  return R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", )" + assistant +
         "}]}";
}

std::string text_of(const GenerationRequest& request) {
  return demo_tokenizer()->decode(request.items.at(0).prompt, false);
}

TEST(OtherNames, a_prefix_is_continued) {
  const GenerationRequest request = accepted(
      parse_chat_request(two_messages(R"("content": "b c", "prefix": true)"), demo_served_model()));
  EXPECT_EQ(text_of(request), "<｜begin▁of▁sentence｜><｜User｜>a<｜Assistant｜></think>b c");
  const auto problem = [](const std::string& body) {
    return tests::refused(parse_chat_request(body, demo_served_model())).param;
  };
  EXPECT_EQ(problem(R"({"messages": [{"role": "user", "content": "a", "prefix": true}]})"),
            "messages[0].prefix");
  EXPECT_EQ(problem(R"({"messages": [{"role": "assistant", "content": "a", "prefix": true},
                                     {"role": "user", "content": "b"}]})"),
            "messages[0].prefix");
  EXPECT_EQ(problem(two_messages(R"("content": "b", "prefix": true, "reasoning_content": "r")")),
            "messages[1].reasoning_content");
}

TEST(OtherNames, a_refusal_is_what_the_assistant_said) {
  for (const char* said : {R"("refusal": "no", "content": null)",
                           R"("content": [{"type": "refusal", "refusal": "no"}])"}) {
    const GenerationRequest request =
        accepted(parse_chat_request(two_messages(said), demo_served_model()));
    EXPECT_THAT(text_of(request), HasSubstr("</think>no<｜end▁of▁sentence｜>")) << said;
  }
  EXPECT_EQ(tests::refused(parse_chat_request(two_messages(R"("content": "b", "refusal": "no")"),
                                              demo_served_model()))
                .param,
            "messages[1].refusal");
}

}  // namespace
}  // namespace fathom::api::tests
