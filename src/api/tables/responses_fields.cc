#include "api/tables/responses_fields.h"

#include "api/tables/field_groups.h"
#include "api/tables/response_item_fields.h"

namespace fathom::api {
namespace {

constexpr FieldRule kResponses[] = {
    required("input", R"({"type":["string","array"]})", "a text, or items"),
    honoured("instructions", kAnyText, "a system message before the input"),
    honoured("previous_response_id", kAnyText, "goes on with a stored response"),
    honoured("store", kAnyBoolean, "false: the response is not kept"),
    honoured("model", kAnyText, "a served name"),
    honoured("max_output_tokens", kTokenLimit, "at most so many"),
    honoured("seed", kSeed, "of the draws"),
    honoured("stream", kAnyBoolean, "events"),
    honoured("stream_options", kAnyObject, "of the events", response_stream_fields),
    honoured("tools", R"({"type":"array","items":{"type":"object"}})",
             "functions, custom tools and namespaces of them; others are not shown to the model",
             flat_tool_fields),
    honoured("tool_choice", R"({"type":["string","object"]})",
             "auto, none, required, a function, a custom tool or allowed_tools"),
    honoured("parallel_tool_calls", kAnyBoolean, "false: at most one call"),
    honoured("text", kAnyObject, "the answer's format", text_config_fields),
    honoured("reasoning", kAnyObject, "effort and summary", response_reasoning_fields),
    honoured("metadata", kAnyObject, "repeated in the response"),
    honoured("include", R"({"type":["array","null"],"items":{"type":"string"}})",
             "reasoning.encrypted_content, message.output_text.logprobs; others add nothing"),
    honoured("top_logprobs", R"({"type":"integer","minimum":0,"maximum":20})",
             "so many alternatives, where include asks for log-probabilities"),
    honoured("truncation", R"({"enum":["auto","disabled"]})", "nothing is cut either way"),
    honoured("max_tool_calls", R"({"type":"integer","minimum":0,"maximum":2147483647})",
             "of tools that a server runs, of which there are none"),
    honoured("user", kAnyText, "read for its form only"),
    honoured("safety_identifier", kAnyText, "read for its form only"),
    honoured("prompt_cache_key", kAnyText, "read for its form only"),
    without_effect("service_tier", "there is one"),
    without_effect("client_metadata", "notes of the client"),
    without_effect("session_id", "a name for logs"),
    without_effect("prompt_cache_options", "prefixes stay as long as there is room"),
    without_effect("prompt_cache_retention", "prefixes stay as long as there is room"),
    without_effect("context_management", "the context is not edited"),
    refused("background", "no response is made in the background"),
    refused("conversation", "the server keeps no conversations"),
    refused("prompt", "the server keeps no prompts"),
    refused("moderation", "there is no moderation"),
    refused("access_programs", "there are no access programs"),
    refused("image", "there are no images"),
};
constexpr FieldRule kResponseReasoning[] = {
    honoured("effort", kAnyText, "a level of reasoning"),
    honoured("max_tokens", kTokenCount, "tokens by which the reasoning ends"),
    without_effect("summary", "reasoning is shown whole"),
    honoured("mode", R"({"const":"standard"})", "there is one"),
    without_effect("generate_summary", "the older name of summary"),
    without_effect("context", "which earlier reasoning to keep; the chat format says it"),
};
constexpr FieldRule kTextConfig[] = {
    honoured("format", kAnyObject, "text, json_object or json_schema", flat_format_fields),
    without_effect("verbosity", "how long answers shall be; the prompt says it"),
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
    without_effect("include_obfuscation", "events are not padded"),
};

}  // namespace

const FieldTable& responses_fields() {
  static const FieldTable table("/v1/responses", {kResponses, token_choice_rules()});
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

}  // namespace fathom::api
