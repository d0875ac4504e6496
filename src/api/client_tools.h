#pragma once
// Tools of Anthropic's API whose schema goes without saying and that the client runs itself: bash, the text editor and
// the memory, in their versions. A request names the version only; the model is shown what it means.
//
//   if (const std::optional<ClientTool> tool = client_tool("bash_20250124")) ...
//
// Pure, thread-safe.

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace fathom::api {

struct ClientTool {
  std::string description;
  json::Value input_schema;
};

// Nothing for other types. Versions that are not known yet have the schema of the latest one.
std::optional<ClientTool> client_tool(std::string_view type);

}  // namespace fathom::api
