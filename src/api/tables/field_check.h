#pragma once
// The names of an object against its FieldTable: a name that nobody knows is a problem, and so is a refused field
// with a value that asks for something. FieldReader does this for every object that it reads.
//
//   check_names(tool, "tools[0]", tool_fields(), problem);
//   // 400: unknown field 'tools[0].nam'; did you mean 'name'?
//
// Of a body only the members that the table refuses are parsed for it. Pure, thread-safe.

#include <string>

#include "api/tables/field_table.h"
#include "base/json_fwd.h"
#include "base/json_members.h"

namespace fathom::api {

class FieldProblem;

// `path` is where the object stands: "tools[0]". REQUIRES: object.is_object().
void check_names(const json::Value& object, const std::string& path, const FieldTable& table,
                 FieldProblem& problem);
// Of a body.
void check_names(json::Members& body, const FieldTable& table, FieldProblem& problem);

}  // namespace fathom::api
