// Strings, numbers, arrays and objects of schemas.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "grammar/code_points.h"
#include "grammar/json_schema.h"
#include "grammar/json_values.h"
#include "grammar/regex_parser.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

// Longer counts are cut to this: a text within it satisfies them too.
constexpr int kMaxCount = 20'000;
constexpr int kMaxPrefixItems = 256;
constexpr int kDecimals = 6;
constexpr int64_t kDecimalUnit = 1'000'000;
constexpr int64_t kMaxInteger = 999'999'999'999'999'999;           // 18 digits
constexpr int64_t kMaxDecimal = 1'000'000'000 * kDecimalUnit - 1;  // 9 digits and 6 decimals

// A bound in units; nullopt where it has more decimals than that.
std::optional<int64_t> integer_bound(const Value& value, bool is_least) {
  if (value.is_number_unsigned()) {
    return static_cast<int64_t>(
        std::min<uint64_t>(value.get<uint64_t>(), static_cast<uint64_t>(kMaxInteger) + 1));
  }
  if (value.is_number_integer()) {
    return std::clamp(value.get<int64_t>(), -kMaxInteger - 1, kMaxInteger + 1);
  }
  const double number = is_least ? std::ceil(value.get<double>()) : std::floor(value.get<double>());
  return static_cast<int64_t>(std::clamp(number, -1e18, 1e18));
}

std::optional<int64_t> decimal_bound(const Value& value) {
  const double number = value.get<double>();
  if (std::fabs(number) > 1e9) return number > 0 ? kMaxDecimal + 1 : -kMaxDecimal - 1;
  const int64_t units = std::llround(number * static_cast<double>(kDecimalUnit));
  if (static_cast<double>(units) / static_cast<double>(kDecimalUnit) != number) return std::nullopt;
  return units;
}

// A node of the tree of names that free members must not have.
struct NameNode {
  std::map<char32_t, size_t> children;
  bool is_name = false;
};

std::vector<NameNode> name_tree(const std::vector<std::string>& names, Budget& budget) {
  std::vector<NameNode> nodes(1);
  for (const std::string& name : names) {
    size_t at = 0;
    std::string_view rest = name;
    while (const std::optional<char32_t> c = take_utf8(rest)) {
      if (!budget.charge(16)) return nodes;
      const auto [child, is_new] = nodes[at].children.try_emplace(*c, nodes.size());
      at = child->second;
      if (is_new) nodes.emplace_back();
    }
    nodes[at].is_name = true;
  }
  return nodes;
}

// Text of plain characters (no escapes, which could spell a name in another way) that is none of the names.
Expression other_name(const std::vector<std::string>& names, RuleSet& rules) {
  const std::vector<CodePointRange> escaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  const int any = rules.add(repeat(character(escaped, /*negated=*/true), 0, kUnbounded));
  const std::vector<NameNode> nodes = name_tree(names, rules.budget());
  const int first = rules.size();
  for (size_t i = 0; i < nodes.size(); ++i) rules.reserve();
  for (size_t i = 0; i < nodes.size() && rules.budget().charge(32); ++i) {
    std::vector<CodePointRange> elsewhere = escaped;
    std::vector<Expression> ways;
    for (const auto& [c, child] : nodes[i].children) {
      elsewhere.push_back({c, c});
      const auto child_rule = rule(first + static_cast<int>(child));
      ways.push_back(
          sequence({intersection({{c, c}}, escaped).empty() ? character({{c, c}}) : choice({}),
                    child_rule}));
    }
    ways.push_back(sequence({character(std::move(elsewhere), /*negated=*/true), rule(any)}));
    if (!nodes[i].is_name) ways.push_back(literal(""));
    rules.define(first + static_cast<int>(i), choice(std::move(ways)));
  }
  return rule(first);
}

}  // namespace

Expression SchemaCompiler::build_string(const Value& schema, const std::string& path) {
  const bool has_length = schema.contains("minLength") || schema.contains("maxLength");
  const auto pattern = schema.find("pattern");
  const auto format = schema.find("format");
  if (has_length + (pattern != schema.end()) + (format != schema.end()) > 1) {
    return fail(path,
                "of \"pattern\", \"format\" and \"minLength\"/\"maxLength\" only one is supported "
                "at a time");
  }
  if (pattern != schema.end() || format != schema.end()) {
    const Value& source = pattern != schema.end() ? *pattern : *format;
    if (!source.is_string()) return fail(path, "\"pattern\" and \"format\" are strings");
    std::string text = source.get<std::string>();
    if (format != schema.end()) {
      const std::string name = text.substr(0, 64);
      text = string_format_pattern(text);
      if (text.empty()) return fail(path, "\"format\": \"" + name + "\" is not supported");
      return sequence({literal("\""), parse_regex(text, {}, budget_), literal("\"")});
    }
    const Expression content = parse_regex(text, {.in_json_string = true, .search = true}, budget_);
    if (!budget_.ok()) fail(path, "\"pattern\" is not supported");
    return sequence({literal("\""), content, literal("\"")});
  }
  if (!has_length) return json_string(rules_);
  const int min = count(schema, "minLength", 0, path);
  const int max = std::min(count(schema, "maxLength", kUnbounded, path),
                           schema.contains("maxLength") ? kMaxCount : kUnbounded);
  if (min > kMaxCount) return fail(path, "\"minLength\" is at most " + std::to_string(kMaxCount));
  if (min > max) return choice({});
  return json_string(min, max, rules_);
}

Expression SchemaCompiler::build_number(const Value& schema, bool is_integer,
                                        const std::string& path) {
  int64_t min = is_integer ? -kMaxInteger : -kMaxDecimal;
  int64_t max = -min;
  bool is_bounded = false;
  if (const auto format = schema.find("format"); format != schema.end()) {
    if (!format->is_string()) return fail(path, "\"format\" is a string");
    const std::string name = format->get<std::string>();
    const IntegerFormat* const known = find_integer_format(name);
    // Formats of strings say nothing about numbers.
    if (known == nullptr && !is_free_number_format(name) && string_format_pattern(name).empty()) {
      return fail(path, "\"format\": \"" + name.substr(0, 64) + "\" is not supported");
    }
    if (known != nullptr && is_integer) {
      is_bounded = known->min > min || known->max < max;
      min = std::max(min, known->min);
      max = std::min(max, known->max);
    }
  }
  for (const std::string_view keyword :
       {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const auto found = schema.find(keyword);
    if (found == schema.end()) continue;
    const std::string name = "\"" + std::string(keyword) + "\"";
    if (!found->is_number()) return fail(path, name + " is a number");
    is_bounded = true;
    const bool is_least = keyword == "minimum" || keyword == "exclusiveMinimum";
    const bool is_exclusive = keyword.substr(0, 2) == "ex";
    std::optional<int64_t> bound =
        is_integer ? integer_bound(*found, is_least) : decimal_bound(*found);
    if (!bound) return fail(path, name + " has more than 6 decimals");
    const bool is_on_bound = !is_integer || found->is_number_integer() ||
                             found->get<double>() == static_cast<double>(*bound);
    if (is_exclusive && is_on_bound) *bound += is_least ? 1 : -1;
    if (is_least) min = std::max(min, *bound);
    if (!is_least) max = std::min(max, *bound);
  }
  if (!is_bounded) return is_integer ? json_integer(rules_) : json_number(rules_);
  if (min > max) {
    return fail(path, is_integer
                          ? "no integer of at most 18 digits lies within the bounds"
                          : "no number of at most 9 digits and 6 decimals lies within the bounds");
  }
  return json_decimals_between(min, max, is_integer ? 0 : kDecimals);
}

Expression SchemaCompiler::build_array(const Value& schema, const std::string& path) {
  Value prefix = Value::array(), rest = true;
  bool has_rest = true;
  if (const auto items = schema.find("items"); items != schema.end()) {
    (items->is_array() ? prefix : rest) = *items;
  }
  if (const auto found = schema.find("prefixItems"); found != schema.end()) {
    if (!prefix.empty() || !found->is_array())
      return fail(path, "\"prefixItems\" is a list of schemas");
    prefix = *found;
    has_rest = schema.contains("items");
  }
  if (prefix.size() > kMaxPrefixItems) {
    return fail(path, "more than " + std::to_string(kMaxPrefixItems) + " \"prefixItems\"");
  }
  const int min = count(schema, "minItems", 0, path);
  int max = std::min(count(schema, "maxItems", kUnbounded, path),
                     schema.contains("maxItems") ? kMaxCount : kUnbounded);
  if (min > kMaxCount) return fail(path, "\"minItems\" is at most " + std::to_string(kMaxCount));
  const int num_prefix = static_cast<int>(prefix.size());
  // Nothing is said about the items behind the prefix: they are written only where they are needed.
  const bool is_open = has_rest && schema.contains("items") && !schema["items"].is_array();
  if (num_prefix > 0 && !is_open) max = std::min(max, std::max(min, num_prefix));
  if (min > max) return choice({});

  const Expression space = json_space(rules_), comma = literal(",");
  const Expression item = sequence({space, subschema(rest, path + "/items")});
  const auto more = [&](int written) {
    const int least = std::max(min - written, 0);
    const int most = max == kUnbounded ? kUnbounded : std::max(max - written, 0);
    return repeat(sequence({comma, item}), least, most);
  };
  Expression content = num_prefix > 0 ? more(num_prefix)
                       : max > 0      ? sequence({item, more(1)})
                                      : literal("");
  for (int i = num_prefix; i-- > 0 && budget_.ok();) {
    const std::string place = path + "/prefixItems/" + std::to_string(i);
    const Expression part = subschema(prefix[static_cast<size_t>(i)], place);
    // The item fits only where the list may be that long.
    content =
        i >= max ? literal("") : sequence({i > 0 ? comma : literal(""), space, part, content});
    if (i >= min && i > 0) content = optional(content);
  }
  if (min == 0) content = optional(content);
  return sequence({literal("["), content, space, literal("]")});
}

std::vector<Member> SchemaCompiler::object_members(const Value& schema, const std::string& path) {
  static const Value no_properties = Value::object();
  const auto found = schema.find("properties");
  const Value& properties = found == schema.end() ? no_properties : *found;
  std::vector<std::string> required;
  if (const auto list = schema.find("required"); list != schema.end()) {
    for (const Value& name : *list) {
      if (!name.is_string())
        return fail(path, "\"required\" is a list of names"), std::vector<Member>{};
      required.push_back(name.get<std::string>());
    }
  }
  std::sort(required.begin(), required.end());
  required.erase(std::unique(required.begin(), required.end()), required.end());
  std::vector<Member> parts;
  const auto add = [&](const std::string& name, const Value& value, bool is_required) {
    const Expression text =
        sequence({json_space(rules_), literal(json_quoted(name) + ":"), json_space_after_colon(),
                  subschema(value, path + "/properties/" + name)});
    parts.push_back({text, is_required});
  };
  num_properties_ += static_cast<int64_t>(properties.size() + required.size());
  if (static_cast<int64_t>(properties.size()) > budget_.limits().max_properties ||
      num_properties_ > 2 * int64_t{budget_.limits().max_properties}) {
    budget_.fail({ErrorCode::kTooLong, "json schema: more than " +
                                           std::to_string(budget_.limits().max_properties) +
                                           " properties"});
    return parts;
  }
  for (const auto& [name, value] : properties.items()) {
    if (!budget_.ok()) return parts;
    add(name, value, std::binary_search(required.begin(), required.end(), name));
  }
  const auto rest = schema.find("additionalProperties");
  for (const std::string& name : required) {
    if (!budget_.charge(static_cast<int64_t>(properties.size()) + 16)) return parts;
    if (properties.contains(name)) continue;
    add(name, rest == schema.end() ? Value(true) : *rest, true);
  }
  return parts;
}

Expression SchemaCompiler::free_members(const Value& schema, const Value& value_schema,
                                        const std::string& path) {
  std::vector<std::string> names;
  if (const auto found = schema.find("properties"); found != schema.end()) {
    for (const auto& [name, value] : found->items()) names.push_back(name);
  }
  if (const auto found = schema.find("required"); found != schema.end()) {
    for (const Value& name : *found) names.push_back(name.get<std::string>());
  }
  const Expression name = names.empty()
                              ? json_string(rules_)
                              : sequence({literal("\""), other_name(names, rules_), literal("\"")});
  return sequence({json_space(rules_), name, literal(":"), json_space_after_colon(),
                   subschema(value_schema, path + "/additionalProperties")});
}

Expression SchemaCompiler::build_object(const Value& schema, const std::string& path) {
  const auto properties = schema.find("properties");
  const auto required = schema.find("required");
  if (properties != schema.end() && !properties->is_object()) {
    return fail(path, "\"properties\" is an object of schemas");
  }
  if (required != schema.end() && !required->is_array()) {
    return fail(path, "\"required\" is a list of names");
  }
  std::vector<Member> parts = object_members(schema, path);
  if (!budget_.ok()) return choice({});
  const auto rest = schema.find("additionalProperties");
  // Further members are written only where the schema speaks of them, or of nothing.
  const bool is_open = rest != schema.end() ? *rest != Value(false)
                                            : properties == schema.end() || properties->empty();
  if (is_open && parts.empty() && (rest == schema.end() || *rest == Value(true))) {
    return json_any_object(rules_);
  }
  if (is_open && (rest != schema.end() || parts.empty())) {
    const Expression one = free_members(schema, rest == schema.end() ? Value(true) : *rest, path);
    const Expression many = sequence({one, repeat(sequence({literal(","), one}), 0, kUnbounded)});
    parts.push_back({many, /*required=*/false});
  }
  return sequence({literal("{"), members(std::move(parts), ","), json_space(rules_), literal("}")});
}

}  // namespace fathom::grammar
