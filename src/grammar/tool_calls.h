#pragma once
// Outputs that call tools, constrained to the tools' schemas. The chat format is given as data: the server
// copies it from text::ToolCallForm and looks up the markers' tokens.
//
//   ToolCallSyntax syntax = {.section_begin = {"<｜tool▁calls▁begin｜>", 128806}, ...};
//   Expression output = tool_calls(syntax, {{.name = "weather", .parameters_schema = "{...}"}},
//                                  {.required = true, .reasoning_end = Marker{"</think>", 128799}});
//
// Pure functions, thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "grammar/expressions/expression.h"

namespace fathom::grammar {

// One step of a call, as text::CallStep.
struct ToolCallStep {
  enum class Kind : uint8_t {
    kLiteral,  // `literal`, as its token or as bytes
    kSpace,    // nothing, a space or a line break
    kName,     // the tool's name
    kCallId,   // functions.NAME:INDEX
    kObject,   // the arguments
  };
  Kind kind;
  Marker literal = {};
};

struct ToolCallSyntax {
  Marker section_begin, section_end;
  Marker call_begin;
  std::vector<ToolCallStep> steps;  // what follows call_begin, the end of the call included
};

struct Tool {
  std::string name;
  std::string parameters_schema;  // JSON text of an object schema; empty = any object
  bool strict = false;            // the schema's bare objects are empty
  // The arguments are {"input": "..."} in place of that, and what the string says is of this form.
  std::optional<Expression> input = {};
};

struct ToolCallOptions {
  // true: the answer is a section with at least one call. false: free text, in which a section may follow.
  bool required = false;
  bool parallel = true;  // more than one call
  // The prompt opened a reasoning that ends with this marker.
  std::optional<Marker> reasoning_end = {};
};

// REQUIRES: tools is not empty.
Expression tool_calls(const ToolCallSyntax& syntax, const std::vector<Tool>& tools,
                      const ToolCallOptions& options);

}  // namespace fathom::grammar
