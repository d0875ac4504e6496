#include "api/tables/response_item_fields.h"

#include "api/tables/custom_tool_fields.h"
#include "api/tables/field_groups.h"

namespace fathom::api {
namespace {

constexpr std::string_view kNotRead = "of the answer that it came from, not read";
constexpr std::string_view kCaller = "who called; here the model alone does";

constexpr FieldRule kMessageItem[] = {
    honoured("type", R"({"const":"message"})", "also when it is missing"),
    required("role", R"({"enum":["user","assistant","system","developer"]})", "who"),
    required("content", R"({"type":["string","array"]})", "a text, or parts", item_part_fields),
    without_effect("status", kNotRead),
    without_effect("phase", kNotRead),
    without_effect("id", kNotRead),
};
constexpr FieldRule kItemPart[] = {
    required("type", kAnyText, "of part; what is no text is named in brackets, or refused"),
    honoured("text", kAnyText, "the text"),
    honoured("refusal", kAnyText, "the text, of the type refusal"),
    without_effect("annotations", kNotRead),
    without_effect("logprobs", kNotRead),
};
constexpr FieldRule kCallItem[] = {
    required("type", R"({"const":"function_call"})", "of item"),
    required("call_id", kAnyText, "that its result names"),
    required("name", kAnyText, "of the function"),
    required("arguments", kAnyText, "JSON in a text"),
    honoured("namespace", kAnyText, "of the function"),
    without_effect("id", kNotRead),
    without_effect("status", kNotRead),
    without_effect("caller", kCaller),
    refused("async", "calls do not go on"),
};
constexpr FieldRule kCustomCallItem[] = {
    required("type", R"({"const":"custom_tool_call"})", "of item"),
    required("call_id", kAnyText, "that its result names"),
    required("name", kAnyText, "of the tool"),
    required("input", kAnyText, "what the tool was given"),
    honoured("namespace", kAnyText, "of the tool"),
    without_effect("id", kNotRead),
    without_effect("status", kNotRead),
    without_effect("caller", kCaller),
};
constexpr FieldRule kResultItem[] = {
    required("type", R"({"enum":["function_call_output","custom_tool_call_output"]})", "of item"),
    required("call_id", kAnyText, "of the call"),
    required("output", R"({"type":["string","array"]})", "a text, or parts", item_part_fields),
    without_effect("id", kNotRead),
    without_effect("status", kNotRead),
    without_effect("caller", kCaller),
    without_effect("name", "of the call"),
};
constexpr FieldRule kReasoningItem[] = {
    required("type", R"({"const":"reasoning"})", "of item"),
    without_effect("id", kNotRead),
    without_effect("summary", "left out of the prompt"),
    honoured("content", R"({"type":["string","array"]})",
             "texts; v3.2 shows them behind the last user's message, others leave them out"),
    without_effect("status", kNotRead),
    honoured("encrypted_content", kAnyText, "the texts of an item of this server, without content"),
};
constexpr FieldRule kItemReference[] = {
    honoured("type", R"({"const":"item_reference"})", "of item"),
    required("id", kAnyText, "of an item of a stored response"),
};
constexpr FieldRule kFlatTool[] = {
    required("type", kAnyText,
             "function, custom or namespace; a tool of another type is left out of the prompt"),
    honoured("name", kAnyText, "of the tool or the namespace"),
    honoured("description", kAnyText, "for the model"),
    honoured("parameters", kAnyObject, "of a function: JSON schema of its arguments"),
    honoured("strict", kAnyBoolean, "of a function: arguments keep the schema"),
    honoured("format", kAnyObject, "of a custom tool: the form of its input",
             flat_custom_format_fields),
    honoured("tools", R"({"type":"array","items":{"type":"object"}})",
             "of a namespace: the functions and custom tools in it", flat_tool_fields),
    without_effect("defer_loading", "every tool is shown from the beginning"),
    without_effect("output_schema", "what the function gives back"),
    refused("async", "calls do not go on"),
    refused("allowed_callers", "the model alone calls", R"([["direct"]])"),
};
constexpr FieldRule kFlatChoice[] = {
    required("type", R"({"enum":["function","custom"]})", "which"),
    required("name", kAnyText, "of the tool"),
    honoured("namespace", kAnyText, "of the tool"),
};
constexpr FieldRule kFlatAllowed[] = {
    required("type", R"({"enum":["allowed_tools"]})", "which"),
    required("mode", R"({"enum":["auto","required"]})", "whether one must be called"),
    required("tools", R"({"type":"array","items":{"type":"object"}})", "that are allowed"),
};

}  // namespace

const FieldTable& message_item_fields() {
  static const FieldTable table("a message item", {kMessageItem});
  return table;
}
const FieldTable& item_part_fields() {
  static const FieldTable table("/v1/responses content[]", {kItemPart});
  return table;
}
const FieldTable& call_item_fields() {
  static const FieldTable table("a function_call item", {kCallItem});
  return table;
}
const FieldTable& custom_call_item_fields() {
  static const FieldTable table("a custom_tool_call item", {kCustomCallItem});
  return table;
}
const FieldTable& result_item_fields() {
  static const FieldTable table("a result item", {kResultItem});
  return table;
}
const FieldTable& reasoning_item_fields() {
  static const FieldTable table("a reasoning item", {kReasoningItem});
  return table;
}
const FieldTable& item_reference_fields() {
  static const FieldTable table("an item_reference item", {kItemReference});
  return table;
}
const FieldTable& flat_tool_fields() {
  static const FieldTable table("/v1/responses tools[]", {kFlatTool});
  return table;
}
const FieldTable& flat_allowed_fields() {
  static const FieldTable table("/v1/responses allowed_tools", {kFlatAllowed});
  return table;
}
const FieldTable& flat_choice_fields() {
  static const FieldTable table("/v1/responses tool_choice", {kFlatChoice});
  return table;
}

}  // namespace fathom::api
