#pragma once
// Schemas to expressions. Every keyword is either exactly kept, or ignored because it cannot make an output
// invalid, or refused by name. docs/grammars.md lists them.
//
//   Expression root = SchemaCompiler(document, Unlisted::kAllowed, rules).compile();
//
// A rule stands for the schemas that hold together at some place; equal ones share it. The document must outlive the
// compiler. Used by one thread.

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"
#include "grammar/schema/dsml_form.h"
#include "grammar/schema/schema_reader.h"

namespace fathom::grammar {

class SchemaCompiler {
 public:
  SchemaCompiler(const json::Value& document, Unlisted unlisted, RuleSet& rules)
      : document_(document),
        unlisted_(unlisted),
        rules_(rules),
        budget_(rules.budget()),
        reader_(document, budget_) {}

  Expression compile();
  // The members of the document's objects as parameters of DSML (dsml_form.h), what is within them as JSON.
  Expression compile_parameters(const Marker& mark, DsmlTexts& texts);

 private:
  using Value = json::Value;

  // A rule for what satisfies all of them; it is built later. The path is for messages.
  Expression value_of(Conjunction schemas, const std::string& path);
  // A number for the schema; equal schemas share one.
  int identity(const Value* schema);
  void build_pending();
  Expression build(const Conjunction& schemas);
  static unsigned types_of(const Facts& facts);
  static bool takes_any_value(const Facts& facts);
  Expression build_facts(const Facts& facts);
  Expression build_type(unsigned type, const Facts& facts);
  Expression build_values(const Facts& facts);
  Expression value_text(const Value& value);

  Expression build_string(const Facts& facts);
  Expression build_number(const Facts& facts, unsigned types);
  struct NumberRange {
    NumberUnits min, max;
    bool has_min = false, has_max = false;  // asked for
  };
  static NumberRange range_of(const NumberFacts& number, bool is_integer);
  static Expression exponents(const NumberRange& bounds);
  std::optional<TextSet> number_set(const Facts& facts, unsigned types, const Expression& range,
                                    const std::vector<std::string>& excluded);

  Expression build_array(const ArrayFacts& array);
  Expression build_list(const ArrayFacts& array, int64_t max);
  Expression build_containing(const ArrayFacts& array, int64_t max);
  Expression build_unique(const ArrayFacts& array, int64_t max);
  std::optional<std::vector<const Value*>> finite_values(const Conjunction& schemas);
  Expression item_of(const ArrayFacts& array, size_t idx, const Conjunction& more = {});

  // Objects, in json_schema_objects.cc.
  struct Listed;
  struct Counts;
  Expression build_object(const ObjectFacts& object);
  std::vector<Listed> listed_members(const ObjectFacts& object, bool is_open);
  Expression free_member(const ObjectFacts& object, const std::vector<std::string>& names,
                         bool is_open);
  std::optional<TextSet> free_names(const ObjectFacts& object,
                                    const std::vector<std::string>& names);
  Expression build_members(std::vector<Listed> listed, const Expression& one, bool has_free);
  Expression build_counted(const ObjectFacts& object, const std::vector<Listed>& listed,
                           const Expression& one, bool has_free);

  // Set for the outermost object only, and unset while anything else is built.
  struct ParameterForm {
    Marker mark;
    DsmlTexts& texts;
  };
  Expression parameter(const Expression& name, Conjunction schemas, const std::string& path);
  Expression listed_parameter(const std::string& name, Conjunction schemas);
  Expression parameter_text(const Facts& facts);
  Expression parameters_text(const Value& object);
  Expression any_parameters_of_object();
  // Between members.
  Expression separator();

  // Stops with the sentence and the place that is being built.
  Expression fail(const std::string& what);
  // "json schema at #/properties/a: "
  std::string place() const;

  const Value& document_;
  const Unlisted unlisted_;
  RuleSet& rules_;
  Budget& budget_;
  SchemaReader reader_;
  std::map<const Value*, int> identities_;
  std::map<std::string, int> identity_of_text_;
  std::map<std::vector<std::pair<int, bool>>, int> rule_of_;
  struct Pending {
    int rule;
    Conjunction schemas;
    std::string path;
  };
  std::deque<Pending> pending_;
  std::optional<ParameterForm> parameters_;
  std::string path_ = "#";  // of what is being built
  int64_t num_properties_ = 0;
};

}  // namespace fathom::grammar
