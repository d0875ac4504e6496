#include "api/tables/responses_fields.h"

#include "api/tables/field_groups.h"

namespace fathom::api {
namespace {

constexpr std::string_view kNotRead = "of the answer that it came from, not read";

constexpr FieldRule kResponses[] = {
    required("input", R"({"type":["string","array"]})", "a text, or items"),
    honoured("instructions", kAnyText, "a system message before the input"),
    honoured("previous_response_id", kAnyText, "goes on with a stored response"),
    honoured("store", kAnyBoolean, "false: the response is not kept"),
    honoured("model", kAnyText, "a served name"),
    honoured("max_output_tokens", kTokenLimit, "at most so many"),
    honoured("temperature", R"({"type":"number","minimum":0,"maximum":100})", "0: greedy"),
    honoured("top_p", R"({"type":"number","minimum":0,"maximum":1})", "nucleus"),
    honoured("ignore_eos", kAnyBoolean, "do not stop at the end token"),
    honoured("stream", kAnyBoolean, "events"),
    honoured("stream_options", kAnyObject, "of the events", response_stream_fields),
    honoured("tools", R"({"type":"array","items":{"type":"object"}})", "functions",
             flat_tool_fields),
    honoured("tool_choice", R"({"type":["string","object"]})",
             "auto, none, required, a function or allowed_tools"),
    honoured("parallel_tool_calls", kAnyBoolean, "false: at most one call"),
    honoured("text", kAnyObject, "the answer's format", text_config_fields),
    honoured("reasoning", kAnyObject, "effort and summary", response_reasoning_fields),
    honoured("metadata", kAnyObject, "repeated in the response"),
    honoured("truncation", R"({"const":"disabled"})", "nothing is cut"),
    honoured("service_tier", R"({"enum":["auto","default"]})", "there is one"),
    honoured("top_logprobs", R"({"const":0})", "none here"),
    honoured("user", kAnyText, "read for its form only"),
    honoured("safety_identifier", kAnyText, "read for its form only"),
    honoured("prompt_cache_key", kAnyText, "read for its form only"),
    refused("background", "no response is made in the background"),
    refused("conversation", "the server keeps no conversations"),
    refused("include", "there are no additions to the response"),
    refused("prompt", "the server keeps no prompts"),
    refused("max_tool_calls", "the server runs no tools"),
    refused("context_management", "the context is not edited"),
    refused("moderation", "there is no moderation"),
    refused("prompt_cache_options", "the prefix cache has no settings of a request"),
    refused("prompt_cache_retention", "the prefix cache has no settings of a request"),
    refused("access_programs", "there are no access programs"),
    refused("image", "there are no images"),
};
constexpr FieldRule kResponseReasoning[] = {
    honoured("effort", kAnyText, "a level of reasoning"),
    honoured("max_tokens", kTokenCount, "tokens by which the reasoning ends"),
    honoured("summary", R"({"enum":["auto","concise","detailed"]})", "reasoning is shown whole"),
    honoured("mode", R"({"const":"standard"})", "there is one"),
    refused("generate_summary", "summary says it here"),
    refused("context", "reasoning of earlier turns is left out"),
};
constexpr FieldRule kTextConfig[] = {
    honoured("format", kAnyObject, "text, json_object or json_schema", flat_format_fields),
    honoured("verbosity", R"({"const":"medium"})", "there is one"),
};
constexpr FieldRule kFlatFormat[] = {
    required("type", R"({"enum":["text","json_object","json_schema"]})", "which"),
    honoured("schema", R"({"type":["object","string","boolean"]})", "of json_schema"),
    honoured("name", kAnyText, "of the schema, not shown to the model"),
    honoured("strict", kAnyBoolean,
             "the answer always keeps the schema; true: an object without named members is empty"),
    without_effect("description", "of the schema, not shown to the model"),
};
constexpr FieldRule kResponseStream[] = {
    refused("include_obfuscation", "events are not padded"),
};

constexpr FieldRule kMessageItem[] = {
    honoured("type", R"({"const":"message"})", "also when it is missing"),
    required("role", R"({"enum":["user","assistant","system","developer"]})", "who"),
    required("content", R"({"type":["string","array"]})", "a text, or parts", item_part_fields),
    without_effect("status", kNotRead),
    without_effect("phase", kNotRead),
    without_effect("id", kNotRead),
};
constexpr FieldRule kItemPart[] = {
    required("type", kAnyText, "of part; what is no text is a placeholder, or refused"),
    required("text", kAnyText, "the text"),
    without_effect("annotations", kNotRead),
    without_effect("logprobs", kNotRead),
};
constexpr FieldRule kCallItem[] = {
    required("type", R"({"const":"function_call"})", "of item"),
    required("call_id", kAnyText, "that its result names"),
    required("name", kAnyText, "of the function"),
    required("arguments", kAnyText, "JSON in a text"),
    without_effect("id", kNotRead),
    without_effect("status", kNotRead),
    refused("namespace", "there are no namespaces"),
    refused("caller", "programs call nothing"),
    refused("async", "calls do not go on"),
};
constexpr FieldRule kResultItem[] = {
    required("type", R"({"const":"function_call_output"})", "of item"),
    required("call_id", kAnyText, "of the call"),
    required("output", R"({"type":["string","array"]})", "a text, or parts", item_part_fields),
    without_effect("id", kNotRead),
    without_effect("status", kNotRead),
    refused("caller", "programs call nothing"),
};
constexpr FieldRule kReasoningItem[] = {
    required("type", R"({"const":"reasoning"})", "of item"),
    without_effect("id", kNotRead),
    without_effect("summary", "left out of the prompt"),
    without_effect("content", "left out of the prompt"),
    without_effect("status", kNotRead),
    without_effect("encrypted_content", "left out of the prompt"),
};
constexpr FieldRule kFlatTool[] = {
    required("type", R"({"const":"function"})", "the person's own"),
    required("name", kAnyText, "of the function"),
    honoured("description", kAnyText, "for the model"),
    honoured("parameters", kAnyObject, "JSON schema of its arguments"),
    honoured("strict", kAnyBoolean, "arguments keep the schema"),
    refused("async", "calls do not go on"),
    refused("defer_loading", "every tool is shown from the beginning"),
    refused("allowed_callers", "the model alone calls"),
    refused("output_schema", "results have no schemas"),
};
constexpr FieldRule kFlatChoice[] = {
    required("type", R"({"enum":["function"]})", "which"),
    required("name", kAnyText, "of the function"),
};
constexpr FieldRule kFlatAllowed[] = {
    required("type", R"({"enum":["allowed_tools"]})", "which"),
    required("mode", R"({"enum":["auto","required"]})", "whether one must be called"),
    required("tools", R"({"type":"array","items":{"type":"object"}})", "that are allowed"),
};

}  // namespace

const FieldTable& responses_fields() {
  static const FieldTable table("/v1/responses", {kResponses});
  return table;
}
const FieldTable& response_reasoning_fields() {
  static const FieldTable table("/v1/responses reasoning", {kResponseReasoning});
  return table;
}
const FieldTable& text_config_fields() {
  static const FieldTable table("/v1/responses text", {kTextConfig});
  return table;
}
const FieldTable& flat_format_fields() {
  static const FieldTable table("a flat format", {kFlatFormat});
  return table;
}
const FieldTable& response_stream_fields() {
  static const FieldTable table("/v1/responses stream_options", {kResponseStream});
  return table;
}
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
const FieldTable& result_item_fields() {
  static const FieldTable table("a function_call_output item", {kResultItem});
  return table;
}
const FieldTable& reasoning_item_fields() {
  static const FieldTable table("a reasoning item", {kReasoningItem});
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
