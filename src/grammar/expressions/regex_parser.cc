#include "grammar/expressions/regex_parser.h"

#include <array>
#include <string>
#include <utility>

#include "grammar/expressions/code_points.h"
#include "grammar/expressions/front_ends.h"
#include "grammar/expressions/pattern_reader.h"

namespace fathom::grammar {
namespace {

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const RegexOptions& options, Budget& budget)
      : options_(options), budget_(budget), reader_("regex", pattern, budget) {}

  Expression parse() {
    const Side side = options_.search ? Side::kOpen : Side::kAnchored;
    Expression result = alternatives({side, side});
    if (budget_.ok() && !reader_.at_end()) reader_.fail(") without (");
    return result;
  }

 private:
  // One end of a part of the pattern. Within the pattern no anchor fits. At the end of a text that is bound there, an
  // anchor says nothing new; where it is not bound, any text stands before it unless there is an anchor.
  enum class Side : uint8_t { kWithin, kAnchored, kOpen };
  struct Sides {
    Side start = Side::kWithin, end = Side::kWithin;
  };

  Expression alternatives(Sides sides) {
    std::vector<Expression> branches;
    do {
      branches.push_back(branch(sides));
    } while (budget_.charge(4) && reader_.skip("|"));
    return choice(std::move(branches));
  }

  Expression branch(Sides sides) {
    std::vector<Expression> parts;
    while (sides.start != Side::kWithin && reader_.skip("^")) sides.start = Side::kAnchored;
    while (budget_.charge(4) && !reader_.at_end() && reader_.peek() != '|' &&
           reader_.peek() != ')') {
      if (sides.end != Side::kWithin && is_end_anchor(0)) {
        while (reader_.skip("$")) sides.end = Side::kAnchored;
        break;
      }
      const Sides inner = reader_.peek() == '(' ? group_sides(sides, parts.empty()) : Sides{};
      parts.push_back(repeated(inner));
      // What the group takes care of is done.
      if (inner.start == Side::kOpen) sides.start = Side::kAnchored;
      if (inner.end == Side::kOpen) sides.end = Side::kAnchored;
    }
    if (sides.start == Side::kOpen) parts.insert(parts.begin(), anything());
    if (sides.end == Side::kOpen) parts.push_back(anything());
    return parts.empty() ? literal("") : sequence(std::move(parts));
  }

  bool is_branch_end(size_t ahead) const {
    const char next = reader_.peek(ahead);
    return next == '\0' || next == '|' || next == ')';
  }

  bool is_end_anchor(size_t ahead) const {
    const size_t first = ahead;
    while (reader_.peek(ahead) == '$') ++ahead;
    return ahead > first && is_branch_end(ahead);
  }

  // The sides of the group that begins here: those of its branch where it is the first or last part of it, and
  // holds an anchor.
  Sides group_sides(Sides sides, bool is_first) {
    size_t ahead = 0;
    int depth = 0;
    bool is_class = false, has_start = false, has_end = false;
    do {
      const char c = reader_.peek(ahead);
      if (c == '\0') return {};
      if (c == '\\') ++ahead;
      depth += is_class ? 0 : c == '(' ? 1 : c == ')' ? -1 : 0;
      has_start = has_start || (c == '^' && !is_class);
      has_end = has_end || (c == '$' && !is_class);
      is_class = is_class ? c != ']' : c == '[';
      ++ahead;
    } while (depth > 0 && budget_.charge(1));
    const char next = reader_.peek(ahead);
    const bool is_repeated = next == '*' || next == '+' || next == '?' || next == '{';
    Sides inner;
    if (is_first && has_start && !is_repeated) inner.start = sides.start;
    if (has_end && sides.end != Side::kWithin) {
      if (is_branch_end(ahead)) inner.end = sides.end;
      if (is_end_anchor(ahead)) inner.end = Side::kAnchored;
    }
    return inner;
  }

  Expression repeated(Sides sides) {
    Expression part = atom(sides);
    if (!budget_.ok()) return part;
    const std::optional<Quantifier> quantifier = reader_.read_quantifier();
    if (!quantifier) return part;
    reader_.skip("?");  // lazy: the same texts
    const char next = reader_.peek();
    if (next == '*' || next == '+' || next == '?' || next == '{') {
      reader_.fail("a repetition of a repetition needs a group");
    }
    return repeat(std::move(part), quantifier->min, quantifier->max);
  }

  Expression atom(Sides sides) {
    switch (reader_.peek()) {
      case '(':
        return group(sides);
      case '[':
        return one_of(reader_.read_class(options_.generous));
      case '.':
        reader_.advance(1);
        // No line terminator of ECMAScript: stricter than other dialects.
        if (options_.generous) return one_of(complement({{'\n', '\n'}}));
        return one_of(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
      case '\\':
        reader_.advance(1);
        if (reader_.at_end()) reader_.fail("it ends with a backslash");
        return one_of(reader_.read_escape(options_.generous));
      case '^':
      case '$':
        reader_.fail("^ and $ are supported only at the two ends of a match");
        return literal("");
      case '*':
      case '+':
      case '?':
      case '{':
        reader_.fail("nothing to repeat");
        return literal("");
      default: {
        const char32_t c = reader_.read_character();
        return one_of({{c, c}});
      }
    }
  }

  Expression group(Sides sides) {
    reader_.advance(1);
    if (reader_.skip("?")) skip_group_name();
    if (++depth_ > budget_.limits().max_depth) {
      reader_.fail("groups nested deeper than " + std::to_string(budget_.limits().max_depth));
    }
    Expression inner = budget_.ok() ? alternatives(sides) : literal("");
    --depth_;
    if (budget_.ok() && !reader_.skip(")")) reader_.fail("( without )");
    return inner;
  }

  void skip_group_name() {
    if (reader_.skip(":")) return;
    reader_.skip("P");
    const bool is_lookbehind = reader_.starts_with("<=") || reader_.starts_with("<!");
    if (is_lookbehind || !reader_.skip("<")) {
      reader_.fail("of the groups that begin with (? only (?:...) and named groups are supported");
      return;
    }
    while (!reader_.at_end() && reader_.peek() != '>') reader_.advance(1);
    if (!reader_.skip(">")) reader_.fail("a group's name needs >");
  }

  Expression one_of(const std::vector<CodePointRange>& ranges) const {
    return options_.in_json_string ? json_string_character(ranges) : character(ranges);
  }
  Expression anything() const { return repeat(one_of({{0, kMaxCodePoint}}), 0, kUnbounded); }

  const RegexOptions options_;
  Budget& budget_;
  PatternReader reader_;
  int depth_ = 0;
};

// Characters that a JSON string holds as escapes, one form each: \n and the like, or \u00 and two digits. Escapes
// that begin alike share their beginning, so that a text inside one is in one place.
Expression escapes_of(const std::vector<CodePointRange>& ranges) {
  constexpr std::string_view kControls = "\b\t\n\f\r", kLetters = "btnfr";
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::vector<CodePointRange> letters;
  std::array<std::vector<CodePointRange>, 2> last_digits;  // behind \u000 and \u001
  const auto add = [](std::vector<CodePointRange>& all, char c) {
    all.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  };
  for (const CodePointRange& range : ranges) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      const size_t known = kControls.find(static_cast<char>(c));
      if (known != kControls.npos) {
        add(letters, kLetters[known]);
      } else if (c >= 0x20) {
        add(letters, static_cast<char>(c));
      } else {
        add(last_digits[c >> 4], kDigits[c & 15]);
      }
    }
  }
  const Expression by_number =
      sequence({literal("u00"), choice({sequence({literal("0"), character(last_digits[0])}),
                                        sequence({literal("1"), character(last_digits[1])})})});
  return sequence({literal("\\"), choice({character(std::move(letters)), by_number})});
}

}  // namespace

Expression json_string_character(const std::vector<CodePointRange>& ranges) {
  const std::vector<CodePointRange> escaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  const Expression plain = character(intersection(ranges, complement(escaped)));
  const std::vector<CodePointRange> escapes = intersection(ranges, escaped);
  return escapes.empty() ? plain : choice({plain, escapes_of(escapes)});
}

Expression parse_regex(std::string_view pattern, const RegexOptions& options, Budget& budget) {
  if (!budget.charge_source(static_cast<int64_t>(pattern.size()))) return literal("");
  return RegexParser(pattern, options, budget).parse();
}

Expression lower_regex(std::string_view pattern, RuleSet& rules) {
  return parse_regex(pattern, {}, rules.budget());
}

}  // namespace fathom::grammar
