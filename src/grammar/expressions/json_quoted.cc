#include "grammar/expressions/json_quoted.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/expressions/front_ends.h"
#include "grammar/expressions/regex_parser.h"

namespace fathom::grammar {
namespace {

using Kind = Expression::Node::Kind;

class Quoter {
 public:
  explicit Quoter(RuleSet& rules) : rules_(rules), budget_(rules.budget()) {}

  Expression quoted(const Expression& expression) {
    const Expression::Node& node = expression.node();
    if (!budget_.charge(8)) return literal("");
    switch (node.kind) {
      case Kind::kLiteral: {
        const std::string text = json::dump(json::Value(node.text));
        return literal(text.substr(1, text.size() - 2));
      }
      case Kind::kCharacter:
        return json_string_character(node.ranges);
      case Kind::kSequence:
        return sequence(all(node.parts));
      case Kind::kChoice:
        return choice(all(node.parts));
      case Kind::kRepeat:
        return repeat(quoted(node.parts[0]), node.min, node.max);
      case Kind::kGraph: {
        std::vector<GraphEdge> edges;
        for (size_t i = 0; i < node.parts.size(); ++i)
          edges.push_back({node.links[i].first, node.links[i].second, quoted(node.parts[i])});
        return graph(std::move(edges), node.ends, node.number);
      }
      case Kind::kRule:
        return rule(quoted_rule(node.number));
      case Kind::kRegex:
        return quoted(lower_regex(node.text, rules_));
      case Kind::kEbnf:
        return quoted(lower_ebnf(node, rules_));
      case Kind::kLark:
        return quoted(lower_lark(node, rules_));
      case Kind::kMistake:
        return expression;
      default:
        budget_.fail(invalid_argument(
            "special tokens and JSON schemas are not supported in the text of a JSON string"));
        return literal("");
    }
  }

  // The rules that are referred to. They may refer to more.
  void write_rules() {
    for (size_t i = 0; i < pending_.size() && budget_.charge(8); ++i) {
      const auto [plain, target] = pending_[i];
      const std::optional<Expression> text = rules_[plain];
      if (text) rules_.define(target, quoted(*text));
    }
  }

 private:
  std::vector<Expression> all(const std::vector<Expression>& parts) {
    std::vector<Expression> result;
    for (const Expression& part : parts) result.push_back(quoted(part));
    return result;
  }

  int quoted_rule(int plain) {
    const auto [known, is_new] = rule_of_.try_emplace(plain, 0);
    if (is_new) {
      known->second = rules_.reserve();
      pending_.emplace_back(plain, known->second);
    }
    return known->second;
  }

  RuleSet& rules_;
  Budget& budget_;
  std::map<int, int> rule_of_;
  std::vector<std::pair<int, int>> pending_;  // the plain rule, the quoted one
};

}  // namespace

Expression json_quoted_text(const Expression& text, RuleSet& rules) {
  Quoter quoter(rules);
  Expression root = quoter.quoted(text);
  quoter.write_rules();
  return root;
}

}  // namespace fathom::grammar
