// Custom tools: what a call's arguments may be, from the request's tools to the tokens of an answer.
#include <gtest/gtest.h>

#include <string>

#include "answer/constraint_factory.h"
#include "base/json.h"
#include "tests/api/demo_served_model.h"
#include "text/tool_call_form.h"

namespace fathom::answer::tests {
namespace {

constexpr text::ChatFormat kCustomToolFormat = text::ChatFormat::kV31;

api::Parsed<ConstraintPtr> constraint_of(const json::Value& custom) {
  const auto tokenizer = api::tests::demo_tokenizer();
  static ConstraintFactory factory({.tokenizer = tokenizer,
                                    .vocab_size = tokenizer->vocab_size(),
                                    .eos_token_ids = {tokenizer->eos_id()}});
  api::GenerationRequest request;
  request.chat.format = kCustomToolFormat;
  request.chat.tool_constraint = {.kind = api::ToolConstraint::Kind::kRequired,
                                  .tools = json::Value{{{"type", "custom"}, {"custom", custom}}}};
  return factory.make(request, {});
}

// Whether an answer may call the tool so.
bool takes(const json::Value& custom, const std::string& arguments) {
  const text::Tokenizer& tokenizer = *api::tests::demo_tokenizer();
  api::Parsed<ConstraintPtr> made = constraint_of(custom);
  EXPECT_TRUE(std::holds_alternative<ConstraintPtr>(made));
  const ConstraintPtr& constraint = std::get<ConstraintPtr>(made);
  const text::ToolCallForm& form = *text::tool_call_form(kCustomToolFormat);
  std::string text = std::string(form.section_begin) + std::string(form.call_begin);
  for (const text::CallStep& step : form.steps) {
    using Kind = text::CallStep::Kind;
    if (step.kind == Kind::kLiteral) text += step.literal;
    if (step.kind == Kind::kName) text += custom["name"].get<std::string>();
    if (step.kind == Kind::kObject) text += arguments;
  }
  text += form.section_end;
  for (const int32_t token : tokenizer.encode(text)) {
    if (!constraint->accept(token)) return false;
  }
  return constraint->accept(tokenizer.eos_id());
}

json::Value custom_tool(const std::string& syntax, const std::string& definition) {
  return {{"name", "patch"},
          {"description", "d"},
          {"format",
           {{"type", "grammar"}, {"grammar", {{"syntax", syntax}, {"definition", definition}}}}}};
}

TEST(CustomTool, the_input_follows_the_grammar) {
  const json::Value lark = custom_tool("lark", "start: \"add \" INT LF\n%import common (INT, LF)");
  EXPECT_TRUE(takes(lark, R"({"input": "add 12\n"})"));
  EXPECT_FALSE(takes(lark, R"({"input": "add\n"})"));
  EXPECT_FALSE(takes(lark, R"({"text": "add 12\n"})"));
  const json::Value regex = custom_tool("regex", "\"[a-z]+\"");
  EXPECT_TRUE(takes(regex, R"({"input":"\"abc\""})"));
  EXPECT_FALSE(takes(regex, R"({"input":"abc"})"));
}

TEST(CustomTool, the_input_is_any_text_without_a_grammar) {
  for (const json::Value& tool : {json::Value{{"name", "note"}},
                                  json::Value{{"name", "note"}, {"format", {{"type", "text"}}}}}) {
    EXPECT_TRUE(takes(tool, R"({"input": "any \"text\"\n"})"));
    EXPECT_FALSE(takes(tool, R"({"input": 1})"));
    EXPECT_FALSE(takes(tool, "{}"));
  }
}

TEST(CustomTool, a_grammar_that_is_none_is_named) {
  const auto made = constraint_of(custom_tool("lark", "start: missing"));
  ASSERT_TRUE(std::holds_alternative<api::ApiError>(made));
  const auto& error = std::get<api::ApiError>(made);
  EXPECT_EQ(error.param, "tools");
  EXPECT_NE(error.message.find("rule \"missing\" is not defined"), std::string::npos)
      << error.message;
}

}  // namespace
}  // namespace fathom::answer::tests
