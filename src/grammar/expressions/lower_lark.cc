// Lark grammars to rules: what a rule and a terminal are, what is ignored between terminals, templates.

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "grammar/expressions/code_points.h"
#include "grammar/expressions/front_ends.h"
#include "grammar/expressions/lark_lexer.h"
#include "grammar/expressions/lark_parser.h"
#include "grammar/expressions/regex_parser.h"
#include "grammar/expressions/text_set.h"
#include "grammar/expressions/unicode_sets.h"

namespace fathom::grammar {
namespace {

using NodeKind = LarkNode::Kind;

constexpr size_t kMaxInstanceBytes = 2000;  // of a template's name with its arguments

// The same for the same trees.
void append_key(const LarkNode& node, std::string& key) {
  key += static_cast<char>('a' + static_cast<int>(node.kind));
  key += node.text + '\x01' + node.flags + '\x02' + std::to_string(node.min) + ',' +
         std::to_string(node.max);
  for (const LarkNode& part : node.parts) append_key(part, key);
  key += '\x03';
}

class LarkLowering {
 public:
  LarkLowering(RuleSet& rules, const TokenLookup* tokens)
      : rules_(rules), budget_(rules.budget()), tokens_(tokens) {}

  Expression lower(std::string_view text) {
    parse_lark(text, grammar_, budget_);
    if (budget_.ok() && !grammar_.definitions.contains("start"))
      budget_.fail(invalid_argument("lark: there is no rule \"start\""));
    if (!budget_.ok()) return literal("");
    if (!grammar_.ignored.empty()) {
      std::vector<Expression> ways;
      for (const LarkNode& node : grammar_.ignored) ways.push_back(terminal_text(node));
      ignored_ = rules_.add(repeat(choice(std::move(ways)), 0, kUnbounded));
    }
    Expression root = rule(rule_of("start", {}, 1));
    for (size_t i = 0; i < pending_.size() && budget_.charge(8); ++i) {
      const Pending next = std::move(pending_[i]);
      rules_.define(next.rule, in_rule(next.body));
    }
    if (ignored_ < 0) return root;
    return sequence({rule(ignored_), root});
  }

 private:
  struct Pending {
    int rule;
    LarkNode body;
  };

  Expression fail(const LarkNode& node, const std::string& what) {
    fail_lark(node.line, what, budget_);
    return literal("");
  }

  // Rules.

  Expression in_rule(const LarkNode& node) {
    if (!budget_.charge(8)) return literal("");
    switch (node.kind) {
      case NodeKind::kSequence:
      case NodeKind::kChoice: {
        std::vector<Expression> parts;
        for (const LarkNode& part : node.parts) parts.push_back(in_rule(part));
        if (node.kind == NodeKind::kChoice) return choice(std::move(parts));
        return parts.empty() ? literal("") : sequence(std::move(parts));
      }
      case NodeKind::kRepeat:
        return repeat(in_rule(node.parts[0]), node.min, node.max);
      case NodeKind::kName:
        if (!is_terminal(node.text) && !node.text.starts_with("common."))
          return rule(rule_of(node.text, node.parts, node.line));
        return rule(terminal_rule(node));
      case NodeKind::kJson:
        return with_ignored(json_schema(node.text));
      case NodeKind::kToken:
        return with_ignored(token_text(node));
      default:
        return with_ignored(terminal_text(node));
    }
  }

  Expression with_ignored(Expression text) {
    if (ignored_ < 0) return text;
    return sequence({std::move(text), rule(ignored_)});
  }

  int rule_of(const std::string& name, const std::vector<LarkNode>& arguments, int line) {
    std::string key = name;
    for (const LarkNode& argument : arguments) append_key(argument, key);
    const auto [known, is_new] = rule_of_.try_emplace(key, 0);
    if (!is_new) return known->second;
    known->second = rules_.reserve();
    const auto definition = grammar_.definitions.find(name);
    if (definition == grammar_.definitions.end()) {
      fail_lark(line, "rule \"" + name + "\" is not defined", budget_);
    } else if (definition->second.params.size() != arguments.size()) {
      fail_lark(line,
                "\"" + name + "\" takes " + std::to_string(definition->second.params.size()) +
                    " arguments, got " + std::to_string(arguments.size()),
                budget_);
    } else if (key.size() > kMaxInstanceBytes) {
      fail_lark(line, "the arguments of template \"" + name + "\" grow without end", budget_);
    } else {
      LarkNode body = definition->second.body;
      for (size_t i = 0; i < arguments.size(); ++i)
        arguments_[definition->second.params[i]] = &arguments[i];
      if (!arguments.empty()) substitute(body);
      arguments_.clear();
      budget_.charge_memory(static_cast<int64_t>(key.size()) * 4 + 256);
      pending_.push_back({known->second, std::move(body)});
    }
    return known->second;
  }

  void substitute(LarkNode& node) {
    if (!budget_.charge(8)) return;
    for (LarkNode& part : node.parts) substitute(part);
    if (node.kind != NodeKind::kName || !node.parts.empty()) return;
    if (const auto found = arguments_.find(node.text); found != arguments_.end())
      node = *found->second;
  }

  // Terminals: each a rule, without rules within it.

  int terminal_rule(const LarkNode& node) {
    const auto [known, is_new] = terminal_rule_.try_emplace(node.text, 0);
    if (is_new) known->second = rules_.add(with_ignored(terminal_text(node)));
    return known->second;
  }

  // A regexp with a lazy repetition ends where it first can.
  Expression terminal_text(const LarkNode& node) {
    is_lazy_ = false;
    Expression text = in_terminal(node);
    if (!is_lazy_ || !budget_.ok()) return text;
    const std::optional<TextSet> set = text_set_of(text, budget_);
    if (!set) return fail(node, "a terminal with a lazy repetition is too large");
    return plain_text(without_longer(*set));
  }

  Expression in_terminal(const LarkNode& node) {
    if (!budget_.charge(8)) return literal("");
    switch (node.kind) {
      case NodeKind::kSequence:
      case NodeKind::kChoice: {
        std::vector<Expression> parts;
        for (const LarkNode& part : node.parts) parts.push_back(in_terminal(part));
        if (node.kind == NodeKind::kChoice) return choice(std::move(parts));
        return parts.empty() ? literal("") : sequence(std::move(parts));
      }
      case NodeKind::kRepeat:
        return repeat(in_terminal(node.parts[0]), node.min, node.max);
      case NodeKind::kName:
        return named_terminal(node);
      case NodeKind::kString:
        return node.flags.empty() ? literal(node.text) : without_case(node);
      case NodeKind::kRegexp:
        return regexp(node);
      case NodeKind::kRange:
        return range(node);
      default:
        return fail(node, "special tokens and %json are not supported in terminals");
    }
  }

  Expression named_terminal(const LarkNode& node) {
    const auto found = grammar_.definitions.find(node.text);
    if (grammar_.declared.contains(node.text))
      return fail(node, "terminal \"" + node.text + "\" is declared without a text");
    if (found == grammar_.definitions.end())
      return fail(node, "\"" + node.text + "\" is not defined");
    if (!is_terminal(node.text) && !node.text.starts_with("common."))
      return fail(node, "rule \"" + node.text + "\" is not supported within a terminal");
    if (!node.parts.empty() || !found->second.params.empty())
      return fail(node, "templates of terminals are not supported");
    if (std::ranges::find(open_, node.text) != open_.end())
      return fail(node, "terminal \"" + node.text + "\" contains itself");
    if (static_cast<int>(open_.size()) > budget_.limits().max_depth)
      return fail(node,
                  "terminals nested deeper than " + std::to_string(budget_.limits().max_depth));
    open_.push_back(node.text);
    Expression text = in_terminal(found->second.body);
    open_.pop_back();
    return text;
  }

  Expression regexp(const LarkNode& node) {
    RegexNotes notes;
    RegexOptions options{.name = "lark at line " + std::to_string(node.line) + ": regexp",
                         .notes = &notes};
    for (const char flag : node.flags) {
      if (flag == 'i') options.ignore_case = true;
      if (flag == 's') options.dot_all = true;
      if (flag == 'x' || flag == 'l' || flag == 'm')
        return fail(node, std::string("the flag ") + flag + " of a regexp is not supported");
    }
    Expression text = parse_regex(node.text, options, budget_);
    // What it looks at may lie outside of the terminal.
    if (notes.has_look)
      return fail(node, "look-around, \\b, ^ and $ within a regexp are not supported");
    is_lazy_ = is_lazy_ || notes.is_lazy;
    return text;
  }

  Expression without_case(const LarkNode& node) {
    std::vector<Expression> parts;
    std::string_view rest = node.text;
    while (const std::optional<char32_t> c = take_utf8(rest)) {
      budget_.charge(16);
      parts.push_back(character(with_other_case({{*c, *c}})));
    }
    return parts.empty() ? literal("") : sequence(std::move(parts));
  }

  Expression range(const LarkNode& node) {
    std::string_view first = node.text, last = node.flags;
    const std::optional<char32_t> from = take_utf8(first), to = take_utf8(last);
    if (!from || !to || !first.empty() || !last.empty() || *from > *to)
      return fail(node, "a range goes from one character to one that is not before it");
    return character({{*from, *to}});
  }

  Expression token_text(const LarkNode& node) {
    const Result<Marker> found = find_token(node.text, tokens_);
    return found ? marker(*found) : fail(node, found.error().message);
  }

  RuleSet& rules_;
  Budget& budget_;
  const TokenLookup* tokens_;
  LarkGrammar grammar_;
  int ignored_ = -1;
  bool is_lazy_ = false;
  std::map<std::string, int> rule_of_, terminal_rule_;
  std::vector<Pending> pending_;
  std::map<std::string, const LarkNode*> arguments_;  // of the template that is written
  std::vector<std::string> open_;                     // terminals that are being read
};

}  // namespace

Expression lower_lark(const Expression::Node& source, RuleSet& rules) {
  if (!rules.budget().charge_source(static_cast<int64_t>(source.text.size()))) return literal("");
  return LarkLowering(rules, source.tokens.get()).lower(source.text);
}

}  // namespace fathom::grammar
