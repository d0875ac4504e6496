// What a schema excludes: for each of its keywords, the values that break it.

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "grammar/schema/schema_reader.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

const Value& any_schema() {
  static const Value any = true;
  return any;
}

Facts of_types(unsigned types) {
  Facts facts;
  facts.types = types;
  facts.names_types = true;
  return facts;
}

}  // namespace

void SchemaReader::leave_out(Alternatives& ways, const std::string& what) {
  ways.is_exact = false;
  left_out_ = what;
}

Alternatives SchemaReader::read_negated(const Value& schema) {
  Alternatives ways;
  const auto nullable = schema.find("nullable");
  const bool takes_null = nullable != schema.end() && *nullable == Value(true) &&
                          schema.find("enum") == schema.end() &&
                          schema.find("const") == schema.end();
  for (const auto& [key, value] : schema.items()) {
    if (!ok() || !budget_.charge(64)) return {};
    if (key == "$ref") {
      const Value* const target = resolve(schema);
      if (target != nullptr) add(ways, read_one({target, true}));
    } else if (key == "not") {
      add(ways, read_one({&value, false}));
    } else if (key == "allOf" && value.is_array()) {
      for (const Value& part : value) add(ways, read_one({&part, true}));
    } else if (key == "anyOf" && value.is_array()) {
      add(ways, any_of(value, true));
    } else if (key == "oneOf" && value.is_array()) {
      add(ways, not_one_of(value));
    } else if (key == "if") {
      add(ways, read_conditional(schema, true));
    } else {
      negate_keyword(key, value, schema, ways);
    }
  }
  if (takes_null) {
    Alternatives others = {.all = {of_types(kAnyType & ~kNull)}};
    others.is_exact = ways.is_exact;
    return all_of(others, ways);
  }
  return ways;
}

void SchemaReader::negate_keyword(const std::string& key, const Value& value, const Value& schema,
                                  Alternatives& ways) {
  if (key == "type") {
    Facts facts;
    read_keyword(key, value, schema, facts);
    if (facts.types != kAnyType) ways.all.push_back(of_types(kAnyType & ~facts.types));
  } else if (key == "enum" || key == "const") {
    Facts facts = of_types(kAnyType);
    if (key == "const") facts.excluded.push_back(&value);
    for (size_t i = 0; key == "enum" && i < value.size(); ++i) facts.excluded.push_back(&value[i]);
    ways.all.push_back(std::move(facts));
  } else if (key == "pattern") {
    if (!value.is_string()) return void(refuse("\"pattern\" is a string"));
    Facts facts = of_types(kString);
    facts.string.other_patterns.push_back(value.get<std::string>());
    ways.all.push_back(std::move(facts));
  } else if (key == "format") {
    leave_out(ways, "\"format\" below \"not\" is not supported");
  } else if (!negate_bound(key, value, schema, ways) && !negate_members(key, value, ways) &&
             !negate_items(key, value, schema, ways) && types_of_keyword(key) != 0) {
    leave_out(ways, "\"" + key + "\" below \"not\" is not supported");
  }
}

bool SchemaReader::negate_bound(const std::string& key, const Value& value, const Value& schema,
                                Alternatives& ways) {
  Facts facts = of_types(types_of_keyword(key));
  const bool is_least = key == "minLength" || key == "minItems" || key == "minProperties";
  const bool is_most = key == "maxLength" || key == "maxItems" || key == "maxProperties";
  if (is_least || is_most) {
    const int64_t limit = count(value, key);
    if (is_least && limit == 0) return true;
    if (key == "minLength") facts.string.max_length = limit - 1;
    if (key == "minItems") facts.array.max = limit - 1;
    if (key == "minProperties") facts.object.max = limit - 1;
    if (key == "maxLength") facts.string.min_length = limit + 1;
    if (key == "maxItems") facts.array.min = limit + 1;
    if (key == "maxProperties") facts.object.min = limit + 1;
  } else if (key == "minimum" || key == "maximum" || key == "exclusiveMinimum" ||
             key == "exclusiveMaximum") {
    Facts held;
    read_number_keyword(key, value, schema, held);
    if (value.is_boolean()) return true;  // the bound beside it was negated
    facts.number = {.least = held.number.below,
                    .most = held.number.above,
                    .above = held.number.most,
                    .below = held.number.least,
                    .multiples = {},
                    .other_multiples = {},
                    .formats = {}};
  } else if (key == "multipleOf") {
    Facts held;
    read_number_keyword(key, value, schema, held);
    facts.number.other_multiples = held.number.multiples;
  } else {
    return false;
  }
  ways.all.push_back(std::move(facts));
  return true;
}

bool SchemaReader::negate_members(const std::string& key, const Value& value, Alternatives& ways) {
  if (key == "properties" && value.is_object()) {
    for (const auto& [name, property] : value.items()) {
      if (property == Value(true)) continue;
      Facts facts = of_types(kObject);
      facts.object.order = {name};
      facts.object.properties[name] = {{&property, true}};
      facts.object.presence = {{{name, true}}};
      ways.all.push_back(std::move(facts));
    }
    return true;
  }
  if (key != "required" && key != "dependencies" && key != "dependentRequired") {
    // The text has no way to say that there is another member.
    const bool is_free = key == "additionalProperties" && value == Value(true);
    return is_free;
  }
  Facts held;
  read_object_keyword(key, value, {}, held);
  for (const PresenceClause& clause : held.object.presence) {
    Facts facts = of_types(kObject);
    for (const auto& [name, is_present] : clause)
      facts.object.presence.push_back({{name, !is_present}});
    ways.all.push_back(std::move(facts));
  }
  if (!value.is_object()) return true;
  for (const auto& [name, dependent] : value.items()) {
    if (dependent.is_array()) continue;
    Facts facts = of_types(kObject);
    facts.object.presence = {{{name, true}}};
    add(ways, all_of({.all = {std::move(facts)}}, read_one({&dependent, true})));
  }
  return true;
}

bool SchemaReader::negate_items(const std::string& key, const Value& value, const Value& schema,
                                Alternatives& ways) {
  if (key == "contains" && schema.find("minContains") == schema.end() &&
      schema.find("maxContains") == schema.end()) {
    Facts facts = of_types(kArray);
    facts.array.items.push_back({.prefix = {}, .rest = &value, .rest_negated = true});
    ways.all.push_back(std::move(facts));
    return true;
  }
  if (key == "uniqueItems") return value == Value(false);
  if (key != "items" && key != "prefixItems") return key == "minContains" || key == "maxContains";
  Facts held;
  read_array_keyword(key, value, schema, held);
  for (const ArrayFacts::Items& items : held.array.items) {
    for (size_t i = 0; i < items.prefix.size(); ++i) {
      Facts facts = of_types(kArray);
      ArrayFacts::Items other;
      other.prefix.assign(i, {&any_schema(), false});
      other.prefix.push_back({items.prefix[i].schema, true});
      facts.array.items.push_back(std::move(other));
      facts.array.min = static_cast<int64_t>(i) + 1;
      ways.all.push_back(std::move(facts));
    }
    if (items.rest == nullptr) continue;
    if (!items.prefix.empty()) {
      leave_out(ways, "\"items\" behind others below \"not\" is not supported");
      continue;
    }
    Facts facts = of_types(kArray);
    facts.array.contains.push_back({.item = {items.rest, true}, .min = 1, .max = {}});
    ways.all.push_back(std::move(facts));
  }
  return true;
}

}  // namespace fathom::grammar
