#include "api/tables/messages_fields.h"

#include "api/tables/field_groups.h"

namespace fathom::api {
namespace {

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
    honoured("output_format", kAnyObject, "as output_config.format"),
    without_effect("metadata", "who asks"),
    without_effect("service_tier", "what the answer may cost; there is one tier"),
    without_effect("speed", "there is one"),
    without_effect("cache_control", kCacheControl),
    without_effect("context_management", "what of the context may be cleared; nothing is"),
    without_effect("mcp_servers", "tools on other servers, which are not offered"),
    without_effect("container", "where a server's own tools would run"),
    without_effect("diagnostics", "what Anthropic finds out about a request"),
    without_effect("fallbacks", "other models, should this one decline"),
    without_effect("fallback_credit_token", "a voucher"),
    without_effect("billing_policy", "who pays"),
    without_effect("inference_geo", "where to compute"),
    without_effect("user_profile_id", "who asks"),
    without_effect("workspace_id", "who asks"),
    refused("compaction", "the server does not sum up conversations"),
    refused("thread", "the server keeps no conversations"),
};
constexpr FieldRule kThinkingConfig[] = {
    required("type", R"({"enum":["enabled","adaptive","between_tools","disabled"]})",
             "whether to reason"),
    honoured("budget_tokens", R"({"type":"integer","minimum":0})", "tokens by which it ends"),
    honoured("display", R"({"enum":["summarized","updates","omitted"]})",
             "omitted: the blocks of thinking are empty, and their signatures keep the text"),
};
constexpr FieldRule kOutputConfig[] = {
    honoured("effort", kAnyText, "a level of reasoning"),
    honoured("format", kAnyObject, "a JSON schema of the answer"),
    without_effect("task_budget", "tokens for a task of many requests"),
};
constexpr FieldRule kMessageToolChoice[] = {
    required("type", R"({"enum":["auto","any","tool","none"]})", "which"),
    honoured("name", kAnyText, "of the one tool"),
    honoured("disable_parallel_tool_use", kAnyBoolean, "at most one call"),
};

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
    without_effect("citations", "what an earlier answer was marked with"),
};
constexpr FieldRule kThinkingBlock[] = {
    honoured("thinking", kAnyText,
             "v3.2 shows it behind the last user's message, others leave it out"),
    honoured("signature", kAnyText, "not checked; of an omitted text it has that text"),
};
constexpr FieldRule kRedacted[] = {honoured("data", kAnyText, "left out of the prompt")};
constexpr FieldRule kToolUse[] = {
    required("id", kAnyText, "that its result names"),
    required("name", kAnyText, "of the tool"),
    required("input", kAnyObject, "arguments"),
    without_effect("caller", "who called, in the words of another server"),
    without_effect("toolset_name", "the set that the tool belongs to"),
};
constexpr FieldRule kToolResult[] = {
    required("tool_use_id", kAnyText, "of the call"),
    honoured("content", R"({"type":["string","array"]})", "a text, or blocks"),
    honoured("is_error", kAnyBoolean, "that the call went wrong"),
    without_effect("toolset_name", "the set that the tool belongs to"),
};
constexpr FieldRule kMessageTool[] = {
    honoured("type", kAnyText, "custom, or a kind that has a schema without saying it"),
    required("name", kAnyText, "of the tool"),
    honoured("description", kAnyText, "for the model"),
    honoured("input_schema", kAnyObject, "JSON schema of its arguments; required of custom"),
    honoured("strict", kAnyBoolean, "arguments keep the schema"),
    honoured("allowed_callers", R"({"type":"array"})", "without direct it is not offered"),
    without_effect("cache_control", kCacheControl),
    without_effect("eager_input_streaming", "arguments are always streamed as they are made"),
    without_effect("input_examples", "the templates show no examples of inputs"),
    without_effect("defer_loading", "every tool is shown from the beginning"),
    without_effect("max_characters", "how much of a file the client shows"),
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
