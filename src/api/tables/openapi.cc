#include "api/tables/openapi.h"

#include <utility>

#include "api/tables/endpoint_fields.h"
#include "api/tables/openapi_answers.h"
#include "base/check.h"
#include "base/json.h"

namespace fathom::api {
namespace {

json::Value reference_to(const std::string& component) {
  return {{"$ref", "#/components/schemas/" + component}};
}

// Where the rule's schema says "an object", the table of these objects.
void refer_to_inner(json::Value& schema, const json::Value& reference) {
  static const json::Value any_object = {{"type", "object"}};
  if (schema == any_object) {
    schema = reference;
    return;
  }
  if (!schema.is_structured()) return;
  for (json::Value& part : schema) refer_to_inner(part, reference);
}

// null is the same as a missing field.
json::Value or_null(json::Value schema) {
  if (schema.contains("type") && schema["type"].is_string()) {
    schema["type"] = json::Value::array({schema["type"], "null"});
    return schema;
  }
  if (schema.empty()) return schema;
  return {{"anyOf", json::Value::array({std::move(schema), {{"type", "null"}}})}};
}

json::Value parsed_rule(const FieldRule& rule) {
  Result<json::Value> value = json::parse(rule.json);
  FATHOM_CHECK(value, rule.name << ": " << rule.json << " is not JSON");
  return std::move(*value);
}

json::Value honoured_schema(const FieldRule& rule) {
  json::Value schema = parsed_rule(rule);
  if (rule.inner != nullptr) refer_to_inner(schema, reference_to(component_name(rule.inner())));
  if (!rule.is_required) schema = or_null(std::move(schema));
  schema["description"] = rule.about;
  return schema;
}

json::Value refused_schema(const FieldRule& rule) {
  json::Value values =
      json::Value::array({nullptr, false, "", json::Value::array(), json::Value::object()});
  if (!rule.json.empty()) {
    for (json::Value& value : parsed_rule(rule)) values.push_back(std::move(value));
  }
  return {{"description", "refused where it asks for something: " + std::string(rule.about)},
          {"enum", std::move(values)}};
}

json::Value property_of(const FieldRule& rule) {
  switch (rule.use) {
    case FieldUse::kHonoured:
      return honoured_schema(rule);
    case FieldUse::kRefused:
      return refused_schema(rule);
    case FieldUse::kWithoutEffect:
      break;
  }
  return {{"description", "without effect: " + std::string(rule.about)}};
}

// The table and those within it.
void add_components(const FieldTable& table, UnknownFields unknown, json::Value& schemas) {
  const std::string name = component_name(table);
  if (schemas.contains(name)) return;
  schemas[name] = schema_of(table, unknown);
  for (const FieldRule& rule : table.rules()) {
    if (rule.inner != nullptr) add_components(rule.inner(), unknown, schemas);
  }
}

json::Value error_schema() {
  const json::Value text_or_null = {{"type", json::Value::array({"string", "null"})}};
  return {{"type", "object"},
          {"properties",
           {{"error",
             {{"type", "object"},
              {"properties",
               {{"message", {{"type", "string"}}},
                {"type", {{"type", "string"}}},
                {"param", text_or_null},
                {"code", text_or_null}}}}}}}};
}

// /v1/tokenize and /chat/completions take what /tokenize and /v1/chat/completions take.
const FieldTable* fields_of(const OpenApiOperation& operation) {
  for (const EndpointFields& endpoint : endpoints_with_fields()) {
    const std::string_view path = endpoint.path;
    const std::string_view bare = path.starts_with("/v1/") ? path.substr(3) : path;
    if (operation.path == path || operation.path.ends_with(bare)) return &endpoint.fields();
  }
  return nullptr;
}

json::Value json_content(json::Value schema) {
  return {{"application/json", {{"schema", std::move(schema)}}}};
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// "post_v1_chat_completions"
std::string operation_id(const OpenApiOperation& operation) {
  std::string id = lower_case(operation.method);
  for (const char c : operation.path) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (is_word) {
      id += c;
    } else if (id.back() != '_') {
      id += '_';
    }
  }
  if (id.back() == '_') id.pop_back();
  return id;
}

json::Value operation_object(const OpenApiOperation& operation) {
  json::Value object = {{"summary", operation.summary},
                        {"operationId", operation_id(operation)},
                        {"responses", json::Value::object()}};
  const FieldTable* const fields = operation.method == "GET" ? nullptr : fields_of(operation);
  const bool streams = fields != nullptr && fields->find("stream") != nullptr &&
                       !operation.path.ends_with("/count_tokens");
  object["responses"]["200"] = {{"description", "the answer"},
                                {"content", answer_content(operation.path, streams)}};
  object["responses"]["default"] = {{"description", "an error"},
                                    {"content", json_content(reference_to("error"))}};
  if (!operation.needs_key) object["security"] = json::Value::array();
  if (fields != nullptr) {
    object["requestBody"] = {{"required", true},
                             {"content", json_content(reference_to(component_name(*fields)))}};
  }
  const size_t open = operation.path.find('{');
  if (open != std::string::npos) {
    object["parameters"] = json::Value::array(
        {{{"name", operation.path.substr(open + 1, operation.path.size() - open - 2)},
          {"in", "path"},
          {"required", true},
          {"schema", {{"type", "string"}}}}});
  }
  return object;
}

}  // namespace

std::string component_name(const FieldTable& table) {
  std::string name;
  for (const char c : table.name()) {
    // Names of components have no other characters.
    if (c == ' ') name += '.';
    if (c != '[' && c != ']' && c != '/' && c != ' ') name += c;
  }
  return name;
}

json::Value schema_of(const FieldTable& table, UnknownFields unknown_fields) {
  json::Value properties = json::Value::object(), required = json::Value::array();
  for (const FieldRule& rule : table.rules()) {
    properties[std::string(rule.name)] = property_of(rule);
    if (rule.is_required) required.push_back(rule.name);
  }
  json::Value schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  schema["additionalProperties"] = unknown_fields == UnknownFields::kIgnore;
  return schema;
}

json::Value openapi_document(const OpenApiFacts& facts) {
  json::Value schemas = {{"error", error_schema()}};
  for (const EndpointFields& endpoint : endpoints_with_fields()) {
    add_components(endpoint.fields(), facts.unknown_fields.value_or(endpoint.unknown), schemas);
  }
  json::Value paths = json::Value::object();
  for (const OpenApiOperation& operation : facts.operations) {
    paths[operation.path][lower_case(operation.method)] = operation_object(operation);
  }
  return {{"openapi", "3.1.0"},
          {"info", {{"title", "Fathom"}, {"version", facts.version}}},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", std::move(schemas)},
            {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
          {"security", json::Value::array({{{"key", json::Value::array()}}})}};
}

}  // namespace fathom::api
