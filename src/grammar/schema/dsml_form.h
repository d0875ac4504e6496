#pragma once
// What the parameters of a call in DSML are made of, DeepSeek-V3.2's form of calls:
//
//   <｜DSML｜parameter name="NAME" string="true">TEXT</｜DSML｜parameter>
//
//   Expression city = dsml_parameter(mark, literal("city"), DsmlKind::kText, *DsmlTexts(rules).text_of(set));
//
// The mark is one special token where the vocabulary has it. A text holds no tag, spelled by other tokens either: so
// far it is any text. Used by one thread.

#include <optional>
#include <string_view>

#include "grammar/expressions/expression.h"
#include "grammar/expressions/rule_set.h"
#include "grammar/expressions/text_set.h"

namespace fathom::grammar {

enum class DsmlKind : uint8_t { kText, kJson };
Expression dsml_parameter(const Marker& mark, const Expression& name, DsmlKind kind,
                          const Expression& value);

// Whether it can stand between the quotes of a tag.
bool is_dsml_name(std::string_view name);
// Whether it holds no tag.
bool is_dsml_text(std::string_view text);

class DsmlTexts {
 public:
  explicit DsmlTexts(RuleSet& rules) : rules_(rules) {}

  Expression any_text();
  Expression any_name();
  // Those of the set that are texts, that are names. nullopt: too large.
  std::optional<Expression> text_of(const TextSet& set);
  std::optional<Expression> name_of(const TextSet& set);

 private:
  Expression expression_of(const TextSet& set);

  RuleSet& rules_;
  int any_text_ = -1, any_name_ = -1;  // rules
};

// The members of an object of the schema, a line each; an empty schema: any. An error fails the rules' budget.
Expression lower_dsml_parameters(std::string_view schema, const Marker& mark,
                                 const JsonStyle& style, RuleSet& rules);

}  // namespace fathom::grammar
