#pragma once
// A plain recursive validator of JSON schemas, written from the specification; shares no code with the
// compiler. oneOf counts as anyOf, as documented.
//
//   EXPECT_EQ(violation(schema, schema, value), "");

#include <string>

#include "base/json.h"

namespace fathom::grammar::tests {

// Empty: the value satisfies the schema. Else the keyword that it breaks.
std::string violation(const json::Value& root, const json::Value& schema, const json::Value& value);

}  // namespace fathom::grammar::tests
