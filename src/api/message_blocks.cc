#include "api/message_blocks.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "api/kept_reasoning.h"
#include "api/parts/block_text.h"
#include "api/parts/text_parts.h"
#include "api/parts/unread_parts.h"
#include "api/request_fields.h"
#include "api/tables/field_check.h"
#include "api/tables/messages_fields.h"
#include "base/json.h"
#include "text/tool_schema.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxBlockWordBytes = 64;  // of roles and types
constexpr size_t kMaxCallNameBytes = 256;

// A block as its reader and type. An empty type: a problem.
std::string read_type(FieldReader& block) {
  block.require("type");
  return block.text("type", kMaxBlockWordBytes).value_or("");
}

// An answer's arguments that were no JSON object came as text under a name of their own, and come back so.
std::string arguments_of(const json::Value& input) {
  if (input.size() == 1 && input.contains(kInvalidJsonKey) && input[kInvalidJsonKey].is_string()) {
    return input[kInvalidJsonKey].get<std::string>();
  }
  return text::spaced_json(input);
}

// Text blocks are held to their fields, others read leniently.
void add_block_text(FieldReader& block, const json::Value& value, const std::string& path,
                    bool is_question, JoinedText& joined) {
  const std::string type = read_type(block);
  if (block.problem()) return;
  if (type == "text") return joined.add(read_part_text(block, value, path, text_block_fields()));
  const BlockText read = text_of_block(value);
  if (read.is_unread && is_question) return refuse_unread(block);
  joined.add_block(read.text);
}

// A string, or blocks of text, which are joined.
std::string read_system(FieldReader& reader) {
  static constexpr std::string_view kTypes[] = {"text"};
  return read_text_parts(
      reader, "system", "blocks",
      [&](const json::Value& block, const std::string& path, JoinedText& joined) {
        joined.add(read_typed_part(block, path, kTypes, text_block_fields(), reader.problem()));
      });
}

// The mark that agents' own prompts know for what a system says between the turns.
std::string reminder(const std::string& text) {
  constexpr std::string_view kBegin = "<system-reminder>", kEnd = "</system-reminder>";
  if (text.starts_with(kBegin)) return text;
  return std::string(kBegin) + "\n" + text + "\n" + std::string(kEnd);
}

// The next message's text, behind what was held back for it.
void append_paragraph(std::string& text, std::string_view more) {
  if (!text.empty() && !more.empty()) text += "\n\n";
  text += more;
}

class MessageReader {
 public:
  MessageReader(const ServedModel& model, FieldProblem& problem, PlacedMessages& read)
      : model_(model), problem_(problem), read_(read) {}

  void read(const json::Value& value, const std::string& path, bool is_question) {
    if (!value.is_object()) {
      return problem_.set(broken_rule(path, value, "an object with role and content"));
    }
    FieldReader message(value, path, turn_fields(), problem_);
    message.require("role");
    const std::string role = message.text("role", kMaxBlockWordBytes).value_or("");
    if (problem_) return;
    if (role != "user" && role != "assistant" && role != "system") {
      return message.fail("role", "user, assistant or system");
    }
    message.require("content");
    Turn turn{.role = role, .is_question = is_question};
    read_content(message, turn);
    if (!problem_) take(std::move(turn), path);
  }

  // A reminder behind the last answer is a turn of its own.
  void finish() {
    if (!held_.empty()) add({.role = "user", .content = std::exchange(held_, {})}, held_place_);
  }

 private:
  struct Turn {
    std::string role;
    bool is_question = false;
    bool has_text = false;  // or nothing else either
    JoinedText text{};
    std::vector<text::ToolCall> calls{};
    std::string reasoning{};
  };

  void add(text::Message message, std::string place) {
    read_.messages.push_back(std::move(message));
    read_.places.push_back(std::move(place));
  }

  void read_content(FieldReader& message, Turn& turn) {
    const json::Value* content = message.find("content");
    if (problem_) return;
    turn.has_text = content->is_string() || content->empty();
    if (content->is_string()) return turn.text.add(content->get_ref<const std::string&>());
    if (!content->is_array() || content->size() > kMaxTextParts) {
      return message.fail("content", "a string or an array of at most " +
                                         std::to_string(kMaxTextParts) + " blocks");
    }
    for (size_t i = 0; i < content->size() && !problem_; ++i) {
      read_block((*content)[i], element_path(message.path_of("content"), i), turn);
    }
  }

  void read_block(const json::Value& value, const std::string& path, Turn& turn) {
    if (!value.is_object()) return problem_.set(broken_rule(path, value, "an object with a type"));
    FieldReader block(value, path, problem_);
    const std::string type = read_type(block);
    if (problem_) return;
    if (type == "tool_use" || type == "tool_result") {
      const char* const owner = type == "tool_use" ? "assistant" : "user";
      if (turn.role != owner) {
        return block.fail("type", "in a message of the " + std::string(owner) + " only");
      }
      return type == "tool_use" ? read_tool_use(block, value, path, turn)
                                : read_tool_result(block, value, path);
    }
    if (type == "thinking" || type == "redacted_thinking") {
      return read_thinking_block(block, value, path, turn);
    }
    turn.has_text = true;
    add_block_text(block, value, path, turn.is_question, turn.text);
  }

  // Results have been added already: they come first in a turn, as they answer what stands before it.
  void take(Turn turn, const std::string& path) {
    std::string text = turn.text.take();
    if (turn.role == "system" && has_turns_) return hold(text, path);
    has_turns_ = has_turns_ || turn.role != "system";
    if (turn.role == "assistant") {
      finish();
    } else if (turn.role == "user") {
      if (!turn.has_text) return;  // results alone
      append_paragraph(held_, text);
      text = std::exchange(held_, {});
    }
    text::Message message{.role = turn.role, .content = std::move(text)};
    if (!turn.has_text && !turn.calls.empty()) message.content.reset();
    message.tool_calls = std::move(turn.calls);
    message.reasoning = std::move(turn.reasoning);
    add(std::move(message), path);
  }

  // Behind a user's text at once; behind an answer or results it goes before what the user says next.
  void hold(const std::string& text, const std::string& path) {
    if (text.empty()) return;
    const bool is_behind_user = held_.empty() && read_.messages.back().role == "user";
    if (is_behind_user) return append_paragraph(*read_.messages.back().content, reminder(text));
    append_paragraph(held_, reminder(text));
    held_place_ = path;
  }

  // What is redacted cannot be read; what was omitted stands in the signature.
  void read_thinking_block(FieldReader& block, const json::Value& value, const std::string& path,
                           Turn& turn) {
    const bool is_plain = json::is_text(value["type"], "thinking");
    check_names(value, path, is_plain ? thinking_block_fields() : redacted_block_fields(),
                problem_);
    for (const char* key : {"thinking", "signature", "data"}) {
      const json::Value* text = block.find(key);
      if (text != nullptr && !text->is_string()) block.fail(key, "a string");
    }
    if (!is_plain || turn.role != "assistant") return;
    const std::string thoughts = block.text("thinking", SIZE_MAX).value_or("");
    const std::optional<std::string> signature = block.text("signature", SIZE_MAX);
    turn.reasoning += thoughts.empty() && signature ? kept_reasoning(*signature) : thoughts;
  }

  void read_tool_use(FieldReader& block, const json::Value& value, const std::string& path,
                     Turn& turn) {
    check_names(value, path, tool_use_block_fields(), problem_);
    for (const char* key : {"id", "name", "input"}) block.require(key);
    const json::Value* input = block.object("input");
    const auto max_calls = static_cast<size_t>(model_.limits.max_tools);
    if (turn.calls.size() == max_calls) {
      block.fail_with("type", path + " is one tool_use too many, a message may have at most " +
                                  std::to_string(max_calls));
    }
    text::ToolCall call{.id = block.text("id", kMaxCallNameBytes).value_or(""),
                        .name = block.text("name", kMaxCallNameBytes).value_or(""),
                        .arguments = {}};
    if (problem_) return;
    call.arguments = arguments_of(*input);
    turn.calls.push_back(std::move(call));
  }

  void read_tool_result(FieldReader& block, const json::Value& value, const std::string& path) {
    check_names(value, path, tool_result_block_fields(), problem_);
    block.require("tool_use_id");
    text::Message result{.role = "tool", .content = read_result_text(block)};
    result.tool_call_id = block.text("tool_use_id", kMaxCallNameBytes).value_or("");
    // The templates have no mark for it: what went wrong is in the content, or this says that something did.
    const bool is_error = block.boolean("is_error").value_or(false);
    if (is_error && result.content->empty()) result.content = "error";
    if (!problem_) add(std::move(result), path);
  }

  std::string read_result_text(FieldReader& result) {
    return read_text_parts(
        result, "content", "blocks",
        [&](const json::Value& value, const std::string& path, JoinedText& joined) {
          FieldReader block(value, path, problem_);
          add_block_text(block, value, path, /*is_question=*/false, joined);
        });
  }

  const ServedModel& model_;
  FieldProblem& problem_;
  PlacedMessages& read_;
  bool has_turns_ = false;         // of a user or an assistant
  std::string held_, held_place_;  // reminders that wait for the user's next turn
};

// Of a message that may be anything.
Speaker speaker_of_message(const json::Value& message) {
  if (!message.is_object() || !message.contains("role")) return Speaker::kOther;
  if (json::is_text(message["role"], "assistant")) return Speaker::kModel;
  if (!json::is_text(message["role"], "user")) return Speaker::kOther;
  const auto content = message.find("content");
  const bool has_result = content != message.end() && content->is_array() &&
                          std::ranges::any_of(*content, [](const json::Value& block) {
                            return block.is_object() && block.contains("type") &&
                                   json::is_text(block["type"], "tool_result");
                          });
  return has_result ? Speaker::kTool : Speaker::kPerson;
}

}  // namespace

PlacedMessages read_block_messages(FieldReader& reader, const ServedModel& model) {
  PlacedMessages read;
  if (reader.find("system") != nullptr) {
    read.messages.push_back({.role = "system", .content = read_system(reader)});
    read.places.emplace_back("system");
  }
  const auto max_messages = static_cast<size_t>(model.limits.max_messages);
  const json::Value* list = reader.array("messages", max_messages);
  reader.require("messages");
  if (reader.problem()) return read;
  if (list->empty()) reader.fail("messages", "not empty");
  MessageReader messages(model, reader.problem(), read);
  const size_t question =
      newest_question(list->size(), [&](size_t i) { return speaker_of_message((*list)[i]); });
  for (size_t i = 0; i < list->size() && !reader.problem(); ++i) {
    messages.read((*list)[i], element_path("messages", i), i == question);
  }
  if (!reader.problem()) messages.finish();
  return read;
}

}  // namespace fathom::api
