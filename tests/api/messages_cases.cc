// What docs/reference/messages.md says of the fields of /v1/messages, as cases.

#include "tests/api/parameter_field.h"

namespace fathom::api::tests {
namespace {

constexpr long double kMaxInteger = 2147483647.0L;

// An object that has none of the names that the values bring.
Field named_object(const std::string& name, int status_of_empty, const std::string& missing = "") {
  return {.name = name,
          .rule = nothing(),
          .exceptions = {{"{}", status_of_empty, missing},
                         {R"({"a": 1})", 400, name + ".a"},
                         {R"({"a": {"b": [1, {"c": null}]}})", 400, name + ".a"}}};
}

std::vector<Field> conversation_fields_of_messages() {
  const std::string long_text = "\"" + std::string(301, 'a') + "\"";
  const auto elements = [](const std::string& name) -> std::vector<Except> {
    return {
        {"[1]", 400, name + "[0]"}, {"[[]]", 400, name + "[0]"}, {"[\"5\"]", 400, name + "[0]"}};
  };
  Field system{.name = "system", .rule = texts(0, 300), .exceptions = elements("system")};
  system.exceptions.push_back({"[]", 200});
  system.exceptions.push_back({long_text, 200});
  Field messages{.name = "messages",
                 .rule = nothing(),
                 .exceptions = elements("messages"),
                 .fixed = R"("max_tokens": 1, )"};
  messages.exceptions.push_back({"null", 400});
  Field tools{.name = "tools", .rule = nothing(), .exceptions = elements("tools")};
  tools.exceptions.push_back({"[]", 200});
  Field content{.name = "messages[0].content",
                .rule = texts(0, 300),
                .exceptions = elements("messages[0].content"),
                .key = "messages",
                .before = R"([{"role": "user", "content": )",
                .after = "}]",
                .fixed = R"("max_tokens": 1, )"};
  content.exceptions.push_back({"null", 400});
  content.exceptions.push_back({"[]", 200});
  content.exceptions.push_back({long_text, 200});
  return {system, messages, tools, content, named_object("tool_choice", 400, "tool_choice.type")};
}

}  // namespace

Endpoint messages_endpoint(const CaseModel& model) {
  const std::string messages = R"("messages": [{"role": "user", "content": "hi"}], )";
  Endpoint endpoint{.path = kMessagesPath,
                    .fixed = messages + R"("max_tokens": 1, )",
                    .fields = conversation_fields_of_messages()};
  std::vector<Field>& fields = endpoint.fields;
  fields.push_back(model_field());
  // An upper bound: what the context has left is less.
  fields.push_back({.name = "max_tokens",
                    .rule = integers(-1, kMaxInteger),
                    .exceptions = {{"null", 400}},
                    .more_values = {number(model.max_context_tokens)},
                    .fixed = messages});
  fields.push_back({.name = "temperature", .rule = numbers(0, 100)});
  fields.push_back({.name = "top_p", .rule = numbers(0, 1)});
  fields.push_back({.name = "top_k", .rule = integers(-1, kMaxInteger)});
  fields.push_back({.name = "stream", .rule = booleans()});
  fields.push_back({.name = "stop_sequences",
                    .rule = texts(1, 256),
                    .exceptions = {{"[]", 200},
                                   {"[\"5\"]", 200},
                                   {"[1]", 400, "stop_sequences[0]"},
                                   {"[[]]", 400, "stop_sequences[0]"}}});
  fields.push_back(named_object("thinking", 400, "thinking.type"));
  fields.push_back(named_object("output_config", 200));
  fields.push_back(named_object("output_format", 400, "output_format.type"));
  fields.push_back({.name = "an_unknown_field", .rule = nothing()});
  append_unsupported(fields, {"compaction", "thread"});
  return endpoint;
}

}  // namespace fathom::api::tests
