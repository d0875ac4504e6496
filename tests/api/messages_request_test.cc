// Bodies of /v1/messages: what they make of a conversation is what chat makes of the same one, and what the form has
// that is not here is refused by name.

#include "api/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "base/json.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using tests::accepted, tests::demo_served_model, tests::refused;

// Prompts of the templates are longer than the demo's context of 1024.
ServedModel messages_model() { return demo_served_model(8192); }

// {"max_tokens": 8, MORE}
std::string messages_body(const std::string& more) { return R"({"max_tokens": 8, )" + more + "}"; }

const std::string kHelloMessages = R"("messages": [{"role": "user", "content": "Hello"}])";

GenerationRequest read_messages_body(const std::string& body) {
  return accepted(parse_messages_request(body, messages_model()));
}

std::vector<int32_t> messages_prompt(const GenerationRequest& request) {
  return request.items.empty() ? std::vector<int32_t>() : request.items[0].prompt;
}

void expect_chats_prompt(const std::string& messages_fields, const std::string& chat_fields) {
  const GenerationRequest made = read_messages_body(messages_body(messages_fields));
  const GenerationRequest chat =
      accepted(parse_chat_request(messages_body(chat_fields), messages_model()));
  EXPECT_EQ(messages_prompt(made), messages_prompt(chat)) << messages_fields;
  EXPECT_EQ(made.chat.starts_in_reasoning, chat.chat.starts_in_reasoning);
  EXPECT_EQ(made.chat.parse_tools, chat.chat.parse_tools);
  EXPECT_EQ(made.chat.hide_tool_markers, chat.chat.hide_tool_markers);
  EXPECT_EQ(accepted(parse_count_tokens_request("{" + messages_fields + "}", messages_model())),
            static_cast<int>(messages_prompt(chat).size()));
}

TEST(MessagesRequest, makes_the_prompt_that_chat_makes_of_the_same_conversation) {
  expect_chats_prompt(kHelloMessages, kHelloMessages);
  expect_chats_prompt(R"("system": "Be brief.", )" + kHelloMessages,
                      R"("messages": [{"role": "system", "content": "Be brief."},
                                     {"role": "user", "content": "Hello"}])");
  expect_chats_prompt(
      R"("system": [{"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}},
                    {"type": "text", "text": "brief."}],
         "messages": [
           {"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
           {"role": "assistant", "content": [
             {"type": "thinking", "thinking": "hm", "signature": "s"},
             {"type": "redacted_thinking", "data": "x"},
             {"type": "text", "text": "3"}]},
           {"role": "user", "content": "4"}])",
      R"("messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "12"},
                      {"role": "assistant", "content": "3"}, {"role": "user", "content": "4"}])");
}

TEST(MessagesRequest, makes_the_prompt_of_calls_and_their_results) {
  expect_chats_prompt(
      R"("tools": [{"name": "get_weather", "description": "Of a city",
                    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}],
         "messages": [
           {"role": "user", "content": "Oslo?"},
           {"role": "assistant", "content": [
             {"type": "text", "text": "I look."},
             {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Oslo"}},
             {"type": "tool_use", "id": "b", "name": "get_weather", "input": {}}]},
           {"role": "user", "content": [
             {"type": "tool_result", "tool_use_id": "a", "content": "rain"},
             {"type": "tool_result", "tool_use_id": "b", "is_error": true,
              "content": [{"type": "text", "text": "no "}, {"type": "text", "text": "city"}]},
             {"type": "text", "text": "And now?"}]}])",
      R"("tools": [{"type": "function", "function": {"name": "get_weather", "description": "Of a city",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}],
         "messages": [
           {"role": "user", "content": "Oslo?"},
           {"role": "assistant", "content": "I look.", "tool_calls": [
             {"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Oslo\"}"}},
             {"id": "b", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]},
           {"role": "tool", "tool_call_id": "a", "content": "rain"},
           {"role": "tool", "tool_call_id": "b", "content": "no city"},
           {"role": "user", "content": "And now?"}])");
}

// The templates would move it to the front.
TEST(MessagesRequest, a_system_message_within_the_conversation_stays_in_its_place) {
  const auto reminder = [](const std::string& text) {
    return R"(<system-reminder>\n)" + text + R"(\n</system-reminder>)";
  };
  const std::string call = R"({"role": "assistant", "content": [
      {"type": "tool_use", "id": "a", "name": "f", "input": {}}]})";
  const std::string chat_call = R"({"role": "assistant", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]})";
  const std::string result = R"({"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "a", "content": "r"}]})";
  const std::string chat_result = R"({"role": "tool", "tool_call_id": "a", "content": "r"})";
  const auto user = [](const std::string& text) {
    return R"({"role": "user", "content": ")" + text + "\"}";
  };
  const auto system = [](const std::string& text) {
    return R"({"role": "system", "content": [{"type": "text", "text": ")" + text + "\"}]}";
  };
  const std::string answer = R"({"role": "assistant", "content": "b"})";
  const auto expect = [](const std::vector<std::string>& turns,
                         const std::vector<std::string>& chat_turns) {
    const auto list = [](const std::vector<std::string>& messages) {
      std::string joined;
      for (const std::string& message : messages) joined += (joined.empty() ? "" : ", ") + message;
      return R"("messages": [)" + joined + "]";
    };
    expect_chats_prompt(list(turns), list(chat_turns));
  };
  expect({user("a"), system("s")}, {user(R"(a\n\n)" + reminder("s"))});
  expect({user("a"), system("s"), system("t"), answer, user("c")},
         {user(R"(a\n\n)" + reminder("s") + R"(\n\n)" + reminder("t")), answer, user("c")});
  expect({user("a"), answer, system("s"), user("c")},
         {user("a"), answer, user(reminder("s") + R"(\n\nc)")});
  expect({user("a"), answer, system("s")}, {user("a"), answer, user(reminder("s"))});
  expect({user("a"), call, result, system("s")},
         {user("a"), chat_call, chat_result, user(reminder("s"))});
  expect({user("a"), call, system("s"), result, answer, user("c")},
         {user("a"), chat_call, chat_result, user(reminder("s")), answer, user("c")});
  expect({user("a"), system(reminder("s"))}, {user(R"(a\n\n)" + reminder("s"))});
  expect({user("a"), system("")}, {user("a")});
  // In front it is what the templates call a system message.
  expect({system("s"), user("a")}, {R"({"role": "system", "content": "s"})", user("a")});
}

TEST(MessagesRequest, results_go_before_what_the_user_says_with_them) {
  const std::string call = R"("messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
      {"role": "user", "content": [)";
  const std::string result = R"({"type": "tool_result", "tool_use_id": "a", "content": "r"})";
  const std::string text = R"({"type": "text", "text": "y"})";
  EXPECT_EQ(
      messages_prompt(read_messages_body(messages_body(call + text + ", " + result + "]}]"))),
      messages_prompt(read_messages_body(messages_body(call + result + ", " + text + "]}]"))));
}

TEST(MessagesRequest, arguments_that_are_no_json_come_back_as_the_text_that_they_were) {
  const auto prompt_of = [](const std::string& input, const std::string& arguments) {
    expect_chats_prompt(
        R"("messages": [{"role": "user", "content": "Oslo?"},
           {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": )" +
            input +
            R"(}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}])",
        R"("messages": [{"role": "user", "content": "Oslo?"}, {"role": "assistant", "tool_calls": [
             {"id": "a", "type": "function", "function": {"name": "f", "arguments": )" +
            arguments + R"(}}]}, {"role": "tool", "tool_call_id": "a", "content": "x"}])");
  };
  prompt_of(R"({"INVALID_JSON": "{\"city\": \"Os"})", R"("{\"city\": \"Os")");
  prompt_of(R"({"INVALID_JSON": 1})", R"("{\"INVALID_JSON\": 1}")");
  prompt_of(R"({"INVALID_JSON": "x", "a": 1})", R"("{\"INVALID_JSON\": \"x\", \"a\": 1}")");
}

TEST(MessagesRequest, a_failed_call_without_a_word_says_that_it_failed) {
  const auto body = [](const std::string& result) {
    return R"("messages": [{"role": "user", "content": "x"},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a")" +
           result + "}]}]";
  };
  EXPECT_EQ(messages_prompt(read_messages_body(messages_body(body(R"(, "is_error": true)")))),
            messages_prompt(read_messages_body(messages_body(body(R"(, "content": "error")")))));
  EXPECT_NE(messages_prompt(read_messages_body(messages_body(body(R"(, "is_error": false)")))),
            messages_prompt(read_messages_body(messages_body(body(R"(, "content": "error")")))));
}

TEST(MessagesRequest, a_last_message_of_the_assistant_is_continued) {
  expect_chats_prompt(
      R"("messages": [{"role": "user", "content": "Greek for sun?"},
                      {"role": "assistant", "content": "The best answer is ("}])",
      R"("messages": [{"role": "user", "content": "Greek for sun?"},
                      {"role": "assistant", "content": "The best answer is ("}],
         "continue_final_message": true)");
}

TEST(MessagesRequest, thinking_follows_the_switch) {
  const std::string on = R"("chat_template_kwargs": {"thinking": true}, )" + kHelloMessages;
  expect_chats_prompt(
      R"("thinking": {"type": "enabled", "budget_tokens": 1024}, )" + kHelloMessages, on);
  expect_chats_prompt(
      R"("thinking": {"type": "adaptive", "display": "summarized"}, )" + kHelloMessages, on);
  expect_chats_prompt(R"("thinking": {"type": "disabled"}, )" + kHelloMessages, kHelloMessages);
  ServedModel thinks = messages_model();
  thinks.thinks_by_default = true;
  EXPECT_TRUE(accepted(parse_messages_request(messages_body(kHelloMessages), thinks))
                  .chat.starts_in_reasoning);
  ServedModel never = messages_model();
  never.chat_format = text::ChatFormat::kV3;
  const std::string adaptive =
      messages_body(R"("thinking": {"type": "adaptive"}, )" + kHelloMessages);
  EXPECT_FALSE(accepted(parse_messages_request(adaptive, never)).chat.starts_in_reasoning);
  const std::string enabled =
      messages_body(R"("thinking": {"type": "enabled"}, )" + kHelloMessages);
  EXPECT_EQ(refused(parse_messages_request(enabled, never)).param, "thinking.type");
}

TEST(MessagesRequest, sampling_arrives_as_it_was_sent) {
  const GenerationRequest request = read_messages_body(
      messages_body(R"("temperature": 0.25, "top_p": 0.5, "top_k": 7, "stop_sequences": ["a", "bc"],
              "stream": true, "metadata": {"user_id": "u"}, "service_tier": "auto", "speed": "standard",
              "output_config": {"effort": "high"}, "cache_control": {"type": "ephemeral"}, )" +
                    kHelloMessages));
  ASSERT_EQ(request.items.size(), 1U);
  const GenerationItem& item = request.items[0];
  EXPECT_EQ(item.sampling.temperature, 0.25f);
  EXPECT_EQ(item.sampling.top_p, 0.5f);
  EXPECT_EQ(item.sampling.top_k, 7);
  EXPECT_EQ(item.sampling.max_new_tokens, 8);
  EXPECT_THAT(item.stop, testing::ElementsAre("a", "bc"));
  EXPECT_TRUE(request.form.stream);
  EXPECT_EQ(request.form.endpoint, Endpoint::kMessages);
  EXPECT_TRUE(request.chat.separate_reasoning);
}

TEST(MessagesRequest, choices_of_tools_constrain_the_calls) {
  const std::string tools = R"("tools": [{"name": "f", "input_schema": {"type": "object"}},
                                         {"name": "g", "input_schema": {"type": "object"}}], )" +
                            kHelloMessages;
  using Kind = ToolConstraint::Kind;
  const auto constraint = [&](const std::string& choice) {
    return read_messages_body(messages_body("\"tool_choice\": " + choice + ", " + tools))
        .chat.tool_constraint;
  };
  EXPECT_EQ(read_messages_body(messages_body(tools)).chat.tool_constraint.kind, Kind::kNone);
  EXPECT_EQ(constraint(R"({"type": "auto"})").kind, Kind::kNone);
  const ToolConstraint one = constraint(R"({"type": "auto", "disable_parallel_tool_use": true})");
  EXPECT_EQ(one.kind, Kind::kOptional);
  EXPECT_FALSE(one.parallel);
  EXPECT_EQ(constraint(R"({"type": "any"})").kind, Kind::kRequired);
  EXPECT_TRUE(constraint(R"({"type": "any"})").parallel);
  EXPECT_FALSE(constraint(R"({"type": "any", "disable_parallel_tool_use": true})").parallel);
  const ToolConstraint named = constraint(R"({"type": "tool", "name": "g"})");
  EXPECT_EQ(named.kind, Kind::kRequired);
  ASSERT_EQ(named.tools->size(), 1U);
  EXPECT_EQ((*named.tools)[0]["name"].get<std::string>(), "g");
  const GenerationRequest none =
      read_messages_body(messages_body(R"("tool_choice": {"type": "none"}, )" + tools));
  EXPECT_FALSE(none.chat.parse_tools);
  EXPECT_TRUE(none.chat.hide_tool_markers);
  EXPECT_EQ(messages_prompt(none),
            messages_prompt(read_messages_body(messages_body(kHelloMessages))));
}

TEST(MessagesRequest, an_output_format_is_a_grammar) {
  const GenerationRequest request = read_messages_body(messages_body(
      R"("output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}, )" +
      kHelloMessages));
  ASSERT_EQ(request.items.size(), 1U);
  EXPECT_EQ(request.items[0].grammar->kind, GrammarSource::Kind::kJsonSchema);
  EXPECT_EQ(request.items[0].grammar->text, R"({"type":"object"})");
  EXPECT_EQ(request.items[0].grammar->field, "output_config.format.schema");
}

// What a body is refused for: the field, and a part of what is said about it.
struct MessagesRefusal {
  std::string fields, param, says;
};

std::string user_blocks(const std::string& blocks) {
  return R"("messages": [{"role": "user", "content": [)" + blocks + "]}]";
}

std::vector<MessagesRefusal> messages_refusals() {
  const std::string call =
      R"({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]})";
  const std::string tool = R"("tools": [{"name": "f", "input_schema": {}}], )";
  return {
      {user_blocks(R"({"type": "image", "source": {}})"), "messages[0].content[0].type", "image"},
      {user_blocks(R"({"type": "text", "text": "x"}, {"type": "document", "source": {}})"),
       "messages[0].content[1].type", "document"},
      {user_blocks(R"({"type": "text", "txt": "x"})"), "messages[0].content[0].txt",
       "did you mean 'text'"},
      {user_blocks(R"({"type": "text"})"), "messages[0].content[0].text", "missing"},
      {user_blocks(R"({"type": "tool_use", "id": "a", "name": "f", "input": {}})"),
       "messages[0].content[0].type", "of the assistant only"},
      {user_blocks(R"({"type": "tool_result", "tool_use_id": "a"})"), "messages[0].content[0]",
       "no assistant message"},
      {R"("messages": [{"role": "user", "content": "x"}, )" + call +
           R"(, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b"}]}])",
       "messages[2].content[0]", "the result of the call \"b\", which is none of the calls"},
      {R"("messages": [{"role": "user", "content": "x"}, )" + call + "]", "messages",
       "messages[1] has a tool_use"},
      {R"("messages": [{"role": "tool", "content": "x"}])", "messages[0].role", "user, assistant"},
      {R"("messages": [{"role": "user", "content": "x", "name": "n"}])", "messages[0].name",
       "unknown field"},
      {R"("messages": [{"role": "user"}])", "messages[0].content", "missing"},
      {R"("messages": [])", "messages", "not empty"},
      {R"("tools": [{"name": "f"}], )" + kHelloMessages, "tools[0].input_schema", "missing"},
      {R"("tools": [{"name": "f", "input_shema": {}}], )" + kHelloMessages, "tools[0].input_shema",
       "did you mean 'input_schema'"},
      {tool + R"("tool_choice": {"type": "tool", "name": "g"}, )" + kHelloMessages, "tool_choice",
       "\"g\""},
      {tool + R"("tool_choice": {"type": "required"}, )" + kHelloMessages, "tool_choice.type",
       "auto, any, tool or none"},
      {R"("tool_choice": {"type": "any"}, )" + kHelloMessages, "tool_choice", "no tools"},
      {R"("thinking": {"type": "enabled", "budget_tokens": -1}, )" + kHelloMessages,
       "thinking.budget_tokens", "[0, "},
      {R"("thinking": {"type": "disabled", "budget_tokens": 1024}, )" + kHelloMessages,
       "thinking.budget_tokens", "not enabled"},
      {R"("thinking": {"type": "enabled", "display": "some"}, )" + kHelloMessages,
       "thinking.display", "omitted"},
      {R"("thinking": {"type": "often"}, )" + kHelloMessages, "thinking.type", "between_tools"},
      {R"("compaction": {"type": "x"}, )" + kHelloMessages, "compaction", "leave it out"},
      {R"("output_format": {"type": "json_schema", "schema": {}}, "output_config": {"format":
          {"type": "json_schema", "schema": {}}}, )" +
           kHelloMessages,
       "output_format", "both"},
      {R"("tools": [{"type": "web_search_20260318", "name": "web_search"}, {"name": "f", "input_schema": {}}],
          "tool_choice": {"type": "tool", "name": "web_search"}, )" +
           kHelloMessages,
       "tool_choice", "not offered tools of the type \"web_search_20260318\""},
      {R"("tools": [{"type": "bash_20250124"}], )" + kHelloMessages, "tools[0].name", "missing"},
      {R"("thinking": {"type": "enabled"}, "messages": [{"role": "user", "content": "x"},
          {"role": "assistant", "content": "y"}])",
       "thinking", "go on with"},
      {R"("stop_sequence": ["a"], )" + kHelloMessages, "stop_sequence",
       "did you mean 'stop_sequences'"},
      {R"("output_config": {"format": {"type": "json_schema"}}, )" + kHelloMessages,
       "output_config.format.schema", "missing"},
      {R"("output_config": {"effort": "huge"}, )" + kHelloMessages, "output_config.effort",
       "xhigh"},
      {R"("model": "claude", )" + kHelloMessages, "model", "not served"},
  };
}

TEST(MessagesRequest, what_is_not_here_is_refused_by_name) {
  for (const MessagesRefusal& refusal : messages_refusals()) {
    const ApiError error =
        refused(parse_messages_request(messages_body(refusal.fields), messages_model()));
    EXPECT_EQ(error.param, refusal.param) << refusal.fields << "\n" << error.message;
    EXPECT_THAT(error.message, testing::HasSubstr(refusal.says)) << refusal.fields;
    const ApiError of_count =
        refused(parse_count_tokens_request("{" + refusal.fields + "}", messages_model()));
    EXPECT_EQ(of_count.param, refusal.param) << refusal.fields;
  }
}

TEST(MessagesRequest, what_asks_for_nothing_changes_nothing) {
  const std::string fields = R"("context_management": {"edits": [
      {"type": "clear_thinking_20251015", "keep": "all"},
      {"type": "clear_tool_uses_20250919", "trigger": {"type": "input_tokens", "value": 1000}}]},
    "mcp_servers": [{"type": "url", "url": "https://example.org", "name": "x"}], "container": "c",
    "metadata": {"user_id": "u", "more": 1}, "service_tier": "priority", "speed": "fast",
    "cache_control": {"type": "ephemeral", "ttl": "1h"}, "diagnostics": {"a": 1},
    "fallbacks": "default", "inference_geo": "eu", "thinking": {"type": "disabled"},
    "output_config": {"effort": "high", "task_budget": {"type": "tokens", "total": 5}}, )";
  expect_chats_prompt(fields + kHelloMessages, kHelloMessages);
}

TEST(MessagesRequest, an_output_format_in_its_older_place_is_the_same_grammar) {
  const GenerationRequest request = read_messages_body(
      messages_body(R"("output_format": {"type": "json_schema", "schema": {"type": "object"}}, )" +
                    kHelloMessages));
  ASSERT_EQ(request.items.size(), 1U);
  EXPECT_EQ(request.items[0].grammar->text, R"({"type":"object"})");
  EXPECT_EQ(request.items[0].grammar->field, "output_format.schema");
}

TEST(MessagesRequest, thinking_may_be_left_empty) {
  const auto omits = [](const std::string& display) {
    return read_messages_body(messages_body(R"("thinking": {"type": "adaptive")" + display + "}, " +
                                            kHelloMessages))
        .form.omits_thinking;
  };
  EXPECT_TRUE(omits(R"(, "display": "omitted")"));
  EXPECT_FALSE(omits(R"(, "display": "summarized")"));
  EXPECT_FALSE(omits(""));
}

// What the SDKs look for before they send the whole conversation instead.
TEST(MessagesRequest, a_thread_is_refused_in_the_words_that_clients_go_on_by) {
  const ApiError error = refused(parse_messages_request(
      messages_body(R"("thread": {"type": "create"}, )" + kHelloMessages), messages_model()));
  EXPECT_EQ(error.status, 400);
  const json::Value shown =
      json::parse(to_json(error, http::ClientForm::kAnthropic)).value()["error"];
  EXPECT_EQ(json::dump(shown["details"]),
            R"({"error_code":"thread_unsupported_request","unsupported":["thread"]})");
  EXPECT_EQ(read_messages_body(messages_body(R"("thread": null, )" + kHelloMessages)).form.id, "");
  const ApiError other =
      refused(parse_messages_request("{" + kHelloMessages + "}", messages_model()));
  EXPECT_FALSE(json::parse(to_json(other, http::ClientForm::kAnthropic))
                   .value()["error"]
                   .contains("details"));
}

TEST(MessagesRequest, asks_for_max_tokens_and_lowers_it_to_what_the_context_has_left) {
  const ServedModel model = messages_model();
  EXPECT_EQ(refused(parse_messages_request("{" + kHelloMessages + "}", model)).param, "max_tokens");
  const auto item_of = [&](const std::string& max_tokens) {
    return accepted(parse_messages_request(
                        R"({"max_tokens": )" + max_tokens + ", " + kHelloMessages + "}", model))
        .items.at(0);
  };
  const GenerationItem lowered = item_of("200000");
  const int left = model.max_context_tokens - static_cast<int>(lowered.prompt.size());
  EXPECT_EQ(lowered.sampling.max_new_tokens, left);
  EXPECT_TRUE(lowered.is_cut_by_context);
  EXPECT_EQ(item_of("-1").sampling.max_new_tokens, left);
  EXPECT_EQ(item_of(std::to_string(left)).sampling.max_new_tokens, left);
  EXPECT_FALSE(item_of(std::to_string(left)).is_cut_by_context);
  EXPECT_TRUE(item_of(std::to_string(left + 1)).is_cut_by_context);
  EXPECT_EQ(item_of("3").sampling.max_new_tokens, 3);
}

// Claude Code reads the numbers of both with patterns of its own.
TEST(MessagesRequest, says_in_the_words_of_anthropics_api_what_does_not_fit) {
  ServedModel model = messages_model();
  std::string text;
  for (int i = 0; i < 40; ++i) text += "hello ";
  const std::string body =
      R"({"max_tokens": 1000, "messages": [{"role": "user", "content": ")" + text + "\"}]}";
  const int used = accepted(parse_count_tokens_request(body, model));
  const auto error_in = [&](int context) {
    model.max_context_tokens = context;
    return refused(parse_messages_request(body, model));
  };
  const std::string num = std::to_string(used);
  EXPECT_EQ(error_in(used + 1).message,
            "input length and `max_tokens` exceed context limit: " + num + " + 1000 > " +
                std::to_string(used + 1) + ", decrease input length or `max_tokens` and try again");
  EXPECT_EQ(error_in(used).message,
            "prompt is too long: " + num + " tokens > " + std::to_string(used - 1) + " maximum");
  EXPECT_EQ(error_in(used - 1).message,
            "prompt is too long: " + num + " tokens > " + std::to_string(used - 1) + " maximum");
  EXPECT_EQ(error_in(used - 2).code, "context_length_exceeded");
  // So long that it is not even encoded.
  const std::string very_long(100'000, 'a');
  const ApiError longer = refused(parse_messages_request(
      R"({"max_tokens": 1, "messages": [{"role": "user", "content": ")" + very_long + "\"}]}",
      model));
  EXPECT_THAT(longer.message,
              testing::MatchesRegex("prompt is too long: at least [0-9]+ tokens > [0-9]+ maximum"));
}

TEST(MessagesRequest, a_model_without_a_chat_format_has_no_messages) {
  ServedModel model = messages_model();
  model.chat_format.reset();
  model.chat_format_problem = "no template";
  EXPECT_EQ(refused(parse_messages_request(messages_body(kHelloMessages), model)).param,
            "messages");
  EXPECT_EQ(refused(parse_count_tokens_request("{" + kHelloMessages + "}", model)).param,
            "messages");
}

}  // namespace
}  // namespace fathom::api
