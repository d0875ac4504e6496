// What docs/reference/responses.md says of the fields of /v1/responses, as cases.

#include "tests/api/parameter_field.h"

namespace fathom::api::tests {
namespace {

// An object that has none of the names that the values bring.
Field setting_object(const std::string& name, int status_of_empty,
                     const std::string& missing = "") {
  return {.name = name,
          .rule = nothing(),
          .exceptions = {{"{}", status_of_empty, missing},
                         {R"({"a": 1})", 400, name + ".a"},
                         {R"({"a": {"b": [1, {"c": null}]}})", 400, name + ".a"}}};
}

Field one_of(const std::string& name, std::initializer_list<const char*> words) {
  Field field{.name = name, .rule = nothing()};
  for (const char* word : words) {
    const std::string text = "\"" + std::string(word) + "\"";
    field.exceptions.push_back({text, 200});
    field.more_values.push_back(other(text));
  }
  return field;
}

std::vector<Except> wrong_elements(const std::string& name) {
  return {{"[1]", 400, name + "[0]"}, {"[[]]", 400, name + "[0]"}, {"[\"5\"]", 400, name + "[0]"}};
}

std::vector<Field> conversation_fields_of_responses() {
  Field input{.name = "input",
              .rule = texts(0, 300),
              .exceptions = wrong_elements("input"),
              .fixed = R"("max_output_tokens": 1, )"};
  input.exceptions.push_back({"null", 400});
  input.exceptions.push_back({"\"" + std::string(301, 'a') + "\"", 200});
  Field instructions{.name = "instructions", .rule = texts(0, 300)};
  instructions.exceptions.push_back({"\"" + std::string(301, 'a') + "\"", 200});
  Field tools{.name = "tools", .rule = nothing(), .exceptions = wrong_elements("tools")};
  tools.exceptions.push_back({"[]", 200});
  Field choice = setting_object("tool_choice", 400, "tool_choice.type");
  for (const char* word : {"\"auto\"", "\"none\""}) {
    choice.exceptions.push_back({word, 200});
    choice.more_values.push_back(other(word));
  }
  // Of an id any is looked for, and not found.
  Field previous{.name = "previous_response_id", .rule = nothing()};
  previous.exceptions.push_back({"\"resp_1\"", 404});
  previous.more_values.push_back(other("\"resp_1\""));
  return {input, instructions, tools, choice, previous};
}

}  // namespace

Endpoint responses_endpoint(const CaseModel& model) {
  const std::string input = R"("input": "hi", )";
  Endpoint endpoint{.path = kResponsesPath,
                    .fixed = input + R"("max_output_tokens": 1, )",
                    .fields = conversation_fields_of_responses()};
  std::vector<Field>& fields = endpoint.fields;
  fields.push_back(model_field());
  // The prompt's length is the template's affair: 64 tokens are enough for it, none are not.
  const long double surely_left = static_cast<long double>(model.max_context_tokens) - 64;
  fields.push_back({.name = "max_output_tokens",
                    .rule = integers(-1, surely_left),
                    .exceptions = {{std::to_string(model.max_context_tokens - 63), 200}},
                    .more_values = {number(model.max_context_tokens)},
                    .fixed = input});
  fields.push_back({.name = "temperature", .rule = numbers(0, 100)});
  fields.push_back({.name = "top_p", .rule = numbers(0, 1)});
  for (const char* name : {"stream", "store", "parallel_tool_calls", "ignore_eos"}) {
    fields.push_back({.name = name, .rule = booleans()});
  }
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) {
    fields.push_back({.name = name, .rule = texts(0, 65'535)});
  }
  fields.push_back({.name = "top_logprobs",
                    .rule = integers(0, 20),
                    .fixed = endpoint.fixed + R"("include": ["message.output_text.logprobs"], )"});
  fields.push_back({.name = "max_tool_calls", .rule = integers(0, 2'147'483'647)});
  fields.push_back(one_of("truncation", {"auto", "disabled"}));
  for (const char* name : {"service_tier", "client_metadata", "session_id", "prompt_cache_options",
                           "prompt_cache_retention", "context_management"}) {
    fields.push_back({.name = name, .rule = anything()});
  }
  Field include{.name = "include", .rule = nothing(), .exceptions = wrong_elements("include")};
  include.exceptions.back() = {"[\"5\"]", 200};
  include.exceptions.push_back({"[]", 200});
  fields.push_back(std::move(include));
  fields.push_back({.name = "min_p", .rule = numbers(0, 1)});
  fields.push_back({.name = "repetition_penalty", .rule = numbers(0, 2, false)});
  fields.push_back({.name = "frequency_penalty", .rule = numbers(-2, 2)});
  fields.push_back({.name = "presence_penalty", .rule = numbers(-2, 2)});
  fields.push_back(setting_object("text", 200));
  fields.push_back(setting_object("reasoning", 200));
  fields.push_back(setting_object("stream_options", 200));
  fields.push_back({.name = "metadata",
                    .rule = nothing(),
                    .exceptions = {{"{}", 200}, {R"({"a": "b"})", 200}},
                    .more_values = {other(R"({"a": "b"})")}});
  fields.push_back({.name = "an_unknown_field", .rule = nothing()});
  append_unsupported(
      fields, {"background", "conversation", "prompt", "moderation", "access_programs", "image"});
  return endpoint;
}

}  // namespace fathom::api::tests
