// Pictures, documents and other parts that a text model cannot read, in all three chat APIs: named in brackets in the
// history and in results, refused in the newest question.

#include "api/parts/unread_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/chat_request.h"
#include "api/messages_request.h"
#include "api/parts/block_text.h"
#include "api/responses/responses_request.h"
#include "base/json.h"
#include "tests/api/demo_served_model.h"

namespace fathom::api {
namespace {

using testing::HasSubstr, testing::Not;
using tests::accepted, tests::demo_served_model, tests::refused;

std::string prompt_of(const Parsed<GenerationRequest>& parsed) {
  const GenerationRequest request = accepted(parsed);
  if (request.items.empty()) return "";
  return demo_served_model().tokenizer->decode(request.items[0].prompt, false);
}

ServedModel roomy_model() { return demo_served_model(8192); }

std::string chat(const std::string& messages) { return R"({"messages": [)" + messages + "]}"; }
std::string rendered_chat(const std::string& messages) {
  return prompt_of(parse_chat_request(chat(messages), roomy_model()));
}
std::string anthropic(const std::string& messages) {
  return R"({"max_tokens": 8, "messages": [)" + messages + "]}";
}
std::string messages_prompt_text(const std::string& messages) {
  return prompt_of(parse_messages_request(anthropic(messages), roomy_model()));
}
std::string responses(const std::string& items) { return R"({"input": [)" + items + "]}"; }
Parsed<GenerationRequest> read_responses(const std::string& items) {
  static const StoredPast no_past;
  return parse_responses_request(responses(items), roomy_model(), no_past);
}

const std::string kChatPicture = R"({"type": "image_url", "image_url": {"url": "data:"}})";
const std::string kPicture =
    R"({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}})";
const std::string kItemPicture =
    R"({"type": "input_image", "image_url": "data:", "detail": "low"})";

TEST(UnreadParts, a_picture_in_the_newest_question_is_refused) {
  const std::string in_chat = R"({"role": "user", "content": [)" + kChatPicture + "]}";
  const std::string in_messages = R"({"role": "user", "content": [)" + kPicture + "]}";
  const std::string in_items = R"({"role": "user", "content": [)" + kItemPicture + "]}";
  const std::string system = R"(, {"role": "system", "content": "Be kind."})";
  for (const std::string& behind : {std::string(), system}) {
    const ApiError of_chat = refused(parse_chat_request(chat(in_chat + behind), roomy_model()));
    EXPECT_EQ(of_chat.param, "messages[0].content[0].type");
    EXPECT_THAT(of_chat.message, HasSubstr("must be text: this model reads no pictures"));
    EXPECT_EQ(refused(parse_messages_request(anthropic(in_messages + behind), roomy_model())).param,
              "messages[0].content[0].type");
    EXPECT_EQ(refused(read_responses(in_items + behind)).param, "input[0].content[0].type");
  }
}

TEST(UnreadParts, are_named_in_an_older_question) {
  const auto turns = [](const std::string& picture, const std::string& text_type) {
    return R"({"role": "user", "content": [{"type": ")" + text_type + R"(", "text": "Look"}, )" +
           picture + R"(]}, {"role": "assistant", "content": "Nice."},
           {"role": "user", "content": "Thanks"})";
  };
  EXPECT_THAT(rendered_chat(turns(kChatPicture, "text")), HasSubstr("Look\n[image]<"));
  EXPECT_THAT(messages_prompt_text(turns(kPicture, "text")), HasSubstr("Look\n[image]<"));
  EXPECT_THAT(prompt_of(read_responses(turns(kItemPicture, "input_text"))),
              HasSubstr("Look\n[image]<"));
}

// Who was refused may ask again without it, though the client keeps the message.
TEST(UnreadParts, a_question_behind_the_refused_one_goes_through) {
  const std::string again = R"(, {"role": "user", "content": "Never mind."})";
  EXPECT_THAT(rendered_chat(R"({"role": "user", "content": [)" + kChatPicture + "]}" + again),
              HasSubstr("[image]"));
  EXPECT_THAT(messages_prompt_text(R"({"role": "user", "content": [)" + kPicture + "]}" + again),
              HasSubstr("[image]"));
}

TEST(UnreadParts, are_named_in_a_tools_result) {
  EXPECT_THAT(rendered_chat(R"({"role": "user", "content": "Look"},
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "see", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "seen:"}, )" +
                            kChatPicture + "]}"),
              HasSubstr("seen:\n[image]"));
  EXPECT_THAT(messages_prompt_text(R"({"role": "user", "content": "Look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "see", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [)" +
                                   kPicture + R"(, {"type": "text", "text": "seen"}]}, )" +
                                   kPicture + "]}"),
              HasSubstr("[image]\nseen"));
  EXPECT_THAT(
      prompt_of(read_responses(R"({"role": "user", "content": "Look"},
        {"type": "function_call", "call_id": "a", "name": "see", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "seen:"}, )" +
                               kItemPicture + R"(, {"type": "input_file", "file_id": "f"}]})")),
      HasSubstr("seen:\n[image]\n[file]"));
}

TEST(UnreadParts, what_an_earlier_answer_thought_is_left_out_of_a_chat) {
  const std::string prompt = rendered_chat(
      R"({"role": "user", "content": [{"type": "input_text", "text": "a"}]},
         {"role": "assistant", "content": [{"type": "thinking", "thinking": "secret"},
           {"type": "reasoning", "text": "secret"}, {"type": "output_text", "text": "b"}]},
         {"role": "user", "content": "c"})");
  EXPECT_THAT(prompt, Not(HasSubstr("secret")));
  EXPECT_THAT(prompt, HasSubstr("b<"));
}

struct BlockCase {
  std::string block, text;
  bool is_unread = false;
};

TEST(UnreadParts, blocks_of_other_servers_have_a_text) {
  const std::vector<BlockCase> cases = {
      {R"({"type": "redacted_thinking", "data": "x"})", ""},
      {R"({"type": "fallback", "from": {}, "to": {}})", ""},
      {R"({"type": "image"})", "[image]", true},
      {R"({"type": "container_upload", "file_id": "f"})", "[file]", true},
      {R"({"type": "document", "title": "Plan", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVB"}})",
       "[document: Plan]", true},
      {R"({"type": "document", "title": "Plan", "source": {"type": "text", "media_type": "text/plain", "data": "step"}})",
       "Plan\nstep"},
      {R"({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a"},
          {"type": "image"}, {"type": "text", "text": "b"}]}})",
       "a\n[image]\nb"},
      {R"({"type": "search_result", "title": "T", "source": "S", "content": [{"type": "text", "text": "x"}]})",
       "T\nS\nx"},
      {R"({"type": "tool_reference", "tool_name": "Grep"})", "[tool_reference: Grep]"},
      {R"({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}})",
       "[server_tool_use: web_search]", true},
      {R"({"type": "web_search_tool_result", "tool_use_id": "s", "content": [
          {"type": "web_search_result", "title": "Oslo", "url": "u", "encrypted_content": "zzz"}]})",
       "[web_search_tool_result]", true},
      {R"({"type": "mcp_tool_use", "id": "m", "name": "look", "server_name": "s", "input": {}})",
       "[mcp_tool_use: look]", true},
      {R"({"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "found"}]})",
       "found"},
      {R"({"type": "mcp_tool_result", "tool_use_id": "m", "content": "found"})", "found"},
      {R"({"type": "bash_code_execution_tool_result", "content": {"type": "bash_code_execution_result",
          "stdout": "out", "stderr": "", "return_code": 0, "content": []}})",
       "out"},
      {R"({"type": "compaction", "content": "So far: x"})", "So far: x"},
      {R"({"type": "compaction", "content": null})", "[compaction]", true},
      {R"({"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Grep"}})",
       "[tool_removal: Grep]", true},
      {R"({"type": "of_tomorrow", "anything": [1, {"a": []}], "content": [[["x"]], 5, null]})",
       "[of_tomorrow]", true},
      {R"({"type": "of_tomorrow", "text": "words"})", "words"},
      {R"({"content": {"content": {"content": {"content": {"content": {"content": "deep"}}}}}})",
       "[]", true},
  };
  for (const BlockCase& one : cases) {
    const BlockText read = text_of_block(json::parse(one.block).value());
    EXPECT_EQ(read.text, one.text) << one.block;
    EXPECT_EQ(read.is_unread, one.is_unread) << one.block;
  }
}

TEST(UnreadParts, a_conversation_goes_on_with_blocks_of_other_servers) {
  const std::string prompt = messages_prompt_text(
      R"({"role": "user", "content": "Weather?"},
         {"role": "assistant", "content": [
           {"type": "thinking", "thinking": "secret", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
           {"type": "text", "text": "I search."},
           {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}, "caller": {"type": "direct"}},
           {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
           {"type": "text", "text": "Rain.", "citations": [{"type": "web_search_result_location"}]}]},
         {"role": "user", "content": "And now?"})");
  EXPECT_THAT(
      prompt,
      HasSubstr("I search.\n[server_tool_use: web_search]\n[web_search_tool_result]\nRain."));
  EXPECT_THAT(prompt, Not(HasSubstr("secret")));
}

TEST(UnreadParts, a_name_from_a_client_stays_on_one_line) {
  EXPECT_EQ(bracketed("image_url"), "[image]");
  EXPECT_EQ(bracketed("x", "a\nb"), "[x: a\\nb]");
  EXPECT_LT(bracketed(std::string(5000, 'x'), std::string(5000, 'y')).size(), 200U);
}

TEST(UnreadParts, results_beside_a_picture_make_it_no_question) {
  using enum Speaker;
  const auto of = [](std::vector<Speaker> speakers) {
    return newest_question(speakers.size(), [&](size_t i) { return speakers[i]; });
  };
  EXPECT_EQ(of({}), std::string::npos);
  EXPECT_EQ(of({kPerson}), 0U);
  EXPECT_EQ(of({kPerson, kPerson, kOther}), 1U);
  EXPECT_EQ(of({kPerson, kModel}), std::string::npos);
  EXPECT_EQ(of({kPerson, kModel, kPerson}), 2U);
  EXPECT_EQ(of({kPerson, kModel, kTool, kPerson}), std::string::npos);
  EXPECT_EQ(of({kPerson, kModel, kTool, kModel, kPerson}), 4U);
}

}  // namespace
}  // namespace fathom::api
