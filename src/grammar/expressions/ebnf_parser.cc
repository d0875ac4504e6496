#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "grammar/expressions/code_points.h"
#include "grammar/expressions/front_ends.h"
#include "grammar/expressions/pattern_reader.h"

namespace fathom::grammar {
namespace {

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || (c >= '0' && c <= '9') || c == '-'; }

class EbnfParser {
 public:
  EbnfParser(std::string_view text, RuleSet& rules, const TokenLookup* tokens)
      : rules_(rules),
        budget_(rules.budget()),
        tokens_(tokens),
        reader_("ebnf", text, budget_, Dialect::kRules) {}

  Expression parse() {
    skip_space();
    while (budget_.charge(8) && !reader_.at_end()) parse_rule();
    if (!budget_.ok()) return literal("");
    for (const auto& [name, known] : names_) {
      if (known.is_defined) continue;
      reader_.set_position(known.first_use);
      reader_.fail("rule \"" + name + "\" is not defined");
      return literal("");
    }
    const auto root = names_.find("root");
    if (root == names_.end()) {
      budget_.fail(invalid_argument("ebnf: there is no rule \"root\""));
      return literal("");
    }
    return rule(root->second.idx);
  }

 private:
  struct Name {
    int idx = 0;
    size_t first_use = 0;
    bool is_defined = false;
  };

  Name& lookup(const std::string& name, size_t position) {
    const auto [entry, is_new] = names_.try_emplace(name);
    if (is_new) entry->second = {rules_.reserve(), position, false};
    return entry->second;
  }

  void parse_rule() {
    const size_t position = reader_.position();
    const std::string name = read_name();
    if (name.empty()) {
      reader_.fail("a rule begins with its name");
      return;
    }
    skip_space();
    if (!reader_.skip("::=")) {
      reader_.fail("a rule's name is followed by ::=");
      return;
    }
    Name& known = lookup(name, position);
    if (known.is_defined) {
      reader_.set_position(position);
      reader_.fail("rule \"" + name + "\" is defined twice");
      return;
    }
    known.is_defined = true;
    const int idx = known.idx;
    rules_.define(idx, alternatives());
  }

  Expression alternatives() {
    std::vector<Expression> branches;
    do {
      branches.push_back(branch());
    } while (budget_.charge(4) && reader_.skip("|"));
    return choice(std::move(branches));
  }

  Expression branch() {
    std::vector<Expression> parts;
    skip_space();
    while (budget_.charge(4) && !reader_.at_end() && reader_.peek() != '|' &&
           reader_.peek() != ')' && !at_rule()) {
      parts.push_back(repeated());
      skip_space();
    }
    return parts.empty() ? literal("") : sequence(std::move(parts));
  }

  Expression repeated() {
    Expression part = atom();
    // A quantifier of a quantifier is one of the repeated part.
    while (budget_.ok()) {
      skip_space();
      const std::optional<Quantifier> quantifier = reader_.read_quantifier();
      if (!quantifier) break;
      if (++num_nested_ > budget_.limits().max_depth) reader_.fail("too many repetitions in a row");
      part = repeat(std::move(part), quantifier->min, quantifier->max);
    }
    num_nested_ = 0;
    return part;
  }

  Expression atom() {
    const char c = reader_.peek();
    if (c == '"') return quoted();
    if (c == '[') return character(reader_.read_class());
    if (c == '(') return group();
    if (c == '<') return named_token();
    if (reader_.starts_with("!<")) return other_tokens();
    if (reader_.skip(".")) return character({}, /*negated=*/true);
    if (is_name_start(c)) {
      const size_t position = reader_.position();
      const std::string name = read_name();
      if (is_macro(name)) {
        reader_.set_position(position);
        reader_.fail(name +
                     "(...) is not supported, write it as rules; for text with tags there is "
                     "the structural_tag of response_format");
      }
      return rule(lookup(name, position).idx);
    }
    reader_.fail(std::string("expected a literal, a class, a group or a rule"));
    return literal("");
  }

  Expression quoted() {
    std::string text;
    reader_.advance(1);
    while (budget_.charge(1) && !reader_.skip("\"")) {
      if (reader_.at_end() || reader_.peek() == '\n') {
        reader_.fail("a literal without its closing quote");
        break;
      }
      if (!reader_.skip("\\")) {
        append_utf8(reader_.read_character(), text);
        continue;
      }
      const std::vector<CodePointRange> c = reader_.read_escape();
      if (c.size() != 1 || c[0].first != c[0].last) {
        reader_.fail("a literal cannot hold a set of characters");
        break;
      }
      append_utf8(c[0].first, text);
    }
    return literal(std::move(text));
  }

  // <name> or <[id]>.
  Expression named_token() {
    std::string name;
    do {
      name += reader_.peek();
      reader_.advance(1);
    } while (budget_.charge(1) && !reader_.at_end() && name.back() != '>' && name.back() != '\n');
    const Result<Marker> found = find_token(name, tokens_);
    if (found) return marker(*found);
    reader_.fail(found.error().message);
    return literal("");
  }

  // Any tokens but one, that is free text: no special token is text.
  Expression other_tokens() {
    reader_.advance(1);
    named_token();
    skip_space();
    const bool is_repeated = reader_.skip("*");
    if (is_repeated) return any_text();
    if (reader_.skip("+")) return sequence({character({}, /*negated=*/true), any_text()});
    reader_.fail("!<...> is supported with * or + behind it");
    return literal("");
  }

  Expression group() {
    reader_.advance(1);
    if (++depth_ > budget_.limits().max_depth) {
      reader_.fail("groups nested deeper than " + std::to_string(budget_.limits().max_depth));
    }
    if (reader_.skip("=")) {
      reader_.fail(
          "a lookahead (=...) is not supported: what follows a rule is written where the rule is "
          "used");
    }
    Expression inner = budget_.ok() ? alternatives() : literal("");
    --depth_;
    if (budget_.ok() && !reader_.skip(")")) reader_.fail("( without )");
    return inner;
  }

  // Whether "name ::=" begins here: the rule before it ends without a mark.
  bool at_rule() {
    if (!is_name_start(reader_.peek())) return false;
    const size_t position = reader_.position();
    read_name();
    // Only spaces: a long run of lines would be looked at again for every name.
    while (reader_.peek() == ' ' || reader_.peek() == '\t') reader_.advance(1);
    const bool is_rule = reader_.starts_with("::=");
    reader_.set_position(position);
    return is_rule;
  }

  // xgrammar's. A rule may have such a name all the same.
  bool is_macro(const std::string& name) const {
    static constexpr std::string_view kMacros[] = {
        "TagDispatch", "TokenTagDispatch", "Token", "ExcludeToken", "Regex", "Substring"};
    return reader_.peek() == '(' && std::ranges::find(kMacros, name) != std::end(kMacros);
  }

  std::string read_name() {
    std::string name;
    if (!is_name_start(reader_.peek())) return name;
    for (; is_name_part(reader_.peek()); reader_.advance(1)) name += reader_.peek();
    budget_.charge(static_cast<int64_t>(name.size()));
    return name;
  }

  void skip_space() {
    while (!reader_.at_end() && budget_.charge(1)) {
      const char c = reader_.peek();
      if (c == '#') {
        while (!reader_.at_end() && reader_.peek() != '\n') reader_.advance(1);
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        reader_.advance(1);
      } else {
        return;
      }
    }
  }

  RuleSet& rules_;
  Budget& budget_;
  const TokenLookup* tokens_;
  PatternReader reader_;
  std::map<std::string, Name> names_;
  int depth_ = 0;
  int num_nested_ = 0;
};

}  // namespace

Expression lower_ebnf(const Expression::Node& source, RuleSet& rules) {
  if (!rules.budget().charge_source(static_cast<int64_t>(source.text.size()))) return literal("");
  return EbnfParser(source.text, rules, source.tokens.get()).parse();
}

Result<Marker> find_token(const std::string& name, const TokenLookup* tokens) {
  if (tokens == nullptr) return invalid_argument("special tokens are not known here: " + name);
  const std::optional<Marker> found = name.ends_with('>') ? (*tokens)(name) : std::nullopt;
  if (found) return *found;
  return invalid_argument(name.substr(0, 80) + " is no token that text may have");
}

}  // namespace fathom::grammar
