#pragma once
// SchemaReader: schemas as alternatives, each of which is Facts. References are followed, "allOf" is merged, "anyOf",
// "oneOf", "if" and the like become alternatives, and "not" is carried inwards.
//
//   SchemaReader reader(document, budget);
//   const Alternatives ways = reader.read({{&document, false}});
//   if (!reader.ok()) return reader.problem();
//
// What is read is never more than what the schemas allow. Used by one thread; the document must outlive it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "grammar/expressions/budget.h"
#include "grammar/schema/schema_facts.h"
#include "grammar/schema/schema_texts.h"

namespace fathom::grammar {

struct Alternatives {
  std::vector<Facts> all;
  // Nothing that the schemas allow was left out. What formats and patterns allow is up to schema_texts.h.
  bool is_exact = true;
};

class SchemaReader {
 public:
  using Value = json::Value;

  SchemaReader(const Value& document, Budget& budget)
      : document_(document), budget_(budget), texts_(budget) {}

  // REQUIRES: ok().
  Alternatives read(const Conjunction& schemas);
  bool ok() const { return budget_.ok() && problem_.empty(); }
  // A sentence without the place.
  const std::string& problem() const { return problem_; }
  // Why something was left out of the last thing that was read.
  const std::string& left_out() const { return left_out_; }

  // Whether the value satisfies the facts: kSurely and kPerhaps differ where formats and patterns are not exact.
  enum class Sure : uint8_t { kSurely, kPerhaps };
  bool satisfies(const Value& value, const Facts& facts, Sure sure);
  bool satisfies(const Value& value, const Conjunction& schemas, Sure sure);
  // No value satisfies them, for sure.
  bool is_impossible(const Facts& facts, int depth = 0);

  // What a member with the name has to satisfy.
  Conjunction member_schemas(const ObjectFacts& object, const std::string& name);
  Conjunction item_schemas(const ArrayFacts& array, size_t idx) const;
  bool matches(const std::string& pattern, const std::string& text);
  TextSets& texts() { return texts_; }
  // Follows references that stand alone.
  SignedSchema target_of(SignedSchema schema);
  bool refuse(const std::string& what);

 private:
  // Which names are present, where a schema asks nothing else of objects.
  struct Presence {
    std::vector<PresenceClause> clauses;  // all of them hold
    bool others = true;                   // values that are no objects satisfy it
  };

  Alternatives read_one(const SignedSchema& schema);
  Alternatives read_schema(const Value& schema);
  Alternatives read_negated(const Value& schema);
  Alternatives all_of(const Alternatives& a, const Alternatives& b);
  void add(Alternatives& all, Alternatives more);
  Alternatives any_of(const Value& branches, bool negated);
  Alternatives one_of(const Value& siblings, const Value& branches);
  Alternatives not_one_of(const Value& branches);
  Alternatives read_combined(const Value& schema, Alternatives all);
  Alternatives read_conditional(const Value& schema, bool negated);
  Alternatives read_dependent(const std::string& name, const Value& dependent);
  Alternatives as_meant(Alternatives ways);
  std::vector<std::vector<size_t>> separate(std::vector<Alternatives>& ways);
  // No value satisfies both. The second looks at what was read, whether or not something was left out.
  bool are_disjoint(const Alternatives& a, const Alternatives& b);
  bool are_disjoint_facts(const Alternatives& a, const Alternatives& b);
  void close_unevaluated(const Value& schema, Alternatives& all);

  void read_keyword(const std::string& key, const Value& value, const Value& schema, Facts& facts);
  bool read_string_keyword(const std::string& key, const Value& value, Facts& facts);
  bool read_number_keyword(const std::string& key, const Value& value, const Value& schema,
                           Facts& facts);
  bool read_array_keyword(const std::string& key, const Value& value, const Value& schema,
                          Facts& facts);
  bool read_object_keyword(const std::string& key, const Value& value, const Value& schema,
                           Facts& facts);
  void read_items(const Value& schema, Facts& facts);
  void negate_keyword(const std::string& key, const Value& value, const Value& schema,
                      Alternatives& ways);
  bool negate_bound(const std::string& key, const Value& value, const Value& schema,
                    Alternatives& ways);
  bool negate_members(const std::string& key, const Value& value, Alternatives& ways);
  bool negate_items(const std::string& key, const Value& value, const Value& schema,
                    Alternatives& ways);
  void leave_out(Alternatives& ways, const std::string& what);
  int64_t count(const Value& value, const std::string& key);
  std::optional<NumberUnits> bound(const Value& value, const std::string& key);

  std::optional<Presence> presence(const Value& schema, bool negated, int depth);
  std::optional<Presence> presence_of(const std::string& key, const Value& schema, bool negated,
                                      int depth);
  std::optional<Presence> presence_of_list(const Value& list, bool all, bool negated, int depth);
  std::optional<Presence> presence_of_one(const Value& list, int depth);
  static std::optional<Presence> both_present(Presence a, const Presence& b);
  std::optional<Presence> either_present(const Presence& a, const Presence& b);
  static Alternatives as_alternatives(const Presence& presence);

  bool is_type_impossible(unsigned type, const Facts& facts, int depth);
  bool is_object_impossible(const ObjectFacts& object, int depth);
  bool are_impossible(const Conjunction& schemas, int depth);
  bool satisfies_string(const std::string& text, const StringFacts& facts, Sure sure);
  bool satisfies_number(const Value& value, const NumberFacts& facts, Sure sure);
  bool satisfies_array(const Value& value, const ArrayFacts& facts, Sure sure);
  bool satisfies_object(const Value& value, const ObjectFacts& facts, Sure sure);

  const Value* resolve(const Value& schema);
  void check_keywords(const Value& schema);

  const Value& document_;
  Budget& budget_;
  TextSets texts_;
  std::string problem_, left_out_;
  int depth_ = 0;
};

// Those whose names "additionalProperties" leaves alone.
std::vector<std::string> patterns_of(const ObjectFacts::Rest& rest);
// Whether the specification knows the keyword as one that restricts values or leads to schemas that do.
bool is_keyword(std::string_view key);
// The types that it speaks about; 0: all or none.
unsigned types_of_keyword(std::string_view key);
// What formats of integers allow (OpenAPI's int32 and the like).
struct IntegerFormat {
  std::string_view name;
  NumberUnits min, max;
};
const IntegerFormat* find_integer_format(std::string_view format);
// Formats of numbers that restrict nothing: float, double, decimal.
bool is_free_number_format(std::string_view format);

}  // namespace fathom::grammar
