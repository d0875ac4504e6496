#include "grammar/expressions/regex_parser.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "grammar/expressions/code_points.h"
#include "grammar/expressions/front_ends.h"
#include "grammar/expressions/pattern_reader.h"
#include "grammar/expressions/text_set.h"
#include "grammar/expressions/unicode_sets.h"

namespace fathom::grammar {
namespace {

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const RegexOptions& options, Budget& budget)
      : options_(options),
        budget_(budget),
        reader_(options_.name, pattern, budget),
        dot_all_(options.dot_all) {
    reader_.set_ignores_case(options.ignore_case);
  }

  Expression parse() {
    const Side side = options_.search ? Side::kOpen : Side::kAnchored;
    skip_global_flags();
    Expression result = alternatives({side, side});
    if (budget_.ok() && !reader_.at_end()) reader_.fail(") without (");
    if (options_.notes != nullptr) *options_.notes = notes_;
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
    while (sides.start != Side::kWithin && skip_start_anchor()) sides.start = Side::kAnchored;
    while (budget_.charge(4) && !reader_.at_end() && reader_.peek() != '|' &&
           reader_.peek() != ')') {
      if (sides.end != Side::kWithin && is_end_anchor(0)) {
        while (skip_end_anchor()) sides.end = Side::kAnchored;
        break;
      }
      is_at_start_ = sides.start == Side::kAnchored && std::ranges::all_of(parts, is_look);
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

  static bool is_look(const Expression& part) {
    return part->kind == Expression::Node::Kind::kLook;
  }

  bool is_branch_end(size_t ahead) const {
    const char next = reader_.peek(ahead);
    return next == '\0' || next == '|' || next == ')';
  }

  bool skip_start_anchor() { return reader_.skip("^") || reader_.skip("\\A"); }
  bool skip_end_anchor() { return reader_.skip("$") || reader_.skip("\\z") || reader_.skip("\\Z"); }

  // How many bytes of an anchor at the end stand there.
  size_t end_anchor_bytes(size_t ahead) const {
    if (reader_.peek(ahead) == '$') return 1;
    const char next = reader_.peek(ahead + 1);
    return reader_.peek(ahead) == '\\' && (next == 'z' || next == 'Z') ? 2 : 0;
  }

  bool is_end_anchor(size_t ahead) const {
    const size_t first = ahead;
    while (const size_t num_bytes = end_anchor_bytes(ahead)) ahead += num_bytes;
    return ahead > first && is_branch_end(ahead);
  }

  // The sides of the group that begins here: those of its branch where it is the first or last part of it, and
  // holds an anchor.
  Sides group_sides(Sides sides, bool is_first) {
    if (begins_look()) return {};
    size_t ahead = 0;
    int depth = 0;
    bool is_class = false, has_start = false, has_end = false;
    do {
      const char c = reader_.peek(ahead);
      if (c == '\0') return {};
      has_end = has_end || (!is_class && end_anchor_bytes(ahead) > 0);
      if (c == '\\') has_start = has_start || reader_.peek(++ahead) == 'A';
      depth += is_class ? 0 : c == '(' ? 1 : c == ')' ? -1 : 0;
      has_start = has_start || (c == '^' && !is_class);
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
    // Lazy: the same texts, unless something ends with them.
    if (reader_.skip("?")) notes_.is_lazy = true;
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
        if (dot_all_) return character({}, /*negated=*/true);
        if (options_.generous) return one_of(complement({{'\n', '\n'}}));
        return one_of(complement({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}));
      case '\\':
        return escape();
      case '^':
        reader_.advance(1);
        return start_of_text();
      case '$':
        reader_.advance(1);
        return end_of_text();
      case '*':
      case '+':
      case '?':
      case '{':
        reader_.fail("nothing to repeat");
        return literal("");
      default: {
        return one_of(reader_.read_plain(options_.generous));
      }
    }
  }

  Expression escape() {
    reader_.advance(1);
    if (reader_.at_end()) reader_.fail("it ends with a backslash");
    const bool is_class_letter = reader_.peek() != 'b' && reader_.peek() != 'B';
    if (!is_class_letter) {
      const bool is_border = reader_.peek() == 'b';
      reader_.advance(1);
      return border(is_border);
    }
    if (reader_.skip("A")) return start_of_text();
    if (reader_.skip("z") || reader_.skip("Z")) return end_of_text();
    return one_of(reader_.read_escape(options_.generous));
  }

  Expression group(Sides sides) {
    const bool is_at_start = is_at_start_;
    reader_.advance(1);
    const Flags outer = {dot_all_, reader_.ignores_case()};
    if (++depth_ > budget_.limits().max_depth) {
      reader_.fail("groups nested deeper than " + std::to_string(budget_.limits().max_depth));
    }
    if (reader_.skip("?=")) return look_ahead(/*is_negated=*/false, is_at_start);
    if (reader_.skip("?!")) return look_ahead(/*is_negated=*/true, is_at_start);
    if (reader_.skip("?<=")) return look_behind(/*is_negated=*/false);
    if (reader_.skip("?<!")) return look_behind(/*is_negated=*/true);
    if (reader_.skip("?")) skip_group_name();
    Expression inner = rest_of_group(sides);
    dot_all_ = outer.dot_all;
    reader_.set_ignores_case(outer.ignores_case);
    return inner;
  }

  Expression rest_of_group(Sides sides) {
    Expression inner = budget_.ok() ? alternatives(sides) : literal("");
    --depth_;
    if (budget_.ok() && !reader_.skip(")")) reader_.fail("( without )");
    return inner;
  }

  bool begins_look() const {
    return reader_.starts_with("(?=") || reader_.starts_with("(?!") ||
           reader_.starts_with("(?<=") || reader_.starts_with("(?<!");
  }

  void skip_group_name() {
    if (reader_.skip(":")) return;
    const char next = reader_.peek();
    if (next == '-' || (next >= 'a' && next <= 'z')) return skip_flags(":");
    reader_.skip("P");
    if (!reader_.skip("<")) {
      reader_.fail("groups that begin with (?" + std::string(1, reader_.peek()) +
                   " are not supported");
      return;
    }
    while (!reader_.at_end() && reader_.peek() != '>') reader_.advance(1);
    if (!reader_.skip(">")) reader_.fail("a group's name needs >");
  }

  void skip_global_flags() {
    if (!reader_.starts_with("(?") || reader_.peek(2) < 'a' || reader_.peek(2) > 'z') return;
    size_t ahead = 2;
    while (reader_.peek(ahead) >= 'a' && reader_.peek(ahead) <= 'z') ++ahead;
    if (reader_.peek(ahead) != ')') return;
    reader_.advance(2);
    skip_flags(")");
  }

  // Behind (?
  void skip_flags(std::string_view end) {
    bool is_on = true;
    while (budget_.ok() && !reader_.skip(end)) {
      const char flag = reader_.peek();
      reader_.advance(1);
      if (flag == '-') {
        is_on = false;
      } else if (flag == 'i') {
        reader_.set_ignores_case(is_on);
      } else if (flag == 's') {
        dot_all_ = is_on;
      } else if (flag == ')') {
        reader_.fail("flags are supported at the start of the pattern and as (?i:...)");
      } else if (flag != 'u') {
        reader_.fail(std::string("the flag ") + flag + " is not supported");
      }
    }
  }

  // What follows begins with the inner (or, negated, does not).
  Expression look_ahead(bool is_negated, bool is_at_start) {
    const bool was_within = is_within_ahead_;
    if (is_within_behind_) reader_.fail("a look-ahead within a look-behind is not supported");
    is_within_ahead_ = was_within || !is_at_start;
    const Side start = is_at_start ? Side::kAnchored : Side::kWithin;
    Expression inner = rest_of_group({start, Side::kOpen});
    is_within_ahead_ = was_within;
    return ahead(std::move(inner), is_negated);
  }

  Expression look_behind(bool is_negated) {
    check_behind("a look-behind");
    is_within_behind_ = true;
    Expression inner = rest_of_group({Side::kOpen, Side::kWithin});
    is_within_behind_ = false;
    return behind(std::move(inner), is_negated);
  }

  // What is before a look-ahead is not known within it.
  void check_behind(const std::string& what) {
    if (is_within_behind_) reader_.fail(what + " within a look-behind is not supported");
    if (is_within_ahead_)
      reader_.fail(what + " within a look-ahead is supported only where that stands at the start");
  }

  Expression ahead(Expression inner, bool is_negated) {
    notes_.has_look = true;
    return look(std::move(inner), is_negated ? Look::kNotAhead : Look::kAhead);
  }
  Expression behind(Expression inner, bool is_negated) {
    notes_.has_look = true;
    return look(std::move(inner), is_negated ? Look::kNotBehind : Look::kBehind);
  }

  Expression end_of_text() {
    return ahead(sequence({character({}, /*negated=*/true), anything()}), /*is_negated=*/true);
  }
  Expression start_of_text() {
    check_behind("^");
    return behind(repeat(character({}, /*negated=*/true), 1, kUnbounded), /*is_negated=*/true);
  }

  // Whether one side is a word and the other is not. Where dialects differ about a letter beyond ASCII beside it, it is
  // neither a border nor none.
  Expression border(bool is_border) {
    check_behind("\\b");
    const std::vector<CodePointRange> ascii = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    const std::vector<CodePointRange>& any = any_word_characters();
    const std::vector<CodePointRange>& word = options_.generous ? any : ascii;
    const std::vector<CodePointRange>& not_other = options_.generous ? ascii : any;
    const auto behind_is = [&](const std::vector<CodePointRange>& set, bool is_negated) {
      return behind(sequence({anything(), character(set)}), is_negated);
    };
    const auto ahead_is = [&](const std::vector<CodePointRange>& set, bool is_negated) {
      return ahead(sequence({character(set), anything()}), is_negated);
    };
    const Expression from_word = behind_is(word, false), to_word = ahead_is(word, false);
    const Expression from_other = behind_is(not_other, true), to_other = ahead_is(not_other, true);
    if (is_border)
      return choice({sequence({from_word, to_other}), sequence({from_other, to_word})});
    return choice({sequence({from_word, to_word}), sequence({from_other, to_other})});
  }

  static Expression one_of(const std::vector<CodePointRange>& ranges) { return character(ranges); }
  static Expression anything() { return repeat(character({}, /*negated=*/true), 0, kUnbounded); }

  struct Flags {
    bool dot_all = false, ignores_case = false;
  };

  const RegexOptions options_;
  Budget& budget_;
  PatternReader reader_;
  RegexNotes notes_;
  bool dot_all_;
  bool is_at_start_ = false;  // what is read next stands at the start of the text
  bool is_within_ahead_ = false, is_within_behind_ = false;
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
  Expression plain = character(intersection(ranges, complement(escaped)));
  const std::vector<CodePointRange> escapes = intersection(ranges, escaped);
  if (escapes.empty()) return plain;
  return choice({plain, escapes_of(escapes)});
}

Expression parse_regex(std::string_view pattern, const RegexOptions& options, Budget& budget) {
  if (!budget.charge_source(static_cast<int64_t>(pattern.size()))) return literal("");
  return RegexParser(pattern, options, budget).parse();
}

Expression without_looks(Expression expression, const RegexNotes& notes, Budget& budget) {
  if (!notes.has_look || !budget.ok()) return expression;
  const std::optional<TextSet> set = text_set_of(expression, budget);
  if (!set) {
    budget.fail({ErrorCode::kTooLong,
                 "regex: a pattern with look-around, borders of words or anchors within takes "
                 "more than " +
                     std::to_string(kMaxTextStates) + " states, simplify it"});
    return literal("");
  }
  return plain_text(*set);
}

Expression lower_regex(std::string_view pattern, RuleSet& rules) {
  RegexNotes notes;
  Expression text = parse_regex(pattern, {.notes = &notes}, rules.budget());
  return without_looks(std::move(text), notes, rules.budget());
}

}  // namespace fathom::grammar
