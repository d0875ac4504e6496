#include "api/conversation_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "api/custom_tools.h"
#include "api/legacy_functions.h"
#include "api/parts/text_parts.h"
#include "api/parts/unread_parts.h"
#include "api/prompt_fields.h"
#include "api/request_fields.h"
#include "api/tables/custom_tool_fields.h"
#include "api/tables/endpoint_fields.h"
#include "api/tables/field_check.h"
#include "base/json.h"
#include "text/chat_encoder.h"
#include "text/chat_markup.h"
#include "text/tool_schema.h"

namespace fathom::api {
namespace {

constexpr size_t kMaxRoleBytes = 64;

// Whose message it is, and where.
struct MessagePlace {
  std::string path;
  bool is_last = false;
  bool is_question = false;  // the newest: what cannot be read in it is refused
};

std::string read_text_or_refusal(FieldReader& part, bool is_refusal) {
  const char* const key = is_refusal ? "refusal" : "text";
  const std::optional<std::string> text = part.text(key, SIZE_MAX);
  if (!text) part.fail_missing(key);
  const char* const other = is_refusal ? "text" : "refusal";
  if (part.find(other) != nullptr) {
    part.fail_with(other, part.path_of(other) + " is set, but the type is another");
  }
  return text.value_or("");
}

// Other APIs' names of a text, and of what an earlier answer thought.
bool is_text_part(std::string_view type) {
  return type == "text" || type == "refusal" || type == "input_text" || type == "output_text";
}
bool is_thought_part(std::string_view type) {
  return type == "thinking" || type == "reasoning" || type == "redacted_thinking";
}

void read_content_part(const json::Value& value, const std::string& path, bool is_question,
                       FieldProblem& problem, JoinedText& joined) {
  FieldReader part(value, path, problem);
  const std::optional<std::string> type = part.text("type", kMaxRoleBytes);
  if (!type || is_text_part(*type)) check_names(value, path, content_part_fields(), problem);
  if (!type) return part.fail_missing("type");
  if (is_text_part(*type)) return joined.add(read_text_or_refusal(part, type == "refusal"));
  if (is_thought_part(*type)) return;
  if (is_question) return refuse_unread(part);
  joined.add_block(bracketed(*type));
}

std::optional<std::string> read_content(FieldReader& message, bool is_question) {
  if (message.find("content") == nullptr) return std::nullopt;
  return read_text_parts(
      message, "content", "parts",
      [&](const json::Value& value, const std::string& path, JoinedText& joined) {
        read_content_part(value, path, is_question, message.problem(), joined);
      });
}

text::ToolCall read_custom_call(FieldReader& call, const json::Value& value) {
  FieldReader custom(value, call.path_of("custom"), called_custom_fields(), call.problem());
  return {.id = call.text("id", kMaxNameBytes).value_or(""),
          .name = custom.text("name", kMaxNameBytes).value_or(""),
          .arguments = arguments_of_input(custom.text("input", SIZE_MAX).value_or(""))};
}

text::ToolCall read_call(const json::Value& value, const std::string& path, FieldProblem& problem) {
  if (!value.is_object()) {
    problem.set(broken_rule(path, value, "an object"));
    return {};
  }
  FieldReader call(value, path, call_fields(), problem);
  const std::optional<std::string> type = call.text("type", kMaxRoleBytes);
  if (type && type != "function" && type != "custom") call.fail("type", "function or custom");
  const bool is_custom = type == "custom";
  const char* const key = is_custom ? "custom" : "function";
  const char* const other = is_custom ? "function" : "custom";
  if (call.find(other) != nullptr) {
    call.fail_with(other, call.path_of(other) + " belongs to another type of calls");
  }
  const json::Value* inner = call.object(key);
  if (inner == nullptr) {
    call.fail_missing(key);
    return {};
  }
  if (is_custom) return read_custom_call(call, *inner);
  FieldReader function(*inner, call.path_of("function"), called_function_fields(), problem);
  return {.id = call.text("id", kMaxNameBytes).value_or(""),
          .name = function.text("name", kMaxNameBytes).value_or(""),
          .arguments = read_arguments(function)};
}

void check_role(FieldReader& message, const std::string& role) {
  static constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                                "assistant", "tool",      "function"};
  if (std::ranges::find(kRoles, role) != std::ranges::end(kRoles)) return;
  if (message.find("role") == nullptr) {
    message.fail_missing("role");
  } else {
    message.fail("role", "system, developer, user, assistant, tool or function");
  }
}

// What an earlier answer thought, under either of its names.
void read_thoughts(FieldReader& message, text::Message& result) {
  std::optional<std::string> thoughts = message.text("reasoning", SIZE_MAX);
  if (auto text = message.text("reasoning_content", SIZE_MAX)) thoughts = std::move(text);
  if (thoughts && result.role == "assistant") result.reasoning = std::move(*thoughts);
}

// An assistant that refused has said so in place of content.
void read_refusal(FieldReader& message, text::Message& result) {
  const std::optional<std::string> refusal = message.text("refusal", SIZE_MAX);
  if (!refusal || refusal->empty()) return;
  if (result.role != "assistant" || (result.content && !result.content->empty())) {
    return message.fail_with("refusal", message.path_of("refusal") +
                                            " is set, must be an assistant's, in place of content");
  }
  result.content = *refusal;
}

// "prefix": true leaves the last message open, so it can be nowhere else, and nothing can stand before the text.
void check_prefix(FieldReader& message, const text::Message& result, bool is_last) {
  if (!message.boolean("prefix").value_or(false)) return;
  if (!is_last || result.role != "assistant") {
    message.fail("prefix", "false but in the last message, an assistant's");
  }
  if (!result.reasoning.empty()) {
    message.fail("reasoning_content", "empty beside prefix: reasoning is not continued");
  }
}

text::Message read_message(const json::Value& value, const MessagePlace& place,
                           const ServedModel& model, LegacyCalls& legacy, FieldProblem& problem) {
  text::Message result;
  if (!value.is_object()) {
    problem.set(broken_rule(place.path, value, "an object with role and content"));
    return result;
  }
  FieldReader message(value, place.path, message_fields(), problem);
  result.role = message.text("role", kMaxRoleBytes).value_or("");
  check_role(message, result.role);
  result.content = read_content(message, place.is_question);
  const auto max_calls = static_cast<size_t>(model.limits.max_tools);
  if (const json::Value* calls = message.array("tool_calls", max_calls)) {
    for (size_t i = 0; i < calls->size() && !problem; ++i) {
      result.tool_calls.push_back(
          read_call((*calls)[i], element_path(message.path_of("tool_calls"), i), problem));
    }
  }
  result.tool_call_id = message.text("tool_call_id", kMaxNameBytes).value_or("");
  result.name = message.text("name", kMaxNameBytes).value_or("");
  read_thoughts(message, result);
  read_refusal(message, result);
  check_prefix(message, result, place.is_last);
  legacy.take(message, result);
  // An answer or a result without text; a person's message must say something.
  const bool may_be_empty = result.role == "assistant" || result.role == "tool";
  if (!result.content && result.tool_calls.empty()) {
    if (!may_be_empty) message.fail_missing("content");
    result.content = "";
  }
  return result;
}

// Of a message that may be anything.
Speaker speaker_of(const json::Value& message) {
  if (!message.is_object() || !message.contains("role")) return Speaker::kOther;
  const json::Value& role = message["role"];
  if (json::is_text(role, "user")) return Speaker::kPerson;
  if (json::is_text(role, "assistant")) return Speaker::kModel;
  const bool is_result = json::is_text(role, "tool") || json::is_text(role, "function");
  return is_result ? Speaker::kTool : Speaker::kOther;
}

json::Value read_wrapped_custom_tool(const json::Value& value, const std::string& path,
                                     const ServedModel& model, FieldProblem& problem) {
  FieldReader tool(value, path, tool_fields(), problem);
  if (tool.find("function") != nullptr) {
    tool.fail_with("function", tool.path_of("function") + " belongs to the type function");
  }
  const json::Value* custom = tool.object("custom");
  if (custom == nullptr) {
    tool.fail_missing("custom");
    return {};
  }
  return read_custom_tool(*custom, tool.path_of("custom"), model, problem);
}

// The names in a tool that text::validate_tools() has accepted, and what it leaves open.
void check_tool(const json::Value& value, const std::string& path, FieldProblem& problem) {
  FieldReader tool(value, path, tool_fields(), problem);
  if (tool.find("custom") != nullptr) {
    tool.fail_with("custom", tool.path_of("custom") + " belongs to the type custom");
  }
  tool.boolean("strict");
  const json::Value* wrapped = tool.object("function");
  if (wrapped == nullptr) return;
  FieldReader function(*wrapped, tool.path_of("function"), function_fields(), problem);
  function.boolean("strict");
}

// The error lines of the text module begin with the place: "messages[1].tool_calls[0]: ...". Without one it is `whole`.
std::string place_of(const std::string& message, const std::string& whole) {
  const size_t end = message.find(": ");
  const bool has_place = message.starts_with("messages[") || message.starts_with("tools");
  return has_place && end != std::string::npos ? message.substr(0, end) : whole;
}

// The place in the body of what stands at "messages[7].tool_calls[0]" of the conversation.
std::string moved(const std::string& place, const std::vector<std::string>& places) {
  constexpr std::string_view kBegin = "messages[";
  if (!place.starts_with(kBegin)) return place;
  size_t message_idx = places.size();
  std::from_chars(place.data() + kBegin.size(), place.data() + place.size(), message_idx);
  return message_idx < places.size() ? places[message_idx] : place;
}

void set_text_problem(const Error& error, const std::string& whole,
                      const std::vector<std::string>* places, FieldProblem& problem) {
  // They may quote a value of the request, which may be as long as the body.
  constexpr size_t kMaxMessageBytes = 512;
  std::string place = place_of(error.message, whole);
  std::string message = error.message.substr(0, kMaxMessageBytes);
  if (places != nullptr && message.starts_with(place)) {
    const std::string there = moved(place, *places);
    message.replace(0, place.size(), there);
    place = there;
  }
  problem.set(invalid_parameter(std::move(place), std::move(message)));
}

// How a format's answers reason.
enum class Reasoning { kNever, kAlways, kSwitched };

Reasoning reasoning_of(text::ChatFormat format) {
  switch (format) {
    case text::ChatFormat::kR1:
    case text::ChatFormat::kR1_0528:
    case text::ChatFormat::kR1Tools:
      return Reasoning::kAlways;
    case text::ChatFormat::kV31:
    case text::ChatFormat::kV32:
      return Reasoning::kSwitched;
    default:
      return Reasoning::kNever;
  }
}

void set_switch(FieldReader& reader, std::string_view key, std::optional<bool> on,
                ThinkingSwitch& state) {
  if (!on) return;
  if (state.on && *state.on != *on) {
    reader.fail_with(key, reader.path_of(key) + " and " + state.field + " contradict each other");
  }
  state = {.field = reader.path_of(key), .on = on};
}

void read_template_kwargs(FieldReader& reader, const ServedModel& model, ThinkingSwitch& state) {
  const json::Value* kwargs = reader.object("chat_template_kwargs");
  if (kwargs == nullptr) return;
  FieldReader inner(*kwargs, reader.path_of("chat_template_kwargs"), template_kwargs_fields(),
                    reader.problem());
  set_switch(inner, "thinking", inner.boolean("thinking"), state);
  set_switch(inner, "enable_thinking", inner.boolean("enable_thinking"), state);
  read_effort(inner, "reasoning_effort", model, state);
}

// {"type": "enabled" | "disabled", "budget_tokens"}, or true or false.
void read_thinking_object(FieldReader& reader, ThinkingSwitch& state, BudgetField& budget) {
  const json::Value* value = reader.find("thinking");
  if (value == nullptr) return;
  if (value->is_boolean()) return set_switch(reader, "thinking", value->get<bool>(), state);
  if (!value->is_object()) return reader.fail("thinking", "an object with a type, true or false");
  FieldReader inner(*value, reader.path_of("thinking"), thinking_fields(), reader.problem());
  const std::optional<std::string> type = inner.text("type", kMaxRoleBytes);
  if (!type) return inner.fail_missing("type");
  if (type != "enabled" && type != "disabled") return inner.fail("type", "enabled or disabled");
  set_switch(inner, "type", type == "enabled", state);
  read_budget(inner, "budget_tokens", 0, budget);
  if (type == "disabled" && inner.find("budget_tokens") != nullptr) {
    inner.fail_with("budget_tokens",
                    inner.path_of("budget_tokens") + " is set, but the type is disabled");
  }
}

// A budget asks for reasoning, as OpenRouter has it.
void read_reasoning(FieldReader& reader, const ServedModel& model, ThinkingSwitch& state,
                    BudgetField& budget) {
  const json::Value* value = reader.object("reasoning");
  if (value == nullptr) return;
  FieldReader inner(*value, reader.path_of("reasoning"), reasoning_fields(), reader.problem());
  set_switch(inner, "enabled", inner.boolean("enabled"), state);
  inner.boolean("exclude");
  read_effort(inner, "effort", model, state);
  read_budget(inner, "max_tokens", 0, budget);
  const bool has_budget = inner.find("max_tokens") != nullptr;
  if (has_budget && has_thinking_switch(model)) set_switch(inner, "max_tokens", true, state);
}

// Ollama's: true, false or a level.
void read_think(FieldReader& reader, const ServedModel& model, ThinkingSwitch& state) {
  const json::Value* value = reader.find("think");
  if (value == nullptr) return;
  if (value->is_boolean()) return set_switch(reader, "think", value->get<bool>(), state);
  read_effort(reader, "think", model, state);
}

bool is_turn_end(const text::Segment& segment) {
  return segment.is_markup &&
         (segment.text == text::markup::kEos || segment.text == text::markup::kImEnd);
}

void check_can_continue(const text::Conversation& chat, FieldProblem& problem) {
  const bool ends_with_answer = !chat.messages.empty() &&
                                chat.messages.back().role == "assistant" &&
                                chat.messages.back().tool_calls.empty();
  if (ends_with_answer) return;
  problem.set(invalid_parameter("continue_final_message",
                                "continue_final_message is true, but the last message is not an "
                                "assistant's with content and without tool_calls"));
}

// Returns where each message stands in the body; nothing: message i at messages[i].
std::vector<std::string> bind_calls(text::Conversation& chat, text::ChatFormat format,
                                    const ChatRendering& rendering, FieldProblem& problem) {
  const std::vector<std::string>* const sent = rendering.places;
  std::vector<size_t> order;
  const Status bound = text::bind_results(
      chat.messages,
      {.place = rendering.result_place,
       .keeps_order = text::traits(format).shows_call_ids,
       .may_end_in_calls = !chat.add_generation_prompt && !rendering.continues_final},
      order);
  if (!bound) set_text_problem(bound.error(), rendering.prompt_field, sent, problem);
  std::vector<std::string> places;
  if (sent == nullptr && std::ranges::is_sorted(order)) return places;
  for (const size_t i : order) {
    places.push_back(sent != nullptr ? (*sent)[i] : element_path("messages", i));
  }
  return places;
}

}  // namespace

std::string read_arguments(FieldReader& function) {
  const json::Value* arguments = function.find("arguments");
  if (arguments == nullptr) return "{}";
  if (arguments->is_object()) return text::spaced_json(*arguments);
  std::string text = function.text("arguments", SIZE_MAX).value_or("");
  return text.empty() ? "{}" : text;
}

std::vector<text::Message> read_messages(FieldReader& reader, const ServedModel& model) {
  std::vector<text::Message> messages;
  LegacyCalls legacy;
  const json::Value* list =
      reader.array("messages", static_cast<size_t>(model.limits.max_messages));
  if (reader.problem()) return messages;
  if (list == nullptr) {
    reader.fail_with("messages", "messages is missing");
    return messages;
  }
  if (list->empty()) reader.fail("messages", "not empty");
  const size_t question =
      newest_question(list->size(), [&](size_t i) { return speaker_of((*list)[i]); });
  for (size_t i = 0; i < list->size() && !reader.problem(); ++i) {
    const MessagePlace place{.path = element_path(reader.path_of("messages"), i),
                             .is_last = i + 1 == list->size(),
                             .is_question = i == question};
    messages.push_back(read_message((*list)[i], place, model, legacy, reader.problem()));
  }
  return messages;
}

json::Value read_offered_tools(FieldReader& reader, const ServedModel& model) {
  return has_functions(reader) ? read_functions(reader, model) : read_tools(reader, model);
}

json::Value read_tools(FieldReader& reader, const ServedModel& model) {
  const json::Value* tools = reader.array("tools", static_cast<size_t>(model.limits.max_tools));
  if (tools == nullptr) return json::Value::array();
  json::Value read = *tools;
  for (size_t i = 0; i < read.size() && !reader.problem(); ++i) {
    if (!read[i].is_object() || !is_custom_tool(read[i])) continue;
    read[i] = read_wrapped_custom_tool(read[i], element_path(reader.path_of("tools"), i), model,
                                       reader.problem());
  }
  if (reader.problem()) return json::Value::array();
  if (const Status status = text::validate_tools(shown_tools(read)); !status) {
    set_text_problem(status.error(), "tools", nullptr, reader.problem());
    return json::Value::array();
  }
  for (size_t i = 0; i < read.size() && !reader.problem(); ++i) {
    if (is_custom_tool(read[i])) continue;
    check_tool(read[i], element_path(reader.path_of("tools"), i), reader.problem());
  }
  return read;
}

bool read_continuation(FieldReader& reader) {
  const bool is_asked = reader.boolean("continue_final_message").value_or(false);
  const json::Value* messages = reader.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty()) return is_asked;
  const json::Value& last = messages->back();
  const auto prefix = last.is_object() ? last.find("prefix") : last.end();
  return is_asked || (prefix != last.end() && prefix->is_boolean() && prefix->get<bool>());
}

Thinking read_thinking(FieldReader& reader, const ServedModel& model) {
  ThinkingSwitch state;
  BudgetField budget;
  read_thinking_object(reader, state, budget);
  set_switch(reader, "enable_thinking", reader.boolean("enable_thinking"), state);
  read_template_kwargs(reader, model, state);
  read_reasoning(reader, model, state, budget);
  read_effort(reader, "reasoning_effort", model, state);
  read_think(reader, model, state);
  for (const char* key :
       {"thinking_token_budget", "thinking_budget", "reasoning_budget", "max_thinking_tokens"}) {
    read_budget(reader, key, -1, budget);
  }
  return {.on = resolve_thinking(state, model, reader.problem()), .budget = budget.tokens};
}

void read_budget(FieldReader& reader, std::string_view key, int min, BudgetField& budget) {
  const std::optional<int> tokens = reader.integer(key, {min, std::numeric_limits<int>::max()});
  if (!tokens || *tokens < 0) return;
  if (budget.tokens && *budget.tokens != *tokens) {
    reader.fail_with(key, reader.path_of(key) + " is " + std::to_string(*tokens) + " and " +
                              budget.field + " is " + std::to_string(*budget.tokens) +
                              ", must be the same");
  }
  budget = {.field = reader.path_of(key), .tokens = tokens};
}

bool resolve_thinking(const ThinkingSwitch& state, const ServedModel& model,
                      FieldProblem& problem) {
  const Reasoning reasoning = reasoning_of(model.chat_format.value_or(text::ChatFormat::kV3));
  if (!state.on) return model.thinks_by_default;
  if (*state.on && reasoning == Reasoning::kNever) {
    problem.set(invalid_parameter(
        state.field, state.field + " asks for reasoning, but this model does not reason"));
  }
  if (!*state.on && reasoning == Reasoning::kAlways) {
    problem.set(invalid_parameter(
        state.field, state.field + " asks for no reasoning, but this model always reasons"));
  }
  return *state.on;
}

std::string_view thinking_by_default(const ServedModel& model) {
  switch (reasoning_of(model.chat_format.value_or(text::ChatFormat::kV3))) {
    case Reasoning::kNever:
      return "never";
    case Reasoning::kAlways:
      return "always";
    case Reasoning::kSwitched:
      break;
  }
  return model.thinks_by_default ? "on" : "off";
}

bool has_thinking_switch(const ServedModel& model) {
  return model.chat_format && reasoning_of(*model.chat_format) == Reasoning::kSwitched;
}

void read_effort(FieldReader& reader, std::string_view key, const ServedModel& model,
                 ThinkingSwitch& state) {
  const std::optional<std::string> effort = reader.text(key, kMaxRoleBytes);
  if (!effort) return;
  if (!is_reasoning_effort(*effort)) return reader.fail(key, reasoning_efforts());
  if (effort == "none") {
    set_switch(reader, key, false, state);
  } else if (has_thinking_switch(model)) {
    set_switch(reader, key, true, state);
  }
}

bool is_reasoning_effort(std::string_view level) {
  static constexpr std::string_view kLevels[] = {"none", "minimal", "low", "medium",
                                                 "high", "xhigh",   "max"};
  return std::ranges::find(kLevels, level) != std::ranges::end(kLevels);
}

std::string_view reasoning_efforts() { return "none, minimal, low, medium, high, xhigh or max"; }

ChatPrompt render_chat(text::Conversation& chat, const ChatRendering& rendering,
                       const ServedModel& model, FieldProblem& problem) {
  if (rendering.continues_final) check_can_continue(chat, problem);
  if (problem) return {};
  const text::ChatFormat format = text::format_for(*model.chat_format, chat);
  const std::vector<std::string> places = bind_calls(chat, format, rendering, problem);
  if (problem) return {};
  Result<std::vector<text::Segment>> rendered = text::render(format, chat);
  if (!rendered) {
    set_text_problem(rendered.error(), rendering.prompt_field, places.empty() ? nullptr : &places,
                     problem);
    return {};
  }
  std::vector<text::Segment>& segments = *rendered;
  if (rendering.continues_final && !segments.empty() && is_turn_end(segments.back()))
    segments.pop_back();
  size_t num_bytes = 0;
  for (const text::Segment& segment : segments) num_bytes += segment.text.size();
  check_text_fits(num_bytes, rendering.prompt_field, model, problem);
  if (problem) return {};
  return {.ids = text::encode(segments, *model.tokenizer),
          .format = format,
          .starts_in_reasoning = text::opens_reasoning(segments)};
}

}  // namespace fathom::api
