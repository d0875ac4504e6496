#include "grammar/json_values.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/code_points.h"
#include "grammar/front_ends.h"
#include "grammar/regex_parser.h"

namespace fathom::grammar {
namespace {

constexpr int kMaxIndent = 32;

Expression pattern(std::string_view text, RuleSet& rules) {
  return parse_regex(text, {}, rules.budget());
}

Expression one_of(std::string_view characters) {
  std::vector<CodePointRange> ranges;
  for (const char c : characters) {
    ranges.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
  }
  return character(std::move(ranges));
}

Expression hex(std::string_view characters) { return one_of(characters); }

// One character of a string: itself, or an escape that is no lone surrogate.
Expression string_character() {
  const Expression any_hex = hex("0123456789abcdefABCDEF");
  const Expression d = hex("dD");
  return choice({character({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}, /*negated=*/true),
                 sequence({literal("\\"), one_of("\"\\/bfnrt")}),
                 sequence({literal("\\u"), hex("0123456789abcefABCEF"), any_hex, any_hex, any_hex}),
                 sequence({literal("\\u"), d, hex("01234567"), any_hex, any_hex}),
                 sequence({literal("\\u"), d, hex("89abAB"), any_hex, any_hex, literal("\\u"), d,
                           hex("cdefCDEF"), any_hex, any_hex})});
}

Expression list(const Expression& item, std::string_view open, std::string_view close,
                RuleSet& rules) {
  const Expression space = json_space(rules);
  const Expression one = sequence({space, item});
  return sequence({literal(std::string(open)),
                   optional(sequence({one, repeat(sequence({literal(","), one}), 0, kUnbounded)})),
                   space, literal(std::string(close))});
}

// A rule per level: the depth is bounded because the innermost level has no lists.
void define_any_values(RuleSet& rules) {
  if (rules.json.value >= 0) return;
  const Expression string = json_string(rules);
  const Expression scalar =
      choice({string, json_number(rules), literal("true"), literal("false"), literal("null")});
  int value = rules.add(scalar);
  const int leaf = value;
  for (int depth = 0; depth < kMaxAnyDepth; ++depth) {
    const Expression member =
        sequence({string, literal(":"), json_space_after_colon(), rule(value)});
    rules.json.object = rules.add(list(member, "{", "}", rules));
    rules.json.array = rules.add(list(rule(value), "[", "]", rules));
    value = rules.add(choice({rule(leaf), rule(rules.json.object), rule(rules.json.array)}));
  }
  rules.json.value = value;
}

std::string digits_of(int64_t value, int num_digits) {
  std::string digits = std::to_string(value);
  const auto width = static_cast<size_t>(num_digits);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

// Texts of one length of integer part, whose digits (the missing decimals read as zeros) lie between low
// and high.
class DigitRange {
 public:
  DigitRange(std::string low, std::string high, size_t num_integer_digits)
      : low_(std::move(low)), high_(std::move(high)), num_integer_digits_(num_integer_digits) {}

  Expression build() const { return from(0, true, true); }

 private:
  bool may_stop(size_t at, bool follows_low) const {
    return at >= num_integer_digits_ &&
           (!follows_low || low_.find_first_not_of('0', at) == low_.npos);
  }

  // What may follow the first `at` digits, which equal those of low_ / high_ so far or lie inside.
  Expression from(size_t at, bool follows_low, bool follows_high) const {
    std::vector<Expression> ways;
    if (may_stop(at, follows_low)) ways.push_back(literal(""));
    if (at < low_.size()) {
      const Expression digits = more_digits(at, follows_low, follows_high);
      const bool begins_decimals = at == num_integer_digits_;
      ways.push_back(begins_decimals ? sequence({literal("."), digits}) : digits);
    }
    return choice(std::move(ways));
  }

  Expression more_digits(size_t at, bool follows_low, bool follows_high) const {
    if (!follows_low && !follows_high) return free_digits(at);
    const char low = follows_low ? low_[at] : '0', high = follows_high ? high_[at] : '9';
    std::vector<Expression> ways;
    if (low == high) {
      return sequence({literal(std::string(1, low)), from(at + 1, follows_low, follows_high)});
    }
    if (follows_low)
      ways.push_back(sequence({literal(std::string(1, low)), from(at + 1, true, false)}));
    if (follows_high) {
      ways.push_back(sequence({literal(std::string(1, high)), from(at + 1, false, true)}));
    }
    const char first = static_cast<char>(low + (follows_low ? 1 : 0));
    const char last = static_cast<char>(high - (follows_high ? 1 : 0));
    if (first <= last) {
      ways.push_back(
          sequence({character({{static_cast<char32_t>(first), static_cast<char32_t>(last)}}),
                    from(at + 1, false, false)}));
    }
    return choice(std::move(ways));
  }

  // At least one digit where digits are left, as many as the integer part needs.
  Expression free_digits(size_t at) const {
    const Expression digit = character({{'0', '9'}});
    if (at < num_integer_digits_) {
      const int missing = static_cast<int>(num_integer_digits_ - at);
      return sequence({repeat(digit, missing, missing), from(num_integer_digits_, false, false)});
    }
    return repeat(digit, 1, static_cast<int>(low_.size() - at));
  }

  std::string low_, high_;
  size_t num_integer_digits_;
};

int64_t power_of_ten(int exponent) {
  int64_t power = 1;
  while (exponent-- > 0) power *= 10;
  return power;
}

// REQUIRES: 0 <= min <= max.
void add_magnitudes(int64_t min, int64_t max, int num_decimals, std::string_view sign,
                    std::vector<Expression>& ways) {
  const int64_t unit = power_of_ten(num_decimals);
  for (int num_digits = 1; num_digits + num_decimals <= 18; ++num_digits) {
    const int64_t least = num_digits == 1 ? 0 : power_of_ten(num_digits - 1) * unit;
    const int64_t most = power_of_ten(num_digits) * unit - 1;
    const int64_t low = std::max(min, least), high = std::min(max, most);
    if (low > high) continue;
    const int width = num_digits + num_decimals;
    const DigitRange range(digits_of(low, width), digits_of(high, width),
                           static_cast<size_t>(num_digits));
    ways.push_back(sequence({literal(std::string(sign)), range.build()}));
  }
}

}  // namespace

Expression json_space(RuleSet& rules) {
  if (rules.json.space < 0) {
    rules.json.space = rules.add(optional(
        choice({literal(" "), sequence({literal("\n"), repeat(literal(" "), 0, kMaxIndent)})})));
  }
  return rule(rules.json.space);
}

Expression json_space_after_colon() { return optional(literal(" ")); }

std::string json_quoted(std::string_view text) { return json::dump(json::Value(text)); }

Expression json_string(RuleSet& rules) {
  if (rules.json.string < 0) {
    rules.json.string = rules.add(
        sequence({literal("\""), repeat(string_character(), 0, kUnbounded), literal("\"")}));
  }
  return rule(rules.json.string);
}

Expression json_string(int min_characters, int max_characters, RuleSet& rules) {
  if (rules.json.character < 0) rules.json.character = rules.add(string_character());
  return sequence({literal("\""),
                   repeat(rule(rules.json.character), min_characters, max_characters),
                   literal("\"")});
}

Expression json_number(RuleSet& rules) {
  if (rules.json.number < 0) {
    rules.json.number =
        rules.add(pattern("-?(0|[1-9][0-9]{0,15})(\\.[0-9]{1,16})?([eE][+-]?[0-9]{1,2})?", rules));
  }
  return rule(rules.json.number);
}

Expression json_integer(RuleSet& rules) {
  if (rules.json.integer < 0) {
    rules.json.integer = rules.add(pattern("-?(0|[1-9][0-9]{0,17})", rules));
  }
  return rule(rules.json.integer);
}

Expression json_any_value(RuleSet& rules) {
  define_any_values(rules);
  return rule(rules.json.value);
}

Expression json_any_object(RuleSet& rules) {
  define_any_values(rules);
  return rule(rules.json.object);
}

Expression json_any_array(RuleSet& rules) {
  define_any_values(rules);
  return rule(rules.json.array);
}

Expression json_decimals_between(int64_t min, int64_t max, int num_decimals) {
  std::vector<Expression> ways;
  if (min < 0) add_magnitudes(std::max<int64_t>(-max, 1), -min, num_decimals, "-", ways);
  if (max >= 0) add_magnitudes(std::max<int64_t>(min, 0), max, num_decimals, "", ways);
  return choice(std::move(ways));
}

Expression lower_json_object(RuleSet& rules) { return json_any_object(rules); }

}  // namespace fathom::grammar
