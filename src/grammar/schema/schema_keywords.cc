// Keywords of one schema, each on its own.

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"
#include "grammar/schema/schema_reader.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

constexpr int64_t kLargestCount = 1'000'000'000;

struct Keyword {
  std::string_view name;
  unsigned types;
};
constexpr std::array<Keyword, 44> kKeywords = {{{"type", 0},
                                                {"enum", 0},
                                                {"const", 0},
                                                {"anyOf", 0},
                                                {"oneOf", 0},
                                                {"allOf", 0},
                                                {"not", 0},
                                                {"if", 0},
                                                {"then", 0},
                                                {"else", 0},
                                                {"$ref", 0},
                                                {"$dynamicRef", 0},
                                                {"$recursiveRef", 0},
                                                {"nullable", 0},
                                                {"properties", kObject},
                                                {"required", kObject},
                                                {"additionalProperties", kObject},
                                                {"patternProperties", kObject},
                                                {"propertyNames", kObject},
                                                {"minProperties", kObject},
                                                {"maxProperties", kObject},
                                                {"dependencies", kObject},
                                                {"dependentRequired", kObject},
                                                {"dependentSchemas", kObject},
                                                {"unevaluatedProperties", kObject},
                                                {"items", kArray},
                                                {"prefixItems", kArray},
                                                {"additionalItems", kArray},
                                                {"contains", kArray},
                                                {"minContains", 0},
                                                {"maxContains", 0},
                                                {"minItems", kArray},
                                                {"maxItems", kArray},
                                                {"uniqueItems", kArray},
                                                {"unevaluatedItems", kArray},
                                                {"minLength", kString},
                                                {"maxLength", kString},
                                                {"pattern", kString},
                                                {"format", kString},
                                                {"minimum", kNumber},
                                                {"maximum", kNumber},
                                                {"exclusiveMinimum", kNumber},
                                                {"exclusiveMaximum", kNumber},
                                                {"multipleOf", kNumber}}};

// Gemini's "propertyOrdering": the names that it lists come first, in its order.
void put_in_order(const Value& schema, std::vector<std::string>& names) {
  const auto ordering = schema.find("propertyOrdering");
  if (ordering == schema.end() || !ordering->is_array()) return;
  std::set<std::string> left(names.begin(), names.end());
  std::vector<std::string> ordered;
  for (const Value& name : *ordering) {
    if (!name.is_string()) continue;
    std::string text = name.get<std::string>();
    if (left.erase(text) > 0) ordered.push_back(std::move(text));
  }
  for (std::string& name : names) {
    if (left.erase(name) > 0) ordered.push_back(std::move(name));
  }
  names = std::move(ordered);
}

unsigned type_bits(const Value& name) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 7> kTypes = {{{"object", kObject},
                                                                            {"array", kArray},
                                                                            {"string", kString},
                                                                            {"integer", kWhole},
                                                                            {"number", kNumber},
                                                                            {"boolean", kBoolean},
                                                                            {"null", kNull}}};
  for (const auto& [type, bits] : kTypes) {
    if (json::is_text(name, type)) return bits;
  }
  return 0;
}

}  // namespace

bool is_keyword(std::string_view key) {
  return std::any_of(kKeywords.begin(), kKeywords.end(),
                     [&](const Keyword& keyword) { return keyword.name == key; });
}

unsigned types_of_keyword(std::string_view key) {
  const auto* const found = std::find_if(kKeywords.begin(), kKeywords.end(),
                                         [&](const Keyword& k) { return k.name == key; });
  return found == kKeywords.end() ? 0 : found->types;
}

int64_t SchemaReader::count(const Value& value, const std::string& key) {
  const bool is_whole = value.is_number() && type_of(value) == kWhole;
  if (!is_whole || value.get<double>() < 0) {
    refuse("\"" + key + "\" is a whole number, not negative");
    return 0;
  }
  return static_cast<int64_t>(std::min(value.get<double>(), static_cast<double>(kLargestCount)));
}

std::optional<NumberUnits> SchemaReader::bound(const Value& value, const std::string& key) {
  if (!value.is_number()) {
    refuse("\"" + key + "\" is a number");
    return std::nullopt;
  }
  const std::optional<NumberUnits> units = units_of(value);
  if (!units)
    refuse("\"" + key + "\" has more than " + std::to_string(kUnitDecimals) + " decimals");
  return units;
}

void SchemaReader::read_keyword(const std::string& key, const Value& value, const Value& schema,
                                Facts& facts) {
  if (key == "type") {
    unsigned bits = 0;
    Value list = value;
    if (!value.is_array()) list = Value::array({value});
    for (const Value& one : list) {
      if (type_bits(one) == 0) refuse("\"type\" names a type that does not exist");
      bits |= type_bits(one);
    }
    facts.types &= bits;
    facts.names_types = true;
  } else if (key == "enum" || key == "const") {
    if (key == "enum" && !value.is_array()) {
      refuse("\"enum\" is a list of values");
      return;
    }
    Facts allowed;
    allowed.names_types = true;
    allowed.values.emplace();
    if (key == "const") allowed.values->push_back(&value);
    for (size_t i = 0; key == "enum" && i < value.size(); ++i) allowed.values->push_back(&value[i]);
    budget_.charge(static_cast<int64_t>(allowed.values->size()) * 16);
    facts = both(std::move(facts), allowed);
  } else if (key == "nullable") {
    if (!value.is_boolean()) refuse("\"nullable\" is true or false");
  } else if (!read_string_keyword(key, value, facts) &&
             !read_number_keyword(key, value, schema, facts) &&
             !read_array_keyword(key, value, schema, facts)) {
    read_object_keyword(key, value, schema, facts);
  }
}

bool SchemaReader::read_string_keyword(const std::string& key, const Value& value, Facts& facts) {
  if (key == "minLength") {
    facts.string.min_length = count(value, key);
  } else if (key == "maxLength") {
    facts.string.max_length = count(value, key);
  } else if (key == "pattern" || key == "format") {
    if (!value.is_string()) return refuse("\"" + key + "\" is a string"), true;
    const auto& text = value.get_ref<const std::string&>();
    if (key == "pattern") {
      facts.string.patterns.push_back(text);
    } else if (find_integer_format(text) != nullptr || is_free_number_format(text)) {
      facts.mentioned = (facts.mentioned & ~kString) | kNumber;
      facts.number.formats.push_back(text);
    } else if (!string_format_pattern(text).empty()) {
      facts.string.formats.push_back(text);
    }
  } else {
    return false;
  }
  return true;
}

bool SchemaReader::read_number_keyword(const std::string& key, const Value& value,
                                       const Value& schema, Facts& facts) {
  // An old form: true makes the bound beside it exclusive.
  const auto is_exclusive = [&](const char* name) {
    const auto found = schema.find(name);
    return found != schema.end() && *found == Value(true);
  };
  Facts more;
  if (key == "minimum") {
    (is_exclusive("exclusiveMinimum") ? more.number.above : more.number.least) = bound(value, key);
  } else if (key == "maximum") {
    (is_exclusive("exclusiveMaximum") ? more.number.below : more.number.most) = bound(value, key);
  } else if (key == "exclusiveMinimum") {
    if (!value.is_boolean()) more.number.above = bound(value, key);
  } else if (key == "exclusiveMaximum") {
    if (!value.is_boolean()) more.number.below = bound(value, key);
  } else if (key == "multipleOf") {
    const std::optional<NumberUnits> step = bound(value, key);
    if (step && *step <= 0) refuse("\"multipleOf\" is a number above zero");
    more.number.multiples.push_back(&value);
  } else {
    return false;
  }
  facts = both(std::move(facts), more);
  return true;
}

bool SchemaReader::read_array_keyword(const std::string& key, const Value& value,
                                      const Value& schema, Facts& facts) {
  if (key == "minItems") {
    facts.array.min = count(value, key);
  } else if (key == "maxItems") {
    facts.array.max = count(value, key);
  } else if (key == "uniqueItems") {
    if (!value.is_boolean()) refuse("\"uniqueItems\" is true or false");
    facts.array.unique = value == Value(true);
  } else if (key == "items" || key == "prefixItems") {
    if (key == "prefixItems" || schema.find("prefixItems") == schema.end())
      read_items(schema, facts);
  } else if (key == "contains") {
    ArrayFacts::Contains contains = {.item = {&value, false}, .min = 1, .max = {}};
    if (const auto min = schema.find("minContains"); min != schema.end())
      contains.min = count(*min, "minContains");
    if (const auto max = schema.find("maxContains"); max != schema.end())
      contains.max = count(*max, "maxContains");
    facts.array.contains.push_back(contains);
  } else {
    return false;
  }
  return true;
}

void SchemaReader::read_items(const Value& schema, Facts& facts) {
  ArrayFacts::Items all;
  const auto items = schema.find("items"), prefix = schema.find("prefixItems"),
             more = schema.find("additionalItems");
  const bool is_list = items != schema.end() && items->is_array();
  if (prefix != schema.end() && (is_list || !prefix->is_array())) {
    refuse("\"prefixItems\" is a list of schemas");
    return;
  }
  const auto list = prefix != schema.end() ? prefix : is_list ? items : schema.end();
  for (size_t i = 0; list != schema.end() && i < list->size(); ++i)
    all.prefix.push_back({&(*list)[i], false});
  if (is_list) {
    if (more != schema.end()) all.rest = &*more;
  } else if (items != schema.end()) {
    all.rest = &*items;
  }
  facts.array.items.push_back(std::move(all));
}

bool SchemaReader::read_object_keyword(const std::string& key, const Value& value,
                                       const Value& schema, Facts& facts) {
  ObjectFacts& object = facts.object;
  const bool is_map = key == "properties" || key == "patternProperties" || key == "dependencies" ||
                      key == "dependentRequired" || key == "dependentSchemas";
  if (is_map && !value.is_object()) return refuse("\"" + key + "\" is an object of schemas");
  if (key == "properties") {
    for (const auto& [name, property] : value.items()) {
      if (!budget_.charge(32)) return true;
      object.order.push_back(name);
      object.properties[name] = {{&property, false}};
    }
    put_in_order(schema, object.order);
  } else if (key == "required") {
    if (value == Value(false)) return true;
    if (!value.is_array()) return refuse("\"required\" is a list of names");
    for (const Value& name : value) {
      if (!name.is_string()) return refuse("\"required\" is a list of names");
      object.presence.push_back({{name.get<std::string>(), true}});
    }
  } else if (key == "additionalProperties") {
    object.rests.push_back({.listing = &schema, .names = {}, .patterns = {}, .value = &value});
  } else if (key == "patternProperties") {
    for (const auto& [pattern, property] : value.items())
      object.patterns.push_back({pattern, {&property, false}});
  } else if (key == "propertyNames") {
    object.names.push_back({&value, false});
  } else if (key == "minProperties") {
    object.min = count(value, key);
  } else if (key == "maxProperties") {
    object.max = count(value, key);
  } else if (key == "dependencies" || key == "dependentRequired") {
    for (const auto& [name, dependents] : value.items()) {
      if (!dependents.is_array()) continue;
      for (const Value& dependent : dependents) {
        if (!dependent.is_string()) return refuse("\"" + key + "\" lists names");
        if (json::is_text(dependent, name)) continue;
        PresenceClause clause = {{name, false}, {dependent.get<std::string>(), true}};
        std::sort(clause.begin(), clause.end());
        object.presence.push_back(std::move(clause));
      }
    }
  } else {
    return false;
  }
  return true;
}

}  // namespace fathom::grammar
