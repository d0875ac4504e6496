#include "api/tables/messages_fields.h"

#include "api/tables/field_groups.h"

namespace fathom::api {
namespace {

constexpr std::string_view kAnything = "{}";
constexpr std::string_view kCacheControl = "which parts to cache; the prefix cache needs no mark";

constexpr FieldRule kMessages[] = {
    required("messages", R"({"type":"array","items":{"type":"object"},"minItems":1})",
             "the conversation", turn_fields),
    honoured("system", R"({"type":["string","array"]})", "a text, or blocks of text"),
    honoured("model", kAnyText, "a served name"),
    honoured("max_tokens", kTokenLimit, "at most so many; required here"),
    honoured("stop_sequences", R"({"type":["string","array"]})", "texts that end the answer"),
    honoured("temperature", R"({"type":"number","minimum":0,"maximum":100})", "0: greedy"),
    honoured("top_p", R"({"type":"number","minimum":0,"maximum":1})", "nucleus"),
    honoured("top_k", R"({"type":"integer","minimum":-1})", "so many likeliest tokens"),
    honoured("stream", kAnyBoolean, "events"),
    honoured("tools", R"({"type":"array","items":{"type":"object"}})", "what may be called",
             message_tool_fields),
    honoured("tool_choice", kAnyObject, "auto, any, tool or none", chosen_message_tool_fields),
    honoured("thinking", kAnyObject, "enabled, adaptive or disabled", thinking_config_fields),
    honoured("output_config", kAnyObject, "effort, and a format of the answer",
             output_config_fields),
    honoured("metadata", kAnyObject, "read for its form only", message_metadata_fields),
    honoured("service_tier", R"({"enum":["auto","standard_only"]})", "there is one"),
    honoured("speed", R"({"const":"standard"})", "there is one"),
    honoured("cache_control", kAnyObject, kCacheControl),
    refused("container", "there are no containers"),
    refused("mcp_servers", "the server calls no MCP servers"),
    refused("context_management", "the context is not edited"),
    refused("diagnostics", "there are no diagnostics"),
    refused("inference_geo", "there is one place to compute at"),
    refused("user_profile_id", "there are no user profiles"),
    refused("workspace_id", "there are no workspaces"),
};
constexpr FieldRule kThinkingConfig[] = {
    required("type", R"({"enum":["enabled","adaptive","disabled"]})", "whether to reason"),
    honoured("budget_tokens", R"({"type":"integer","minimum":1})", "less than max_tokens"),
    honoured("display", R"({"const":"summarized"})", "thinking is shown as it is"),
};
constexpr FieldRule kOutputConfig[] = {
    honoured("effort", kAnyText, "a level of reasoning"),
    honoured("format", kAnyObject, "a JSON schema of the answer"),
};
constexpr FieldRule kMessageToolChoice[] = {
    required("type", R"({"enum":["auto","any","tool","none"]})", "which"),
    honoured("name", kAnyText, "of the one tool"),
    honoured("disable_parallel_tool_use", kAnyBoolean, "at most one call"),
};
constexpr FieldRule kMetadata[] = {honoured("user_id", kAnyText, "read for its form only")};

constexpr FieldRule kTurn[] = {
    required("role", R"({"enum":["user","assistant","system"]})", "who"),
    required("content", R"({"type":["string","array"]})", "a text, or blocks"),
};
constexpr FieldRule kBlock[] = {
    required("type", kAnyText, "of block"),
    without_effect("cache_control", kCacheControl),
};
constexpr FieldRule kText[] = {
    required("text", kAnyText, "the text"),
    refused("citations", "there are no citations"),
};
constexpr FieldRule kThinkingBlock[] = {
    honoured("thinking", kAnyText, "left out of the prompt"),
    honoured("signature", kAnyText, "not checked"),
};
constexpr FieldRule kRedacted[] = {honoured("data", kAnyText, "left out of the prompt")};
constexpr FieldRule kToolUse[] = {
    required("id", kAnyText, "that its result names"),
    required("name", kAnyText, "of the tool"),
    required("input", kAnyObject, "arguments"),
    honoured("caller", kAnything, "the model itself"),
    refused("toolset_name", "there are no toolsets"),
};
constexpr FieldRule kToolResult[] = {
    required("tool_use_id", kAnyText, "of the call"),
    honoured("content", R"({"type":["string","array"]})", "a text, or blocks of text"),
    honoured("is_error", kAnyBoolean, "that the call went wrong"),
    refused("toolset_name", "there are no toolsets"),
};
constexpr FieldRule kMessageTool[] = {
    honoured("type", R"({"const":"custom"})", "the person's own"),
    required("name", kAnyText, "of the tool"),
    honoured("description", kAnyText, "for the model"),
    required("input_schema", kAnyObject, "JSON schema of its arguments"),
    honoured("strict", kAnyBoolean, "arguments keep the schema"),
    without_effect("cache_control", kCacheControl),
    honoured("eager_input_streaming", kAnyBoolean,
             "arguments are always streamed as they are made"),
    honoured("allowed_callers", R"({"const":["direct"]})", "the model itself"),
    refused("input_examples", "the templates show no examples of inputs"),
    refused("defer_loading", "every tool is shown from the beginning"),
};

}  // namespace

const FieldTable& messages_fields() {
  static const FieldTable table("/v1/messages", {kMessages});
  return table;
}
const FieldTable& thinking_config_fields() {
  static const FieldTable table("/v1/messages thinking", {kThinkingConfig});
  return table;
}
const FieldTable& output_config_fields() {
  static const FieldTable table("/v1/messages output_config", {kOutputConfig});
  return table;
}
const FieldTable& chosen_message_tool_fields() {
  static const FieldTable table("/v1/messages tool_choice", {kMessageToolChoice});
  return table;
}
const FieldTable& message_metadata_fields() {
  static const FieldTable table("/v1/messages metadata", {kMetadata});
  return table;
}
const FieldTable& turn_fields() {
  static const FieldTable table("/v1/messages messages[]", {kTurn});
  return table;
}
const FieldTable& text_block_fields() {
  static const FieldTable table("a text block", {kBlock, kText});
  return table;
}
const FieldTable& thinking_block_fields() {
  static const FieldTable table("a thinking block", {kBlock, kThinkingBlock});
  return table;
}
const FieldTable& redacted_block_fields() {
  static const FieldTable table("a redacted_thinking block", {kBlock, kRedacted});
  return table;
}
const FieldTable& tool_use_block_fields() {
  static const FieldTable table("a tool_use block", {kBlock, kToolUse});
  return table;
}
const FieldTable& tool_result_block_fields() {
  static const FieldTable table("a tool_result block", {kBlock, kToolResult});
  return table;
}
const FieldTable& message_tool_fields() {
  static const FieldTable table("/v1/messages tools[]", {kMessageTool});
  return table;
}

}  // namespace fathom::api
