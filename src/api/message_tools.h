#pragma once
// `tools` of Anthropic's Messages form -> functions that the model is shown: the client's own tools, and those that
// have a schema without saying it (client_tools.h). Tools that a server would run (web_search_20250305) and such as
// need eyes (computer_20250124) are left out of the prompt: the conversation goes on without them, the log of skipped
// fields has a line, and only a tool_choice that names one is an error.
//
//   MessageTools tools = read_message_tools(reader, model);
//   check_is_offered(choice, tools, reader);
//   chat.tools = std::move(tools.functions);
//
// Pure, thread-safe.

#include <map>
#include <string>

#include "api/served_model.h"
#include "api/tables/field_reader.h"
#include "api/tool_fields.h"
#include "base/json.h"

namespace fathom::api {

struct MessageTools {
  // {type, function: {name, description, parameters, strict}} as chat's clients send them: templates show them whole.
  json::Value functions = json::Value::array();
  std::map<std::string, std::string> left_out;  // name -> type
};

MessageTools read_message_tools(FieldReader& reader, const ServedModel& model);

// A choice that names a tool which was left out is a problem.
void check_is_offered(const ToolChoice& choice, const MessageTools& tools, FieldReader& reader);

}  // namespace fathom::api
