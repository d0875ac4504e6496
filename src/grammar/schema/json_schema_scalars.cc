// Strings and numbers of schemas.

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/json.h"
#include "grammar/expressions/json_quoted.h"
#include "grammar/expressions/regex_parser.h"
#include "grammar/schema/json_schema.h"
#include "grammar/schema/json_text.h"
#include "grammar/schema/json_values.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

// Longer counts are cut to this: a text within it satisfies them too.
constexpr int64_t kMaxLength = 20'000;
// Decimals of this many digits are different numbers for every reader. Behind an exclusive bound the first number is
// taken that differs from it so: what lies between could be read as the bound itself.
constexpr int kSureDigits = 15;
// Bounds that lie further out are cut to this.
const NumberUnits kBoundLimit = power_of_ten(kMaxIntegerDigits + kUnitDecimals);

NumberUnits step_beside(NumberUnits bound) {
  const NumberUnits magnitude = bound < 0 ? -bound : bound;
  int num_digits = 1;
  while (num_digits <= kMaxIntegerDigits && magnitude >= power_of_ten(num_digits + kUnitDecimals))
    ++num_digits;
  return power_of_ten(std::max(0, kUnitDecimals - kSureDigits + num_digits));
}

NumberUnits rounded(NumberUnits value, NumberUnits unit, bool up) {
  const NumberUnits rest = (value % unit + unit) % unit;
  return rest == 0 ? value : value - rest + (up ? unit : 0);
}

// All ways to write a multiple of the step without an exponent.
std::optional<TextSet> multiples(NumberUnits step) {
  int num_decimals = kUnitDecimals;
  for (; num_decimals > 0 && step % 10 == 0; --num_decimals) step /= 10;
  if (step * (num_decimals + 3) > kMaxTextStates) return std::nullopt;
  const auto size = static_cast<int32_t>(step);
  constexpr int32_t kStart = 0, kMinus = 1, kZero = 2, kFirst = 3;
  TextSet set;
  set.states.resize(size_t{kFirst} +
                    static_cast<size_t>(size) * static_cast<size_t>(num_decimals + 3));
  // Phase 0 reads the integer part, phase 1 has read the point, phase 1 + j has read j decimals, and the last one
  // has read zeros behind them.
  const int last_phase = num_decimals + 2;
  const auto state = [&](int phase, int32_t rest) { return kFirst + phase * size + rest; };
  const auto add = [&](int32_t from, int32_t digit, int32_t to) {
    const auto c = static_cast<char32_t>('0' + digit);
    set.states[static_cast<size_t>(from)].edges.push_back({c, c, to});
  };
  const auto add_point = [&](int32_t from, int32_t rest) {
    set.states[static_cast<size_t>(from)].edges.push_back({'.', '.', state(1, rest)});
  };
  set.states[kStart].edges.push_back({'-', '-', kMinus});
  for (const int32_t from : {kStart, kMinus}) {
    add(from, 0, kZero);
    for (int32_t digit = 1; digit <= 9; ++digit) add(from, digit, state(0, digit % size));
  }
  set.states[kZero].accepting = true;
  add_point(kZero, 0);
  for (int phase = 0; phase <= last_phase; ++phase) {
    const int num_missing = num_decimals - std::clamp(phase - 1, 0, num_decimals);
    for (int32_t rest = 0; rest < size; ++rest) {
      const int32_t from = state(phase, rest);
      set.states[static_cast<size_t>(from)].accepting =
          phase != 1 && static_cast<NumberUnits>(rest) * power_of_ten(num_missing) % size == 0;
      if (phase == 0) add_point(from, rest);
      if (phase > num_decimals) {
        add(from, 0, state(last_phase, rest));
        continue;
      }
      for (int32_t digit = 0; digit <= 9; ++digit) {
        const auto next = static_cast<int32_t>((int64_t{rest} * 10 + digit) % size);
        add(from, digit, state(phase == 0 ? 0 : phase + 1, next));
      }
    }
  }
  return set;
}

// The remainders by a whole step that no further digits tell apart are one state: few for tens and powers of two.
class Remainders {
 public:
  explicit Remainders(NumberUnits step) : step_(step), rest_(step) {
    for (const int prime : {2, 5}) {
      for (; rest_ % prime == 0; rest_ /= prime) part_ *= prime;
    }
  }
  bool is_small() const { return rest_ <= kMaxTextStates && part_ <= power_of_ten(15); }
  size_t size() const { return all_.size(); }
  NumberUnits operator[](size_t i) const { return all_[i]; }
  int32_t number_of(NumberUnits remainder) {
    remainder %= step_;
    const auto next = static_cast<int32_t>(all_.size());
    const auto [entry, is_new] = known_.try_emplace(key_of(remainder), next);
    if (is_new) all_.push_back(remainder);
    return entry->second;
  }

 private:
  // By the part of the step without twos and fives; and for each number of further digits the ones that make a
  // multiple, up to where they can make every remainder.
  std::vector<NumberUnits> key_of(NumberUnits remainder) const {
    std::vector<NumberUnits> key = {remainder % rest_};
    for (NumberUnits power = 1;; power *= 10) {
      const NumberUnits missing = (part_ - remainder % part_ * power % part_) % part_;
      key.push_back(missing < power ? missing : -1);
      if (power >= part_) return key;
    }
  }

  const NumberUnits step_;
  NumberUnits rest_, part_ = 1;
  std::map<std::vector<NumberUnits>, int32_t> known_;
  std::vector<NumberUnits> all_;
};

// All whole multiples of a whole step, of any number of digits.
std::optional<TextSet> whole_multiples(NumberUnits step, Budget& budget) {
  constexpr int32_t kStart = 0, kMinus = 1, kZero = 2, kFirst = 3;
  Remainders remainders(step);
  if (!remainders.is_small()) return std::nullopt;
  TextSet set;
  set.states.resize(kFirst);
  const auto add = [&](int32_t from, int digit, int32_t to) {
    const auto c = static_cast<char32_t>('0' + digit);
    set.states[static_cast<size_t>(from)].edges.push_back({c, c, to});
  };
  set.states[kStart].edges.push_back({'-', '-', kMinus});
  set.states[kZero].accepting = true;
  for (const int32_t from : {kStart, kMinus}) {
    add(from, 0, kZero);
    for (int digit = 1; digit <= 9; ++digit) add(from, digit, kFirst + remainders.number_of(digit));
  }
  for (size_t i = 0; i < remainders.size(); ++i) {
    if (remainders.size() > kMaxTextStates || !budget.charge(2048)) return std::nullopt;
    const NumberUnits remainder = remainders[i];
    set.states.emplace_back().accepting = remainder == 0;
    for (int digit = 0; digit <= 9; ++digit)
      add(kFirst + static_cast<int32_t>(i), digit,
          kFirst + remainders.number_of(remainder * 10 + digit));
  }
  return set;
}

// The place of the first digit: 0 of what lies from 1 to 10, and of units.
int exponent_of(NumberUnits units) {
  int exponent = -kUnitDecimals;
  for (; units >= 10; units /= 10) ++exponent;
  return exponent;
}

// Positive numbers from least to most, in units, written with an exponent: all whose exponent lies between those of the
// bounds, whatever their digits are.
Expression with_exponent(NumberUnits least, std::optional<NumberUnits> most) {
  constexpr int kFirst = -307, kLast = 307, kMaxDecimals = 16;
  const int first = least > 0 ? exponent_of(least) + 1 : kFirst;
  const int last = most ? exponent_of(*most) - 1 : kLast;
  if (first > last || (most && *most <= 0)) return choice({});
  const Expression digit = character({{'0', '9'}});
  const Expression mark = character({{'e', 'e'}, {'E', 'E'}});
  std::vector<Expression> powers;
  if (last >= 0) {
    powers.push_back(
        sequence({optional(literal("+")), json_decimals_between(std::max(first, 0), last, 0)}));
  }
  if (first < 0) {
    powers.push_back(
        sequence({literal("-"), json_decimals_between(std::max(1, -last), -first, 0)}));
  }
  return sequence({character({{'1', '9'}}),
                   optional(sequence({literal("."), repeat(digit, 1, kMaxDecimals)})), mark,
                   choice(std::move(powers))});
}

// All ways to write the number without an exponent, as a pattern.
std::string spellings(NumberUnits value) {
  const bool is_negative = value < 0;
  const NumberUnits magnitude = is_negative ? -value : value;
  std::string digits;
  for (NumberUnits rest = magnitude; rest > 0; rest /= 10)
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(rest % 10)));
  if (digits.size() < kUnitDecimals + 1) digits.insert(0, kUnitDecimals + 1 - digits.size(), '0');
  const std::string whole = digits.substr(0, digits.size() - kUnitDecimals);
  std::string decimals = digits.substr(digits.size() - kUnitDecimals);
  decimals.erase(decimals.find_last_not_of('0') + 1);
  const std::string sign = magnitude == 0 ? "-?" : is_negative ? "-" : "";
  return sign + whole + (decimals.empty() ? "(\\.0*)?" : "\\." + decimals + "0*");
}

}  // namespace

Expression SchemaCompiler::build_string(const Facts& facts) {
  const StringFacts& string = facts.string;
  std::vector<std::string> words;
  for (const Value* const value : facts.excluded) {
    if (value->is_string()) words.push_back(value->get<std::string>());
  }
  const bool has_length = string.min_length > 0 || string.max_length;
  if (string.min_length > kMaxLength)
    return fail("\"minLength\" is at most " + std::to_string(kMaxLength));
  if (string.max_length && string.min_length > *string.max_length) return choice({});
  const size_t num_rules = string.patterns.size() + string.formats.size();
  const bool is_single = words.empty() && string.other_patterns.empty();
  if (is_single && num_rules == 0) {
    const int64_t max = string.max_length ? std::min(*string.max_length, kMaxLength) : kUnbounded;
    return json_string(static_cast<int>(string.min_length), static_cast<int>(max), rules_);
  }
  Expression content = literal("");
  bool is_plain = false;
  if (is_single && num_rules == 1 && !has_length) {
    const bool is_pattern = !string.patterns.empty();
    const std::string text(is_pattern ? std::string_view(string.patterns[0])
                                      : string_format_pattern(string.formats[0]));
    RegexNotes notes;
    content = parse_regex(text, {.search = is_pattern, .notes = &notes}, budget_);
    if (!budget_.ok()) return choice({});
    is_plain = !notes.has_look;
    if (is_plain) content = json_quoted_text(content, rules_);
  }
  if (!is_plain) {
    const std::optional<TextSet> set = reader_.texts().set_of(string, words, TextSets::kAtMost);
    if (!budget_.ok()) return choice({});
    if (!set)
      return fail(
          "\"pattern\", \"format\", lengths and excluded values are too large to be kept together");
    if (is_empty(*set)) return choice({});
    content = json_text(*set, rules_);
  }
  return sequence({literal("\""), content, literal("\"")});
}

// The least and the most that may be written, in units or, for integers, whole.
SchemaCompiler::NumberRange SchemaCompiler::range_of(const NumberFacts& number, bool is_integer) {
  const NumberUnits whole = power_of_ten(kUnitDecimals);
  const NumberUnits limit =
      power_of_ten(kMaxIntegerDigits + kUnitDecimals) - (is_integer ? whole : 1);
  NumberRange range{.min = -limit, .max = limit};
  const auto raise = [&](NumberUnits min) {
    range.min = std::max(range.min, min), range.has_min = true;
  };
  const auto lower = [&](NumberUnits max) {
    range.max = std::min(range.max, max), range.has_max = true;
  };
  if (number.least) raise(*number.least);
  if (number.above) raise(*number.above + (is_integer ? 1 : step_beside(*number.above)));
  if (number.most) lower(*number.most);
  if (number.below) lower(*number.below - (is_integer ? 1 : step_beside(*number.below)));
  for (const std::string& format : number.formats) {
    const IntegerFormat* const known = find_integer_format(format);
    if (known == nullptr || !is_integer) continue;
    raise(known->min * whole);
    lower(known->max * whole);
  }
  if (!is_integer) return range;
  range.min = rounded(range.min, whole, true) / whole;
  range.max = rounded(range.max, whole, false) / whole;
  // 64 bits, unless a bound lies outside of them.
  if (!range.has_min && range.max >= kLeastInteger) range.min = kLeastInteger;
  if (!range.has_max && range.min <= kMostInteger) range.max = kMostInteger;
  return range;
}

// Numbers within the bounds that have an exponent.
Expression SchemaCompiler::exponents(const NumberRange& bounds) {
  const auto most = [](bool is_asked_for, NumberUnits units) {
    return is_asked_for ? std::optional(units) : std::nullopt;
  };
  const Expression negative = bounds.min < 0 ? with_exponent(std::max<NumberUnits>(-bounds.max, 0),
                                                             most(bounds.has_min, -bounds.min))
                                             : choice({});
  const Expression positive = bounds.max > 0 ? with_exponent(std::max<NumberUnits>(bounds.min, 0),
                                                             most(bounds.has_max, bounds.max))
                                             : choice({});
  return choice({sequence({literal("-"), negative}), positive});
}

Expression SchemaCompiler::build_number(const Facts& facts, unsigned types) {
  const NumberFacts& number = facts.number;
  const bool is_integer = types == kWhole;
  const NumberRange bounds = range_of(number, is_integer);
  std::vector<std::string> excluded;
  for (const Value* const value : facts.excluded) {
    const std::optional<NumberUnits> units = value->is_number() ? units_of(*value) : std::nullopt;
    if (units) excluded.push_back(spellings(*units));
  }
  const bool is_plain = excluded.empty() && number.multiples.empty() &&
                        number.other_multiples.empty() && types != kFraction;
  const bool is_bounded = bounds.has_min || bounds.has_max;
  if (is_plain && !is_bounded) return is_integer ? json_integer(rules_) : json_number(rules_);
  const bool is_above = std::max(number.least, number.above) >= kBoundLimit;
  const bool is_below =
      number.most.value_or(0) <= -kBoundLimit || number.below.value_or(0) <= -kBoundLimit;
  if (is_above || is_below) return fail("numbers beyond 10^20 alone are not supported");
  if (bounds.min > bounds.max) return choice({});
  if (is_plain && !is_integer && !bounds.has_max && bounds.min == 0) return json_magnitude(rules_);
  Expression range = json_decimals_between(bounds.min, bounds.max, is_integer ? 0 : kUnitDecimals);
  if (is_plain) {
    // Schemas of many tools have the same bounds.
    std::string key = is_integer ? "i" : "n";
    for (const NumberUnits units : {bounds.min, bounds.max}) key += ' ' + spellings(units);
    const auto [known, is_new] = rules_.json().ranges.try_emplace(std::move(key), -1);
    if (is_new) {
      if (!is_integer) range = choice({range, exponents(bounds)});
      known->second = rules_.add(range);
    }
    return rule(known->second);
  }
  const std::optional<TextSet> set = number_set(facts, types, range, excluded);
  if (!set) return fail("\"multipleOf\" and bounds are too large to be kept together");
  return is_empty(*set) ? choice({}) : plain_text(*set);
}

// What also is, or is not, a multiple or one of some values.
std::optional<TextSet> SchemaCompiler::number_set(const Facts& facts, unsigned types,
                                                  const Expression& range,
                                                  const std::vector<std::string>& excluded) {
  const NumberFacts& number = facts.number;
  const bool is_integer = types == kWhole;
  const NumberUnits whole = power_of_ten(kUnitDecimals);
  std::optional<TextSet> set = text_set_of(range, budget_);
  const auto narrow = [&](const std::optional<TextSet>& with, Combine how) {
    set = set && with ? combined(*set, *with, how, budget_) : std::nullopt;
  };
  // Numbers of so few digits that no reader takes one for another.
  const std::string sure = types == kFraction ? "-?[0-9]{1,6}\\.[0-9]{0,8}[1-9]"
                                              : "-?(?:[0-9]{1,9}(?:\\.[0-9]{1,6})?|[0-9]{1,15})";
  const bool is_exact = is_integer && number.other_multiples.empty() && excluded.empty();
  if (!is_exact) narrow(text_set_of(parse_regex(sure, {}, budget_), budget_), Combine::kBoth);
  const auto multiples_of = [&](const Value* step) {
    const NumberUnits units = *units_of(*step);
    return is_integer && units % whole == 0 ? whole_multiples(units / whole, budget_)
                                            : multiples(units);
  };
  for (const Value* const step : number.multiples) {
    const std::optional<TextSet> kept = multiples_of(step);
    std::optional<TextSet> both =
        set && kept ? combined(*set, *kept, Combine::kBoth, budget_) : std::nullopt;
    // Without bounds the number of digits need not be counted: that would take a state for each.
    const NumberRange bounds = range_of(number, is_integer);
    const bool is_free = is_integer && !bounds.has_min && !bounds.has_max;
    if (!both && budget_.ok() && is_free && number.multiples.size() == 1) both = kept;
    set = std::move(both);
  }
  for (const Value* const step : number.other_multiples)
    narrow(multiples_of(step), Combine::kOnlyFirst);
  for (const std::string& one : excluded)
    narrow(text_set_of(parse_regex(one, {}, budget_), budget_), Combine::kOnlyFirst);
  return set;
}

}  // namespace fathom::grammar
