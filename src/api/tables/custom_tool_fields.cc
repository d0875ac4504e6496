#include "api/tables/custom_tool_fields.h"

#include "api/tables/field_groups.h"

namespace fathom::api {
namespace {

constexpr std::string_view kToolName = R"({"type":"string","minLength":1,"maxLength":256})";
constexpr std::string_view kFormatType = R"({"enum":["text","grammar"]})";

constexpr FieldRule kCustomTool[] = {
    required("name", kToolName, "of the tool"),
    honoured("description", kAnyText, "for the model"),
    honoured("format", kAnyObject, "of the input; any text without", custom_format_fields),
};
constexpr FieldRule kCustomFormat[] = {
    required("type", kFormatType, "any text, or one that follows a grammar"),
    honoured("grammar", kAnyObject, "of the type grammar", custom_grammar_fields),
};
constexpr FieldRule kGrammar[] = {
    required("syntax", R"({"enum":["lark","regex"]})", "what the definition is written in"),
    required("definition", kGrammarText, "the rules or the pattern"),
};
constexpr FieldRule kCalledCustom[] = {
    required("name", R"({"type":"string","maxLength":256})", "of the tool"),
    honoured("input", kAnyText, "what the tool was given"),
};
constexpr FieldRule kChosenCustom[] = {
    required("name", R"({"type":"string","maxLength":256})", "of one of the tools"),
};

constexpr FieldRule kFlatCustomFormat[] = {
    required("type", kFormatType, "any text, or one that follows a grammar"),
    honoured("syntax", R"({"enum":["lark","regex"]})", "of the type grammar: its language"),
    honoured("definition", kGrammarText, "of the type grammar: the rules or the pattern"),
};

}  // namespace

const FieldTable& custom_tool_fields() {
  static const FieldTable table("tools[].custom", {kCustomTool});
  return table;
}
const FieldTable& custom_format_fields() {
  static const FieldTable table("tools[].custom.format", {kCustomFormat});
  return table;
}
const FieldTable& custom_grammar_fields() {
  static const FieldTable table("tools[].custom.format.grammar", {kGrammar});
  return table;
}
const FieldTable& called_custom_fields() {
  static const FieldTable table("messages[].tool_calls[].custom", {kCalledCustom});
  return table;
}
const FieldTable& chosen_custom_fields() {
  static const FieldTable table("tool_choice.custom", {kChosenCustom});
  return table;
}
const FieldTable& flat_custom_format_fields() {
  static const FieldTable table("/v1/responses tools[].format", {kFlatCustomFormat});
  return table;
}

}  // namespace fathom::api
