#include "grammar/schema/json_values.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/expressions/code_points.h"
#include "grammar/expressions/json_quoted.h"
#include "grammar/expressions/regex_parser.h"
#include "grammar/schema/front_ends.h"
#include "grammar/schema/json_space.h"

namespace fathom::grammar {
namespace {

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
  constexpr int kStart = 0, kOpen = 1, kNext = 2, kWritten = 3, kEnd = 4;
  const Expression space = json_space(rules);
  const Expression end = sequence({space, literal(std::string(close))});
  return graph({{kStart, kOpen, literal(std::string(open))},
                {kOpen, kNext, literal("")},
                {kNext, kWritten, sequence({space, item})},
                {kWritten, kNext, json_comma(rules)},
                {kOpen, kEnd, end},
                {kWritten, kEnd, end}},
               {kEnd}, kEnd + 1);
}

// A rule per level: the depth is bounded because the innermost level has no lists.
void define_any_values(RuleSet& rules) {
  if (rules.json().value >= 0) return;
  const Expression string = json_string(rules);
  const Expression scalar =
      choice({string, json_number(rules), literal("true"), literal("false"), literal("null")});
  int value = rules.add(scalar);
  const int leaf = value;
  for (int depth = 0; depth < kMaxAnyDepth; ++depth) {
    const Expression member = sequence({string, json_colon(rules), rule(value)});
    rules.json().object = rules.add(list(member, "{", "}", rules));
    rules.json().array = rules.add(list(rule(value), "[", "]", rules));
    value = rules.add(choice({rule(leaf), rule(rules.json().object), rule(rules.json().array)}));
  }
  rules.json().value = value;
}

std::string digits_of(NumberUnits value, int num_digits) {
  std::string digits(static_cast<size_t>(num_digits), '0');
  for (size_t i = digits.size(); i-- > 0; value /= 10) {
    digits[i] = static_cast<char>('0' + static_cast<int>(value % 10));
  }
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
  // What may follow the first `at` digits, which equal those of low_ / high_ so far or lie inside.
  Expression from(size_t at, bool follows_low, bool follows_high) const {
    // The digits left cannot leave the range any more.
    if (follows_low && low_.find_first_not_of('0', at) == low_.npos) follows_low = false;
    if (follows_high && high_.find_first_not_of('9', at) == high_.npos) follows_high = false;
    std::vector<Expression> ways;
    if (at >= num_integer_digits_ && !follows_low) ways.push_back(literal(""));
    if (at < low_.size()) {
      Expression digits = more_digits(at, follows_low, follows_high);
      if (at == num_integer_digits_) digits = sequence({literal("."), std::move(digits)});
      ways.push_back(std::move(digits));
    }
    return choice(std::move(ways));
  }

  Expression more_digits(size_t at, bool follows_low, bool follows_high) const {
    if (!follows_low && !follows_high) return free_digits(at, '9');
    if (!follows_low && high_.find_first_not_of('0', at) == high_.npos) return free_digits(at, '0');
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

  // At least one digit up to the last where digits are left, as many as the integer part needs.
  Expression free_digits(size_t at, char last) const {
    const Expression digit = character({{'0', static_cast<char32_t>(last)}});
    const size_t num_decimals = low_.size() - std::max(at, num_integer_digits_);
    if (at >= num_integer_digits_) return repeat(digit, 1, static_cast<int>(num_decimals));
    const int missing = static_cast<int>(num_integer_digits_ - at);
    Expression whole = repeat(digit, missing, missing);
    if (num_decimals == 0) return whole;
    return sequence(
        {whole,
         optional(sequence({literal("."), repeat(digit, 1, static_cast<int>(num_decimals))}))});
  }

  std::string low_, high_;
  size_t num_integer_digits_;
};

// All numbers whose integer part has between so many digits.
Expression any_decimals(int least_digits, int most_digits, int num_decimals) {
  const Expression digit = character({{'0', '9'}});
  Expression whole =
      sequence({character({{'1', '9'}}), repeat(digit, least_digits - 1, most_digits - 1)});
  if (num_decimals == 0) return whole;
  return sequence({whole, optional(sequence({literal("."), repeat(digit, 1, num_decimals)}))});
}

// REQUIRES: 0 <= min <= max.
void add_magnitudes(NumberUnits min, NumberUnits max, int num_decimals, std::string_view sign,
                    std::vector<Expression>& ways) {
  const NumberUnits unit = power_of_ten(num_decimals);
  int first_whole = 0, last_whole = 0;  // lengths at which every number is within the bounds
  for (int num_digits = 1; num_digits <= kMaxIntegerDigits; ++num_digits) {
    const NumberUnits least = num_digits == 1 ? 0 : power_of_ten(num_digits - 1) * unit;
    const NumberUnits most = power_of_ten(num_digits) * unit - 1;
    const NumberUnits low = std::max(min, least), high = std::min(max, most);
    if (low > high) continue;
    if (num_digits > 1 && low == least && high == most) {
      if (first_whole == 0) first_whole = num_digits;
      last_whole = num_digits;
      continue;
    }
    const int width = num_digits + num_decimals;
    const DigitRange range(digits_of(low, width), digits_of(high, width),
                           static_cast<size_t>(num_digits));
    ways.push_back(sequence({literal(std::string(sign)), range.build()}));
  }
  if (first_whole == 0) return;
  ways.push_back(
      sequence({literal(std::string(sign)), any_decimals(first_whole, last_whole, num_decimals)}));
}

}  // namespace

std::string json_quoted(std::string_view text) { return json::dump(json::Value(text)); }

Expression json_string(RuleSet& rules) {
  if (rules.json().string < 0) {
    rules.json().string = rules.add(
        sequence({literal("\""), repeat(string_character(), 0, kUnbounded), literal("\"")}));
  }
  return rule(rules.json().string);
}

Expression json_string_content(RuleSet& rules) {
  if (rules.json().string_content < 0) {
    rules.json().string_content = rules.add(repeat(string_character(), 0, kUnbounded));
  }
  return rule(rules.json().string_content);
}

Expression json_escape(RuleSet& rules) {
  if (rules.json().escape < 0) {
    rules.json().escape = rules.add(json_string_character({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}));
  }
  return rule(rules.json().escape);
}

Expression json_wide_character(RuleSet& rules) {
  if (rules.json().wide_character < 0) {
    rules.json().wide_character = rules.add(character({{0x80, kMaxCodePoint}}));
  }
  return rule(rules.json().wide_character);
}

Expression json_string(int min_characters, int max_characters, RuleSet& rules) {
  if (rules.json().character < 0) rules.json().character = rules.add(string_character());
  return sequence({literal("\""),
                   repeat(rule(rules.json().character), min_characters, max_characters),
                   literal("\"")});
}

Expression json_number(RuleSet& rules) {
  if (rules.json().number < 0)
    rules.json().number = rules.add(sequence({optional(literal("-")), json_magnitude(rules)}));
  return rule(rules.json().number);
}

// Every double in every usual form, and nothing that reads as infinite. 1.7976931348623157e308 is the largest, and
// 5e-324, with as many decimals where it has no exponent, the smallest.
Expression json_magnitude(RuleSet& rules) {
  if (rules.json().magnitude >= 0) return rule(rules.json().magnitude);
  const auto form = [&](std::string_view whole, std::string_view exponent) {
    return sequence(
        {pattern(whole, rules), optional(rule(rules.json().decimals)), pattern(exponent, rules)});
  };
  rules.json().decimals = rules.add(pattern("\\.[0-9]{1,341}", rules));
  const std::string up_to_290 = "(?:[0-9]{1,2}|[01][0-9]{2}|2[0-8][0-9]|290)";
  const std::string down_to_324 = "(?:[0-9]{1,2}|[0-2][0-9]{2}|3[01][0-9]|32[0-4])";
  const Expression short_form =
      form("0|[1-9][0-9]{0,16}", "(?:[eE](?:\\+?" + up_to_290 + "|-" + down_to_324 + "))?");
  const Expression long_form = form("[1-9][0-9]{17,307}", "");
  const Expression large_form = form("[0-9]", "[eE]\\+?(?:29[1-9]|30[0-7])");
  const NumberUnits one = power_of_ten(16), largest = 17'976'931'348'623'157;
  const Expression largest_form =
      sequence({json_decimals_between(one, largest, 16), pattern("[eE]\\+?308", rules)});
  rules.json().magnitude = rules.add(choice({short_form, long_form, large_form, largest_form}));
  return rule(rules.json().magnitude);
}

Expression json_integer(RuleSet& rules) {
  if (rules.json().integer < 0) {
    rules.json().integer =
        rules.add(choice({json_decimals_between(kLeastInteger, kMostInteger, 0), literal("-0")}));
  }
  return rule(rules.json().integer);
}

Expression json_any_value(RuleSet& rules) {
  define_any_values(rules);
  return rule(rules.json().value);
}

Expression json_any_object(RuleSet& rules) {
  define_any_values(rules);
  return rule(rules.json().object);
}

Expression json_any_array(RuleSet& rules) {
  define_any_values(rules);
  return rule(rules.json().array);
}

Expression json_decimals_between(NumberUnits min, NumberUnits max, int num_decimals) {
  std::vector<Expression> ways;
  if (min < 0) add_magnitudes(std::max<NumberUnits>(-max, 1), -min, num_decimals, "-", ways);
  if (max >= 0) add_magnitudes(std::max<NumberUnits>(min, 0), max, num_decimals, "", ways);
  return choice(std::move(ways));
}

Expression lower_json_object(const JsonStyle& style, RuleSet& rules) {
  rules.set_json_space(style.space);
  return json_any_object(rules);
}

Expression lower_json_member(std::string_view name, const Expression& text, RuleSet& rules) {
  rules.set_json_space(std::nullopt);
  const Expression space = json_space(rules);
  return sequence({literal("{"), space, literal(json_quoted(name)), json_colon(rules),
                   literal("\""), json_quoted_text(text, rules), literal("\""), space,
                   literal("}")});
}

}  // namespace fathom::grammar
