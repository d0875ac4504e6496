#pragma once
// Schemas to expressions. Every keyword is either exactly kept, or ignored because it cannot make an output
// invalid, or refused by name. docs/grammars.md lists them.
//
//   Expression root = SchemaCompiler(document, rules).compile();
//
// The document must outlive it. Used by one thread.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/expression.h"
#include "grammar/rule_set.h"

namespace fathom::grammar {

class SchemaCompiler {
 public:
  SchemaCompiler(const json::Value& document, RuleSet& rules)
      : document_(document), rules_(rules), budget_(rules.budget()) {}

  Expression compile() { return subschema(document_, "#"); }

 private:
  using Value = json::Value;

  // A rule for the schema; equal schemas share one. The path is for messages.
  Expression subschema(const Value& schema, const std::string& path);
  Expression build(const Value& schema, const std::string& path);
  Expression build_object_schema(const Value& schema, const std::string& path);
  Expression build_types(const Value& schema, const std::string& path);
  Expression build_type(std::string_view type, const Value& schema, const std::string& path);
  Expression build_alternatives(const Value& schema, std::string_view keyword,
                                const std::string& path);
  // oneOf: a value that fits two of the branches would be wrong.
  void check_branches(const Value& siblings, const Value& branches, const std::string& path);
  Expression build_reference(const Value& schema, const std::string& path);
  Expression build_all_of(const Value& schema, const std::string& path);
  Expression build_enum(const Value& schema, const Value& values, const std::string& path);

  Expression build_string(const Value& schema, const std::string& path);
  Expression build_number(const Value& schema, bool is_integer, const std::string& path);
  Expression build_array(const Value& schema, const std::string& path);
  Expression build_object(const Value& schema, const std::string& path);
  std::vector<Member> object_members(const Value& schema, const std::string& path);
  // Members with names that the schema does not list; nothing else in the schema speaks about them.
  Expression free_members(const Value& schema, const Value& value_schema, const std::string& path);

  // Merges `more` into `all` so that both hold; fails where that cannot be written as one schema.
  void merge(Value& all, const Value& more, const std::string& path);
  const Value* resolve(const Value& schema, const std::string& path);
  // Refuses an "$id" that makes the schema a document of its own. REQUIRES: it is not the root.
  void check_base(const Value& schema, const std::string& path);
  void check_keywords(const Value& schema, const std::string& path);
  // A whole number of a keyword, `fallback` where it is missing.
  int count(const Value& schema, std::string_view keyword, int fallback, const std::string& path);
  Expression fail(const std::string& path, const std::string& what);

  const Value& document_;
  RuleSet& rules_;
  Budget& budget_;
  std::map<std::string, int> rule_of_schema_;
  std::map<std::string, int> rule_of_reference_;
  int depth_ = 0;
  int num_merges_ = 0;
  int64_t num_properties_ = 0;
};

// What a format of integers allows (OpenAPI's int32 and the like).
struct IntegerFormat {
  std::string_view name;
  int64_t min, max;
};
const IntegerFormat* find_integer_format(std::string_view format);
// Formats of numbers that restrict nothing: float, double, decimal.
bool is_free_number_format(std::string_view format);

// The schema's text for a format that is kept exactly, as a pattern; empty: the format is not known.
std::string_view string_format_pattern(std::string_view format);

}  // namespace fathom::grammar
