#pragma once
// RuleSet: the rules of one compilation. Front ends add rules and refer to them by index, also before they
// are written (recursion).
//
//   int list = rules.reserve();
//   rules.define(list, optional(sequence({literal("("), rule(list), literal(")")})));
//
// Used by one thread.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/expressions/budget.h"
#include "grammar/expressions/expression.h"

namespace fathom::grammar {

class RuleSet {
 public:
  explicit RuleSet(Budget& budget) : budget_(budget) {}

  Budget& budget() { return budget_; }
  int size() const { return static_cast<int>(rules_.size()); }
  int reserve() {
    rules_.emplace_back(std::nullopt);
    return size() - 1;
  }
  void define(int idx, Expression expression) {
    rules_[static_cast<size_t>(idx)] = std::move(expression);
  }
  int add(Expression expression) {
    rules_.emplace_back(std::move(expression));
    return size() - 1;
  }
  // Undefined rules (after an error) fit nothing.
  const std::optional<Expression>& operator[](int idx) const {
    return rules_[static_cast<size_t>(idx)];
  }

  // The rules for any JSON value, shared by all schemas of one white space; made by schema/json_values.cc and
  // json_space.cc on first use.
  struct JsonRules {
    int space = -1, character = -1, string = -1, number = -1, magnitude = -1, decimals = -1,
        integer = -1;
    int string_content = -1, wide_character = -1, escape = -1;
    int value = -1, object = -1, array = -1;
    std::map<std::string, int> ranges;  // of bounded numbers
  };
  JsonRules& json() { return json_[json_space_]; }
  // From now on rules of JSON have this white space (JsonStyle).
  void set_json_space(std::optional<std::string> pattern) { json_space_ = std::move(pattern); }
  const std::optional<std::string>& json_space() const { return json_space_; }

 private:
  Budget& budget_;
  std::vector<std::optional<Expression>> rules_;
  std::optional<std::string> json_space_;
  std::map<std::optional<std::string>, JsonRules> json_;
};

}  // namespace fathom::grammar
