#pragma once
// What GET /docs shows of each endpoint to copy into a shell: bodies that the demo model answers, and the command that
// sends one.
//
//   std::string command = example_command(operation, "deepseek-v3");   // curl $FATHOM/v1/models; empty = there is none
//
// Pure, thread-safe.

#include <string>
#include <string_view>

#include "api/tables/openapi.h"

namespace fathom::api {

// `model` is any name; it is quoted for JSON and for the shell.
std::string example_command(const OpenApiOperation& operation, std::string_view model);

}  // namespace fathom::api
