#pragma once
// Where a "$ref" leads within its document.
//
//   Result<const json::Value*> target = find_reference(document, "#/$defs/a%20b");
//   if (!target) return target.error();      // "\"$ref\" to #/$defs/a%20b, which does not exist"
//
// A reference is a fragment, behind the document's own "$id" perhaps: nothing or a JSON pointer to a schema, or the
// name of an "$anchor" (or of an "$id" that is "#name", as older drafts write it). A schema below the root whose "$id"
// is more than a fragment is a document of its own, with other meanings for the references in it: references do
// not lead into one, and json_schema.cc refuses it.
//
// Pure functions. What they return points into the document.

#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"

namespace fathom::grammar {

Result<const json::Value*> find_reference(const json::Value& document, std::string_view reference);

// The schema has an "$id" that makes it a document of its own.
bool has_own_base(const json::Value& schema);

}  // namespace fathom::grammar
