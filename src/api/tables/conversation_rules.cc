#include "api/tables/conversation_rules.h"

#include "api/tables/custom_tool_fields.h"
#include "api/tables/endpoint_fields.h"
#include "api/tables/field_groups.h"

namespace fathom::api {
namespace {

constexpr std::string_view kName = R"({"type":"string","maxLength":256})";

constexpr std::string_view kEffort =
    R"({"enum":["none","minimal","low","medium","high","xhigh","max"]})";

constexpr std::string_view kBudget = R"({"type":"integer","minimum":-1,"maximum":2147483647})";

constexpr FieldRule kConversation[] = {
    honoured("tools", R"({"type":"array","items":{"type":"object"},"maxItems":16384})",
             "functions, wrapped as OpenAI does or bare", tool_fields),
    honoured("tool_choice", R"({"anyOf":[{"enum":["auto","none","required"]},{"type":"object"}]})",
             "whether and which functions are called", tool_choice_fields),
    honoured("parallel_tool_calls", kAnyBoolean, "false: at most one call"),
    honoured("chat_template_kwargs", kAnyObject, "the template's switch", template_kwargs_fields),
    honoured("reasoning_effort", kEffort,
             "none is no reasoning, any other level is reasoning where the model has a switch"),
    honoured("continue_final_message", kAnyBoolean,
             "the last message, an assistant's, is left open and continued"),
    honoured("thinking", R"({"anyOf":[{"type":"object"},{"type":"boolean"}]})",
             "DeepSeek's switch: an object with a type, or true or false", thinking_fields),
    honoured("enable_thinking", kAnyBoolean, "as chat_template_kwargs.enable_thinking"),
    honoured("reasoning", kAnyObject, "effort, enabled, or max_tokens", reasoning_fields),
    honoured("thinking_token_budget", kBudget, "tokens by which the reasoning ends; -1 is none"),
    honoured("thinking_budget", kBudget, "another name of thinking_token_budget"),
    honoured("reasoning_budget", kBudget, "another name of thinking_token_budget"),
    honoured("max_thinking_tokens", kBudget, "another name of thinking_token_budget"),
    honoured("think", R"({"anyOf":[{"type":"boolean"},{"enum":["low","medium","high"]}]})",
             "Ollama's switch: true, false or a level, as reasoning_effort"),
    honoured("functions", R"({"type":"array","items":{"type":"object"},"maxItems":16384})",
             "what tools were once; at most one is called"),
    honoured("function_call", R"({"anyOf":[{"enum":["auto","none"]},{"type":"object"}]})",
             "whether and which of functions is called"),
    refused("thinking_forced_open", "reasoning begins where the template opens it"),
    refused("chat_template", "templates are written in the server"),
    refused("documents", "no template here has a place for documents"),
    refused("task", "there are no task prefixes"),
};

constexpr FieldRule kMessage[] = {
    required("role", R"({"enum":["system","developer","user","assistant","tool","function"]})",
             "who speaks"),
    honoured("content",
             R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object"}}]})",
             "a text or text parts, which are joined", content_part_fields),
    honoured("name", kName, "shown where the template shows it"),
    honoured("tool_calls", R"({"type":"array","items":{"type":"object"},"maxItems":16384})",
             "an assistant's calls", call_fields),
    honoured("prefix", kAnyBoolean,
             "true on the last message, an assistant's: it is continued, as with "
             "continue_final_message"),
    honoured("refusal", kAnyText, "what an assistant said in place of content"),
    honoured("tool_call_id", kName, "the call that a tool message answers"),
    honoured(
        "reasoning_content", kAnyText,
        "of an earlier answer; v3.2 shows it behind the last user's message, others leave it out"),
    honoured("function_call", kAnyObject, "an assistant's call of one of functions",
             called_function_fields),
    refused("audio", "there are no audio answers"),
    refused("images", "there are no images"),
    refused("tools", "tools are said beside the messages"),
    honoured("reasoning", kAnyText, "another name of reasoning_content"),
    without_effect("thinking", "another name of reasoning_content"),
    without_effect("reasoning_details", "another form of reasoning_content"),
    without_effect("thinking_blocks", "another form of reasoning_content"),
    without_effect("annotations", "what an earlier answer was marked with"),
    without_effect("parsed", "the content as an object, which clients add to answers"),
    without_effect("provider_specific_fields", "what clients add to answers"),
    without_effect("cache_control", "prefixes are found without it"),
    without_effect("id", "of a message that a client keeps"),
    without_effect("finish_reason", "how an earlier answer ended"),
    without_effect("timestamp", "of a message that a client keeps"),
    without_effect("info", "notes of the client"),
    without_effect("weight", "for training"),
};

constexpr FieldRule kContentPart[] = {
    required("type", kAnyText, "text, refusal; what is no text is named in brackets, or refused"),
    honoured("text", kAnyText, "its text"),
    honoured("refusal", kAnyText, "its text, of the type refusal"),
    without_effect("cache_control", "prefixes are found without it"),
    without_effect("annotations", "what an earlier answer was marked with"),
    without_effect("citations", "what an earlier answer was marked with"),
    without_effect("image_url", "belongs to another type of part"),
    without_effect("input_audio", "belongs to another type of part"),
    without_effect("audio_url", "belongs to another type of part"),
    without_effect("video_url", "belongs to another type of part"),
    without_effect("file", "belongs to another type of part"),
    without_effect("thinking", "belongs to another type of part"),
    without_effect("logprobs", "what an earlier answer was marked with"),
};

constexpr FieldRule kCall[] = {
    honoured("id", kName, "what the tool message names"),
    honoured("type", R"({"enum":["function","custom"]})", "what was called"),
    honoured("function", kAnyObject, "the call, of the type function", called_function_fields),
    honoured("custom", kAnyObject, "the call, of the type custom", called_custom_fields),
    without_effect("index", "the place in a stream"),
    without_effect("extra_content", "what clients add to answers"),
    without_effect("provider_specific_fields", "what clients add to answers"),
};

constexpr FieldRule kCalledFunction[] = {
    required("name", kName, "of the function"),
    honoured("arguments", R"({"type":["string","object"]})", "an object or its text"),
    without_effect("parsed_arguments", "the arguments as an object, which clients add to answers"),
    without_effect("provider_specific_fields", "what clients add to answers"),
};

constexpr FieldRule kFunction[] = {
    honoured("name", R"({"type":"string","minLength":1})", "of the function"),
    honoured("description", kAnyText, "what it does"),
    honoured("parameters", kAnyObject, "the schema of its arguments"),
    honoured("strict", R"({})", "true: calls follow the schema"),
    refused("defer_loading", "tools are all loaded"),
    without_effect("title", "of the function, for people"),
    without_effect("annotations", "of the function, for people"),
    without_effect("return", "what the function gives back"),
    without_effect("returns", "what the function gives back"),
    without_effect("response", "what the function gives back"),
    without_effect("outputSchema", "what the function gives back"),
    without_effect("cache_control", "prefixes are found without it"),
};

constexpr FieldRule kTool[] = {
    honoured("type", R"({"enum":["function","custom"]})", "takes arguments, or a text"),
    honoured("function", kAnyObject, "the function", function_fields),
    honoured("custom", kAnyObject, "the tool that takes a text", custom_tool_fields),
};

constexpr FieldRule kToolChoice[] = {
    honoured("type", R"({"enum":["function","custom","allowed_tools"]})", "the kind of choice"),
    honoured("function", kAnyObject, "the one to call", chosen_function_fields),
    honoured("custom", kAnyObject, "the one to call", chosen_custom_fields),
    honoured("allowed_tools", kAnyObject, "those that may be called", allowed_tools_fields),
};

constexpr FieldRule kAllowedTools[] = {
    required("mode", R"({"enum":["auto","required"]})", "whether one must be called"),
    required("tools", R"({"type":"array","items":{"type":"object"},"maxItems":16384})", "by name",
             chosen_tool_fields),
};

constexpr FieldRule kChosenTool[] = {
    honoured("type", R"({"enum":["function","custom"]})", "what it is"),
    honoured("function", kAnyObject, "its name, of the type function", chosen_function_fields),
    honoured("custom", kAnyObject, "its name, of the type custom", chosen_custom_fields),
};

constexpr FieldRule kChosenFunction[] = {required("name", kName, "of one of the tools")};

constexpr FieldRule kTemplateKwargs[] = {
    honoured("thinking", kAnyBoolean, "whether the assistant reasons"),
    honoured("enable_thinking", kAnyBoolean, "another name of thinking"),
    honoured("reasoning_effort", kEffort, "as reasoning_effort"),
};

constexpr FieldRule kThinking[] = {
    required("type", R"({"enum":["enabled","disabled"]})", "whether the assistant reasons"),
    honoured("budget_tokens", kTokenCount, "as thinking_token_budget"),
};

constexpr FieldRule kReasoning[] = {
    honoured("effort", kEffort, "as reasoning_effort"),
    honoured("enabled", kAnyBoolean, "whether the assistant reasons"),
    honoured("max_tokens", kTokenCount, "as thinking_token_budget; asks for reasoning"),
    honoured("exclude", kAnyBoolean, "true: as include_reasoning false"),
    refused("summary", "reasoning is not summed up"),
    refused("generate_summary", "reasoning is not summed up"),
};

}  // namespace

std::span<const FieldRule> conversation_rules() { return kConversation; }

const FieldTable& message_fields() {
  static const FieldTable table("messages[]", {kMessage});
  return table;
}

const FieldTable& content_part_fields() {
  static const FieldTable table("messages[].content[]", {kContentPart});
  return table;
}

const FieldTable& call_fields() {
  static const FieldTable table("messages[].tool_calls[]", {kCall});
  return table;
}

const FieldTable& called_function_fields() {
  static const FieldTable table("messages[].tool_calls[].function", {kCalledFunction});
  return table;
}

const FieldTable& tool_fields() {
  // A function that is not wrapped is the tool itself.
  static const FieldTable table("tools[]", {kTool, kFunction});
  return table;
}

const FieldTable& function_fields() {
  static const FieldTable table("tools[].function", {kFunction});
  return table;
}

const FieldTable& tool_choice_fields() {
  static const FieldTable table("tool_choice", {kToolChoice});
  return table;
}

const FieldTable& allowed_tools_fields() {
  static const FieldTable table("tool_choice.allowed_tools", {kAllowedTools});
  return table;
}

const FieldTable& chosen_tool_fields() {
  static const FieldTable table("tool_choice.allowed_tools.tools[]", {kChosenTool});
  return table;
}

const FieldTable& chosen_function_fields() {
  static const FieldTable table("tool_choice.function", {kChosenFunction});
  return table;
}

const FieldTable& template_kwargs_fields() {
  static const FieldTable table("chat_template_kwargs", {kTemplateKwargs});
  return table;
}

const FieldTable& thinking_fields() {
  static const FieldTable table("thinking", {kThinking});
  return table;
}

const FieldTable& reasoning_fields() {
  static const FieldTable table("reasoning", {kReasoning});
  return table;
}

}  // namespace fathom::api
