#include "grammar/schema/schema_facts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/json.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

template <class T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

template <class T>
void append_new(std::vector<T>& all, const std::vector<T>& more) {
  for (const T& one : more) {
    if (std::find(all.begin(), all.end(), one) == all.end()) all.push_back(one);
  }
}

template <class T>
void keep_least(std::optional<T>& all, const std::optional<T>& more) {
  if (more && (!all || *more < *all)) all = more;
}

template <class T>
void keep_most(std::optional<T>& all, const std::optional<T>& more) {
  if (more && (!all || *more > *all)) all = more;
}

void add_object(ObjectFacts& all, const ObjectFacts& more) {
  for (const std::string& name : more.order) {
    const auto [entry, is_new] = all.properties.try_emplace(name);
    if (is_new) all.order.push_back(name);
    append_new(entry->second, more.properties.at(name));
  }
  append(all.patterns, more.patterns);
  append(all.rests, more.rests);
  append_new(all.names, more.names);
  append_new(all.presence, more.presence);
  all.min = std::max(all.min, more.min);
  keep_least(all.max, more.max);
}

}  // namespace

bool are_equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return a == b;
  if (a.type() != b.type() || a.size() != b.size()) return false;
  if (a.is_array()) {
    return std::equal(a.begin(), a.end(), b.begin(), are_equal);
  }
  if (!a.is_object()) return a == b;
  for (const auto& [name, value] : a.items()) {
    const auto other = b.find(name);
    if (other == b.end() || !are_equal(value, *other)) return false;
  }
  return true;
}

unsigned type_of(const Value& value) {
  if (value.is_object()) return kObject;
  if (value.is_array()) return kArray;
  if (value.is_string()) return kString;
  if (value.is_boolean()) return kBoolean;
  if (value.is_null()) return kNull;
  const bool is_whole =
      value.is_number_integer() || value.get<double>() == std::floor(value.get<double>());
  return is_whole ? kWhole : kFraction;
}

std::optional<NumberUnits> units_of(const Value& number) {
  // The shortest decimal that is this number: what the schema's author wrote.
  std::array<char, 64> text{};
  const auto written =
      number.is_number_unsigned()  ? std::to_chars(text.begin(), text.end(), number.get<uint64_t>())
      : number.is_number_integer() ? std::to_chars(text.begin(), text.end(), number.get<int64_t>())
                                   : std::to_chars(text.begin(), text.end(), number.get<double>(),
                                                   std::chars_format::scientific);
  std::string_view rest(text.data(), static_cast<size_t>(written.ptr - text.data()));
  const bool is_negative = rest.substr(0, 1) == "-";
  if (is_negative) rest.remove_prefix(1);
  NumberUnits digits = 0;
  int exponent = 0;
  bool is_behind_point = false;
  for (; !rest.empty() && rest[0] != 'e'; rest.remove_prefix(1)) {
    if (rest[0] == '.') {
      is_behind_point = true;
      continue;
    }
    digits = digits * 10 + (rest[0] - '0');
    exponent -= is_behind_point ? 1 : 0;
  }
  if (!rest.empty()) {
    const std::string power(rest.substr(rest[1] == '+' ? 2 : 1));
    exponent += std::stoi(power);
  }
  const NumberUnits limit = power_of_ten(kMaxIntegerDigits + kUnitDecimals);
  int shift = exponent + kUnitDecimals;
  for (; shift < 0 && digits != 0; ++shift) {
    if (digits % 10 != 0) return std::nullopt;
    digits /= 10;
  }
  for (; shift > 0 && digits < limit; --shift) digits *= 10;
  digits = std::min(digits, limit);
  return is_negative ? -digits : digits;
}

bool is_free(const StringFacts& facts) {
  return facts.patterns.empty() && facts.other_patterns.empty() && facts.formats.empty() &&
         facts.min_length == 0 && !facts.max_length;
}

Facts both(Facts a, const Facts& b) {
  a.types &= b.types;
  a.mentioned |= b.mentioned;
  a.names_types = a.names_types || b.names_types;
  if (b.values && a.values) {
    std::erase_if(*a.values, [&](const Value* value) {
      return std::none_of(b.values->begin(), b.values->end(),
                          [&](const Value* other) { return are_equal(*value, *other); });
    });
  } else if (b.values) {
    a.values = b.values;
  }
  append(a.excluded, b.excluded);
  append_new(a.string.patterns, b.string.patterns);
  append_new(a.string.other_patterns, b.string.other_patterns);
  append_new(a.string.formats, b.string.formats);
  a.string.min_length = std::max(a.string.min_length, b.string.min_length);
  keep_least(a.string.max_length, b.string.max_length);
  keep_most(a.number.least, b.number.least);
  keep_least(a.number.most, b.number.most);
  keep_most(a.number.above, b.number.above);
  keep_least(a.number.below, b.number.below);
  append_new(a.number.multiples, b.number.multiples);
  append_new(a.number.other_multiples, b.number.other_multiples);
  append_new(a.number.formats, b.number.formats);
  append(a.array.items, b.array.items);
  append(a.array.contains, b.array.contains);
  a.array.min = std::max(a.array.min, b.array.min);
  keep_least(a.array.max, b.array.max);
  a.array.unique = a.array.unique || b.array.unique;
  add_object(a.object, b.object);
  return a;
}

}  // namespace fathom::grammar
