#pragma once
// Outputs that call tools in DSML, the form of DeepSeek-V3.2, constrained to the tools' schemas:
//
//   <｜DSML｜function_calls>
//   <｜DSML｜invoke name="weather">
//   <｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>
//   </｜DSML｜invoke>
//   </｜DSML｜function_calls>
//
//   Expression output = dsml_calls({"｜DSML｜", 128815}, {{.name = "weather", .parameters_schema = "{...}"}},
//                                  {.required = true});
//
// Free text that a section may follow holds no tag, spelled by other tokens either.
// Pure functions, thread-safe.

#include <vector>

#include "grammar/tool_calls.h"

namespace fathom::grammar {

// REQUIRES: tools is not empty.
Expression dsml_calls(const Marker& mark, const std::vector<Tool>& tools,
                      const ToolCallOptions& options);

}  // namespace fathom::grammar
