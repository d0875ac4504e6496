#pragma once
// functions, function_call and messages of the role function: what OpenAI's API had before tools, and still takes. They
// are read as tools and calls of them, and the answer's call is shown in their form, with the finish reason
// function_call; there is at most one.
//
//   {"functions": [{"name": "f", "parameters": {...}}], "function_call": "auto",
//    "messages": [..., {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
//                 {"role": "function", "name": "f", "content": "42"}]}
//
//   json::Value tools = read_functions(reader, model);       // empty: there are none
//   LegacyCalls calls;                                        // of one conversation
//   calls.take(message, result);                              // for each of its messages
//
// Pure; LegacyCalls is not synchronised.

#include <string>

#include "api/served_model.h"
#include "api/tables/field_reader.h"
#include "api/tool_fields.h"
#include "text/conversation.h"

namespace fathom::api {

// Whether functions or function_call are what the body says of tools.
bool has_functions(FieldReader& reader);
// The functions as tools. Beside `tools` they are a problem, and so is function_call without them.
json::Value read_functions(FieldReader& reader, const ServedModel& model);
// What function_call says.
ToolChoice read_function_call(FieldReader& reader);

// Gives a call and its result an id that nobody else has: they have none of their own.
class LegacyCalls {
 public:
  // function_call of an assistant's message becomes a call; a message of the role function becomes a tool's, the result
  // of the last such call.
  void take(FieldReader& message, text::Message& result);

 private:
  int num_calls_ = 0;
  std::string open_id_, open_name_;  // of the call that has no result yet; empty: none
};

}  // namespace fathom::api
