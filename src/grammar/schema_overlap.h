#pragma once
// Whether a value that is written for one schema could satisfy another one too: the question that "oneOf"
// asks. A sure "no" where types, const and enum values, or a required property tell the two apart; where it
// is not obvious, the answer is "perhaps".
//
//   SchemaOverlap overlap(budget, [&](const json::Value& schema) { return target_of_its_ref(schema); });
//   if (!overlap.are_disjoint({&siblings, &branch_a}, {&siblings, &branch_b})) refuse();
//
// What is written is less than what is valid: a schema without "type" is written only as the types that its
// keywords speak about. Used by one thread; keeps no schema.

#include <functional>
#include <vector>

#include "base/json.h"
#include "grammar/budget.h"

namespace fathom::grammar {

class SchemaOverlap {
 public:
  // All of these hold together.
  using Schemas = std::vector<const json::Value*>;
  // The schema that a "$ref" leads to; null where there is none.
  using Resolve = std::function<const json::Value*(const json::Value& schema)>;

  SchemaOverlap(Budget& budget, Resolve resolve) : budget_(budget), resolve_(std::move(resolve)) {}

  // No value that is written for the one satisfies the other.
  bool are_disjoint(const Schemas& a, const Schemas& b) {
    return never_satisfies({a, true, 0}, b) && never_satisfies({b, true, 0}, a);
  }

 private:
  struct View;
  // Schemas as they are written. infers: these are all that is known about the value, so that keywords may
  // stand for the type that is not named.
  struct Written {
    Schemas schemas;
    bool infers;
    int depth;
  };
  bool never_satisfies(const Written& written, const Schemas& other);
  bool property_differs(const View& written, const View& other, int depth);
  View view_of(const Schemas& schemas, int depth);
  void add_keywords(const json::Value& schema, View& view, int depth);

  Budget& budget_;
  Resolve resolve_;
};

}  // namespace fathom::grammar
