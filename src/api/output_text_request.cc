#include "api/output_text_request.h"

#include <utility>

#include "api/conversation_fields.h"
#include "api/custom_tools.h"
#include "api/request_fields.h"
#include "api/tables/endpoint_fields.h"
#include "base/json.h"
#include "base/json_members.h"

namespace fathom::api {
namespace {

// SGLang's names; none: the format has no calls, no reasoning.
std::string_view call_parser_of(text::ChatFormat format) {
  switch (format) {
    case text::ChatFormat::kV3:
    case text::ChatFormat::kV3_0324:
    case text::ChatFormat::kV3Tools:
    case text::ChatFormat::kR1:
    case text::ChatFormat::kR1_0528:
    case text::ChatFormat::kR1Tools:
      return "deepseekv3";
    case text::ChatFormat::kV31:
      return "deepseekv31";
    case text::ChatFormat::kV32:
      return "deepseekv32";
    case text::ChatFormat::kKimiK2:
      return "kimi_k2";
    case text::ChatFormat::kV2:
    case text::ChatFormat::kMoonlight:
      break;
  }
  return "";
}

struct ReasoningParsers {
  bool opened = false;    // deepseek-r1: the text goes on behind <think>
  bool unopened = false;  // deepseek-v3: reasoning is what <think> opens
};

ReasoningParsers reasoning_parsers_of(text::ChatFormat format) {
  switch (format) {
    case text::ChatFormat::kR1:
    case text::ChatFormat::kR1_0528:
    case text::ChatFormat::kR1Tools:
      return {.opened = true};
    case text::ChatFormat::kV31:
    case text::ChatFormat::kV32:
      return {.opened = true, .unopened = true};
    default:
      return {};
  }
}

std::string read_output_text(FieldReader& reader, const ServedModel& model) {
  reader.require("text");
  return reader.text("text", static_cast<size_t>(model.limits.max_tokenize_bytes)).value_or("");
}

// Nothing: a problem is set.
std::optional<text::ChatFormat> format_of(FieldReader& reader, const ServedModel& model,
                                          std::string_view parser) {
  if (!model.chat_format) {
    reader.fail_with(parser, "this model has no chat format: " + model.chat_format_problem);
  }
  return model.chat_format;
}

void read_call_parser(FieldReader& reader, text::ChatFormat format) {
  const std::string_view known = call_parser_of(format);
  if (known.empty()) {
    return reader.fail_with("tool_call_parser", "the chat format of this model, " +
                                                    std::string(text::chat_format_name(format)) +
                                                    ", has no tool calls");
  }
  const json::Value* parser = reader.find("tool_call_parser");
  if (parser != nullptr && !json::is_text(*parser, known)) {
    reader.fail("tool_call_parser",
                std::string(known) + ", that of this model's chat format, or not set");
  }
}

// Whether the text begins behind <think>.
bool read_reasoning_parser(FieldReader& reader, text::ChatFormat format) {
  const ReasoningParsers known = reasoning_parsers_of(format);
  if (!known.opened) {
    reader.fail_with("reasoning_parser", "the chat format of this model, " +
                                             std::string(text::chat_format_name(format)) +
                                             ", has no reasoning");
    return false;
  }
  reader.require("reasoning_parser");
  const json::Value* parser = reader.find("reasoning_parser");
  if (parser == nullptr) return false;
  const bool is_opened = json::is_text(*parser, "deepseek-r1");
  if (!is_opened && !(known.unopened && json::is_text(*parser, "deepseek-v3"))) {
    reader.fail("reasoning_parser", known.unopened
                                        ? "deepseek-r1 or deepseek-v3, those of this model's format"
                                        : "deepseek-r1, that of this model's chat format");
  }
  return is_opened;
}

std::vector<std::string> names_of(const json::Value& tools) {
  std::vector<std::string> names;
  for (const json::Value& tool : tools) names.push_back(offered_name(tool));
  return names;
}

}  // namespace

Parsed<CallTextRequest> parse_call_text_request(std::string_view body, const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  FieldProblem problem(policy_of("/parse_function_call", model));
  FieldReader reader(std::get<json::Members>(members), call_text_fields(), problem);
  CallTextRequest request{.text = read_output_text(reader, model)};
  const json::Value tools = read_tools(reader, model);
  if (const auto format = format_of(reader, model, "tool_call_parser")) {
    request.chat_format = *format;
    read_call_parser(reader, *format);
  }
  if (problem) return problem.error();
  request.functions = names_of(tools);
  return request;
}

Parsed<ReasoningTextRequest> parse_reasoning_text_request(std::string_view body,
                                                          const ServedModel& model) {
  Parsed<json::Members> members = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&members)) return *error;
  FieldProblem problem(policy_of("/separate_reasoning", model));
  FieldReader reader(std::get<json::Members>(members), reasoning_text_fields(), problem);
  ReasoningTextRequest request{.text = read_output_text(reader, model)};
  if (const auto format = format_of(reader, model, "reasoning_parser")) {
    request.chat_format = *format;
    request.starts_in_reasoning = read_reasoning_parser(reader, *format);
  }
  if (problem) return problem.error();
  return request;
}

}  // namespace fathom::api
