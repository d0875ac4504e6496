// What the arguments of tools are held to where a schema says little, or more than can be compiled.
#include "answer/tool_schemas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "api/chat_request.h"
#include "base/json.h"
#include "tests/answer/constraint_walk.h"
#include "tests/api/demo_served_model.h"
#include "text/chat_markup.h"

namespace fathom::answer::tests {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const WalkModel& demo() {
  static const WalkModel model =
      walk_model(api::tests::demo_tokenizer(), text::ChatFormat::kV31, 2048);
  return model;
}

// A tool of the name "tool"; no parameters where the text is empty.
json::Value tool(const std::string& parameters, bool strict = false) {
  json::Value function = {{"name", "tool"}};
  if (!parameters.empty()) function["parameters"] = json::parse(parameters).value();
  if (strict) function["strict"] = true;
  return {{"type", "function"}, {"function", std::move(function)}};
}

api::GenerationRequest request_with(json::Value more) {
  more["messages"] = {{{"role", "user"}, {"content", "Hello"}}};
  return api::tests::accepted(api::parse_chat_request(json::dump(more), demo().served));
}

api::GenerationRequest call_of(json::Value one_tool) {
  return request_with({{"tools", {std::move(one_tool)}}, {"tool_choice", "required"}});
}

std::string call_that_begins(const std::string& arguments, const std::string& name = "tool") {
  return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + arguments;
}

// An output may begin so, and end later.
bool may_begin(const api::GenerationRequest& request, const std::string& prefix) {
  return walk(demo(), request, {.seed = 5, .prefix = prefix}).problem.empty();
}

// Why a request is refused; empty: it is not.
std::string refusal(const api::GenerationRequest& request) {
  const auto made = demo().factory->make(request, request.items.front());
  const auto* const error = std::get_if<api::ApiError>(&made);
  return error == nullptr ? "" : error->param + ": " + error->message;
}

TEST(ToolSchemas, a_tool_without_parameters_takes_none) {
  for (const char* const parameters :
       {"", "{}", R"({"type":"object"})", R"({"type":"object","properties":{}})",
        R"({"$schema":"x","type":"object","properties":{},"required":[]})"}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const Walked walked = walk(demo(), call_of(tool(parameters)), {.seed = seed});
      ASSERT_EQ(walked.problem, "") << parameters;
      ASSERT_FALSE(walked.calls.empty()) << walked.text;
      EXPECT_EQ(json::parse(walked.calls[0].arguments).value(), json::Value::object())
          << walked.text;
    }
  }
}

TEST(ToolSchemas, what_a_schema_says_of_members_holds_without_properties_too) {
  for (const char* const parameters :
       {R"({"type":"object","additionalProperties":true})", R"({"additionalProperties":{}})",
        R"({"type":"object","patternProperties":{"^a":{"type":"integer"}}})",
        R"({"type":"object","required":["a"]})", R"({"type":"object","maxProperties":2})",
        R"({"$ref":"#/$defs/x","$defs":{"x":{"type":"object","properties":{"a":{}}}}})"}) {
    EXPECT_TRUE(may_begin(call_of(tool(parameters)), call_that_begins(R"({"a":1)"))) << parameters;
  }
}

TEST(ToolSchemas, bare_objects_are_empty_where_the_schema_is_strict) {
  const char* const nested =
      R"({"type":"object","properties":{"in":{"type":"object"},"any":{}},"additionalProperties":false})";
  const std::string bare = call_that_begins(R"({"in":{"a":1)");
  EXPECT_TRUE(may_begin(call_of(tool(nested)), bare));
  EXPECT_FALSE(may_begin(call_of(tool(nested, /*strict=*/true)), bare));
  // A value of which the schema says nothing stays free.
  const std::string any = call_that_begins(R"({"any":{"a":1)");
  EXPECT_TRUE(may_begin(call_of(tool(nested, /*strict=*/true)), any));
  for (const bool strict : {false, true}) {
    const api::GenerationRequest request = request_with(
        {{"response_format",
          {{"type", "json_schema"},
           {"json_schema", {{"schema", json::parse(nested).value()}, {"strict", strict}}}}}});
    EXPECT_EQ(may_begin(request, R"({"in":{"a":1)"), !strict);
    EXPECT_TRUE(may_begin(request, R"({"in":{ })"));
  }
}

TEST(ToolSchemas, a_schema_that_cannot_be_kept_and_was_not_asked_for_ends_no_request) {
  for (
      const char* const parameters :
      {R"({"type":"object","properties":{"tags":{"type":"array","items":{"type":"string"},"uniqueItems":true}}})",
       R"({"type":"object","properties":{"tags":{"$ref":"https://example.com/tags.json"}}})",
       R"({"type":"object","properties":{"tags":{"type":"string","pattern":"(a)\\1"}}})"}) {
    json::Value held = tool(R"({"type":"object","properties":{"n":{"type":"integer"}}})", true);
    held["function"]["name"] = "held";
    for (const bool parallel : {true, false}) {
      const api::GenerationRequest request = request_with({{"tools", {held, tool(parameters)}},
                                                           {"tool_choice", "required"},
                                                           {"parallel_tool_calls", parallel}});
      EXPECT_EQ(refusal(request), "");
      EXPECT_TRUE(may_begin(request, call_that_begins(R"({"tags":[1,1],"more":2)"))) << parameters;
      EXPECT_TRUE(may_begin(request, call_that_begins(R"({"n":1)", "held")));
      EXPECT_FALSE(may_begin(request, call_that_begins(R"({"n":"a")", "held")));
    }
    EXPECT_THAT(refusal(call_of(tool(parameters, /*strict=*/true))),
                AllOf(HasSubstr("tools: the tool \"tool\": "), HasSubstr("#/properties/tags")))
        << parameters;
  }
}

// Of what JSON can write and the form of the calls cannot.
TEST(ToolSchemas, a_name_that_no_tag_can_hold_lets_go_of_its_tool_alone) {
  const WalkModel model = walk_model(api::tests::demo_tokenizer(), text::ChatFormat::kV32, 2048);
  json::Value held = tool(R"({"type":"object","properties":{"n":{"type":"integer"}}})");
  held["function"]["name"] = "held";
  const auto request = [&](bool strict) {
    const json::Value quoted =
        tool(R"({"type":"object","properties":{"a\"b":{"type":"integer"}}})", strict);
    const json::Value body = {{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
                              {"tools", {held, quoted}},
                              {"tool_choice", "required"}};
    return api::tests::accepted(api::parse_chat_request(json::dump(body), model.served));
  };
  const auto may_have = [&](const std::string& name, const std::string& parameter) {
    const std::string mark(text::markup::kDsml);
    const std::string prefix = "<" + mark + "function_calls>\n<" + mark + "invoke name=\"" + name +
                               "\">\n<" + mark + "parameter name=\"" + parameter;
    return walk(model, request(false), {.seed = 5, .prefix = prefix}).problem.empty();
  };
  EXPECT_TRUE(may_have("tool", "other\" string=\"false\">1"));
  EXPECT_TRUE(may_have("held", "n\" string=\"false\">1"));
  EXPECT_FALSE(may_have("held", "other\" string=\"false\">1"));
  const api::GenerationRequest strict = request(true);
  const auto made = model.factory->make(strict, strict.items.front());
  ASSERT_TRUE(std::holds_alternative<api::ApiError>(made));
  EXPECT_THAT(std::get<api::ApiError>(made).message, HasSubstr("the tool \"tool\": json schema"));
}

TEST(ToolSchemas, a_refused_pattern_is_named_with_its_place) {
  const std::string back_reference =
      R"({"type":"object","properties":{"mail":{"type":"string","pattern":"(a)\\1"}}})";
  EXPECT_THAT(
      refusal(call_of(tool(back_reference, /*strict=*/true))),
      AllOf(HasSubstr("the tool \"tool\""), HasSubstr("json schema at #/properties/mail: ")));
  EXPECT_EQ(refusal(call_of(tool(back_reference))), "");
  const api::GenerationRequest form =
      request_with({{"response_format",
                     {{"type", "json_schema"},
                      {"json_schema", {{"schema", json::parse(back_reference).value()}}}}}});
  EXPECT_THAT(refusal(form), HasSubstr("response_format: json schema at #/properties/mail: "));
}

// Together too large, each of them small.
TEST(ToolSchemas, tools_that_are_too_large_together_take_any_object) {
  std::string names;
  for (int i = 0; i < 3000; ++i) {
    names += (i > 0 ? ",\"name" : "\"name") + std::to_string(i) + R"(":{"type":"boolean"})";
  }
  const std::string schema = R"({"type":"object","properties":{)" + names + "}}";
  json::Value tools = json::Value::array();
  for (int i = 0; i < 4; ++i) {
    tools.push_back(tool(schema));
    tools.back()["function"]["name"] = "tool" + std::to_string(i);
  }
  const api::GenerationRequest request =
      request_with({{"tools", tools}, {"tool_choice", "required"}});
  EXPECT_EQ(refusal(request), "");
  EXPECT_TRUE(may_begin(request, call_that_begins(R"({"other":1)", "tool3")));
  for (json::Value& one : tools) one["function"]["strict"] = true;
  EXPECT_THAT(refusal(request_with({{"tools", tools}, {"tool_choice", "required"}})),
              HasSubstr("tools: "));
}

TEST(ToolSchemas, a_schema_of_true_or_none_is_any_json) {
  const auto form = [](const json::Value& named) {
    return request_with({{"response_format", {{"type", "json_schema"}, {"json_schema", named}}}});
  };
  EXPECT_TRUE(may_begin(form({{"schema", true}}), "[1,"));
  EXPECT_FALSE(may_begin(form(json::Value::object()), "["));
  EXPECT_TRUE(may_begin(form(json::Value::object()), R"({"a":[)"));
  EXPECT_FALSE(may_begin(form({{"schema", R"({"type":"integer"})"}}), "{"));
  EXPECT_TRUE(may_begin(form({{"schema", R"({"type":"integer"})"}}), "1"));
}

}  // namespace
}  // namespace fathom::answer::tests
