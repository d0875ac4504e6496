#include "api/tables/openapi.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "api/tables/docs_examples.h"
#include "api/tables/docs_page.h"
#include "api/tables/endpoint_fields.h"
#include "base/json.h"
#include "tests/api/parameter_cases.h"

namespace fathom::api::tests {
namespace {

OpenApiFacts small_facts(UnknownFields unknown = UnknownFields::kRefuse) {
  return {
      .version = "1.2.3",
      .unknown_fields = unknown,
      .operations = {{.method = "POST", .path = "/v1/chat/completions", .summary = "chat"},
                     {.method = "POST", .path = "/beta/completions", .summary = "text"},
                     {.method = "POST", .path = "/v1/tokenize", .summary = "ids"},
                     {.method = "GET", .path = "/v1/models/{id}", .summary = "<one> model"},
                     {.method = "GET", .path = "/livez", .summary = "lives", .needs_key = false}}};
}

// Every "$ref" within names a component.
void check_references(const json::Value& value, const json::Value& schemas) {
  if (!value.is_structured()) return;
  if (value.is_object() && value.contains("$ref")) {
    const std::string reference = value["$ref"];
    const std::string prefix = "#/components/schemas/";
    ASSERT_TRUE(reference.starts_with(prefix)) << reference;
    EXPECT_TRUE(schemas.contains(reference.substr(prefix.size()))) << reference;
  }
  for (const json::Value& part : value) check_references(part, schemas);
}

TEST(OpenApi, describes_operations_with_their_bodies) {
  const json::Value document = openapi_document(small_facts());
  EXPECT_EQ(document["openapi"], "3.1.0");
  EXPECT_EQ(document["info"]["version"], "1.2.3");
  const auto body_of = [&](const char* path) {
    return document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
                   ["$ref"];
  };
  EXPECT_EQ(body_of("/v1/chat/completions"), "#/components/schemas/chat");
  EXPECT_EQ(body_of("/beta/completions"), "#/components/schemas/completions");
  EXPECT_EQ(body_of("/v1/tokenize"), "#/components/schemas/tokenize");
  const json::Value& model = document["paths"]["/v1/models/{id}"]["get"];
  EXPECT_EQ(model["parameters"][0]["name"], "id");
  EXPECT_FALSE(model.contains("requestBody"));
  EXPECT_EQ(document["paths"]["/livez"]["get"]["security"], json::Value::array());
  check_references(document, document["components"]["schemas"]);
}

TEST(OpenApi, has_every_field_with_what_becomes_of_it) {
  const json::Value document = openapi_document(small_facts());
  const json::Value& schemas = document["components"]["schemas"];
  for (const EndpointFields& endpoint : endpoints_with_fields()) {
    const json::Value& schema = schemas[component_name(endpoint.fields())];
    EXPECT_EQ(schema["properties"].size(), endpoint.fields().rules().size());
    EXPECT_EQ(schema["additionalProperties"], false);
  }
  const json::Value& chat = schemas["chat"]["properties"];
  EXPECT_EQ(json::dump(schemas["chat"]["required"]), R"(["messages"])");
  EXPECT_EQ(chat["messages"]["items"]["$ref"], "#/components/schemas/messages");
  EXPECT_EQ(json::dump(chat["temperature"]["type"]), R"(["number","null"])");
  EXPECT_EQ(json::dump(chat["mirostat"]["enum"]), R"([null,false,"",[],{},0])");
  EXPECT_TRUE(chat["user"]["description"].get<std::string>().starts_with("without effect"));
  EXPECT_EQ(openapi_document(small_facts(
                UnknownFields::kIgnore))["components"]["schemas"]["chat"]["additionalProperties"],
            true);
}

// Whether the schema takes the value: as much of JSON schema as the tables write.
bool takes(const json::Value& schema, const json::Value& value) {
  if (schema.contains("anyOf")) {
    for (const json::Value& option : schema["anyOf"]) {
      if (takes(option, value)) return true;
    }
    return false;
  }
  if (schema.contains("enum")) {
    for (const json::Value& option : schema["enum"]) {
      if (option == value) return true;
    }
    return false;
  }
  if (schema.contains("const")) return schema["const"] == value;
  if (schema.contains("$ref")) return value.is_object();
  if (schema.contains("type")) {
    const auto is_of = [&](const std::string& type) {
      if (type == "null") return value.is_null();
      if (type == "boolean") return value.is_boolean();
      if (type == "string") return value.is_string();
      if (type == "array") return value.is_array();
      if (type == "object") return value.is_object();
      if (!value.is_number()) return false;
      return type == "number" || std::trunc(value.get<double>()) == value.get<double>();
    };
    bool is_some = false;
    if (schema["type"].is_string()) is_some = is_of(schema["type"]);
    for (const json::Value& type : schema["type"]) is_some = is_some || is_of(type);
    if (!is_some) return false;
  }
  if (value.is_number()) {
    const auto number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>()) return false;
    if (schema.contains("maximum") && number > schema["maximum"].get<double>()) return false;
    if (schema.contains("exclusiveMinimum") && number <= schema["exclusiveMinimum"].get<double>())
      return false;
  }
  return true;
}

// What the parsers accept the description allows, and numbers and flags that it does not allow they refuse.
TEST(OpenApi, says_of_values_what_the_parsers_do) {
  const json::Value document = openapi_document(small_facts());
  const json::Value& schemas = document["components"]["schemas"];
  int num_checked = 0;
  for (const ParameterCase& c : field_cases({.vocab_size = 2048, .max_context_tokens = 1024})) {
    const FieldTable* table = nullptr;
    for (const EndpointFields& endpoint : endpoints_with_fields()) {
      if (endpoint.path == c.path) table = &endpoint.fields();
    }
    ASSERT_NE(table, nullptr) << c.path;
    const Result<json::Value> value = json::parse(c.value);
    const FieldRule* rule = table->find(c.field);
    if (!value || rule == nullptr) continue;
    const json::Value& schema = schemas[component_name(*table)]["properties"][c.field];
    if (c.status == 200) {
      // A seed near 2^64 is no double; its type is enough.
      EXPECT_TRUE(takes(schema, *value) || rule->is_required)
          << c.path << " " << c.field << " " << c.value.substr(0, 80);
    }
    const bool is_plain = value->is_number() || value->is_boolean();
    if (is_plain && !takes(schema, *value)) {
      EXPECT_NE(c.status, 200) << c.path << " " << c.field << " " << c.value;
    }
    ++num_checked;
  }
  EXPECT_GE(num_checked, 2000);
}

TEST(DocsPage, holds_every_name_and_asks_for_nothing_from_outside) {
  OpenApiFacts facts = small_facts();
  for (const EndpointFields& endpoint : endpoints_with_fields())
    facts.operations.push_back({.method = "POST", .path = std::string(endpoint.path)});
  const std::string page = docs_page(facts);
  for (const EndpointFields& endpoint : endpoints_with_fields()) {
    for (const FieldRule& rule : endpoint.fields().rules()) {
      EXPECT_NE(page.find("<code>" + std::string(rule.name) + "</code>"), std::string::npos)
          << rule.name;
    }
  }
  EXPECT_NE(page.find("&lt;one&gt; model"), std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "<script", "@import", "url("}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
}

TEST(DocsPage, shows_an_endpoint_once_with_its_other_names) {
  const OpenApiFacts facts{
      .version = "1",
      .operations = {
          {.method = "GET", .path = "/a", .summary = "first", .group = "One"},
          {.method = "PUT", .path = "/a", .summary = "first", .group = "One"},
          {.method = "GET", .path = "/b", .summary = "as /a", .group = "One"},
          {.method = "GET", .path = "/c", .summary = "as /a", .group = "Two", .needs_key = false},
          {.method = "GET", .path = "/d", .summary = "as /a, and more", .group = "Two"}}};
  const std::string page = docs_page(facts);
  EXPECT_NE(page.find("Also <code>PUT /a</code> <code>GET /b</code>"), std::string::npos) << page;
  EXPECT_EQ(page.find("id=\"get-b\""), std::string::npos);
  for (const char* id : {"one", "two", "get-a", "get-c", "get-d"}) {
    EXPECT_NE(page.find("id=\"" + std::string(id) + "\""), std::string::npos) << id;
    EXPECT_NE(page.find("href=\"#" + std::string(id) + "\""), std::string::npos) << id;
  }
}

TEST(DocsPage, an_example_quotes_any_model_for_json_and_the_shell) {
  const OpenApiOperation chat{.method = "POST", .path = "/v1/chat/completions"};
  const std::string command = example_command(chat, "it's \"mine\"");
  EXPECT_NE(command.find(R"("model": "it'\''s \"mine\"")"), std::string::npos) << command;
  EXPECT_EQ(example_command({.method = "GET", .path = "/v1/models"}, "m"),
            "curl $FATHOM/v1/models");
  EXPECT_EQ(example_command({.method = "POST", .path = "/flush_cache"}, "m"),
            "curl -X POST $FATHOM/flush_cache");
  EXPECT_EQ(example_command({.method = "GET", .path = "/v1/models/{id}"}, "m"), "");
}

}  // namespace
}  // namespace fathom::api::tests
