#pragma once
// What becomes of names in a body that ask for nothing: of an endpoint and of the operator's choice, and whom to tell.
// A field without effect, a name that no API has where such names are skipped, and a tool that cannot be offered are
// accepted; nobody would know of them if nobody were told.
//
//   FieldProblem problem(field_policy("/v1/messages", model.unknown_fields, model.field_log));
//   problem.skip_tool("web_search_20250305");           // for a tool that the prompt leaves out
//
// FieldPolicy is plain data; a FieldLog is thread-safe and outlives the requests.

#include <optional>
#include <string>
#include <string_view>

#include "api/tables/field_table.h"
#include "http/message.h"

namespace fathom::api {

struct SkippedField {
  enum class Kind {
    kWithoutEffect,  // a rule of a table says so
    kUnknown,        // no table has the name
    kTool,           // a tool of a type that the model cannot be offered
    kLowered,        // the endpoint's contract is an upper bound, and the context has room for less
  };
  Kind kind = Kind::kWithoutEffect;
  std::string_view endpoint;  // "/v1/messages"
  // Without effect and lowered: in the words of the tables, "user" or "messages[].annotations"; there are as many as
  // rules. Otherwise what the client wrote, shortened and without control characters.
  std::string name;
  std::string_view why;  // without effect: what the field is elsewhere
};

// Is told of each of them once for a request.
class FieldLog {
 public:
  virtual ~FieldLog() = default;
  virtual void add(const SkippedField& skipped) = 0;
};

struct FieldPolicy {
  std::string_view endpoint = {};
  UnknownFields unknown = UnknownFields::kRefuse;
  http::ClientForm form = http::ClientForm::kOpenAi;  // of errors
  FieldLog* log = nullptr;                            // null: nobody is told
};

// chosen: the operator's choice for all endpoints; none: the endpoint's own, which the table of endpoints has.
// REQUIRES: endpoints_with_fields() has the endpoint.
FieldPolicy field_policy(std::string_view endpoint, std::optional<UnknownFields> chosen,
                         FieldLog* log);

}  // namespace fathom::api
