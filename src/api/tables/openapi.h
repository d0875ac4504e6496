#pragma once
// The API as an OpenAPI 3.1 document, made of the tables that the parsers refuse by: GET /openapi.json.
//
//   json::Value document = openapi_document({.version = "0.9.0", .operations = operations});
//
// Pure, thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "api/tables/field_table.h"
#include "base/json_fwd.h"

namespace fathom::api {

struct OpenApiOperation {
  std::string method;  // "POST"
  std::string path;    // "/v1/models/{id}"
  std::string summary = {};
  std::string group = {};  // the heading of /docs below which it stands
  bool needs_key = true;   // where there are keys
};

struct OpenApiFacts {
  std::string version;
  std::string model = {};                            // what examples of /docs ask
  std::optional<UnknownFields> unknown_fields = {};  // none: as each endpoint has it
  std::vector<OpenApiOperation> operations;
};

json::Value openapi_document(const OpenApiFacts& facts);

// The JSON schema of the objects of a table; objects within are references to #/components/schemas.
json::Value schema_of(const FieldTable& table, UnknownFields unknown_fields);
// "messages[].tool_calls[]" -> "messages.tool_calls", "/v1/responses tools[]" -> "v1responses.tools".
std::string component_name(const FieldTable& table);

}  // namespace fathom::api
