#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <utility>

#include "grammar/front_ends.h"
#include "grammar/json_values.h"
#include "grammar/schema_overlap.h"
#include "grammar/schema_references.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

constexpr int kJsonDepth = 128;  // of the document; schemas in schemas are counted on their own
constexpr int kMaxMerges = 2000;

constexpr std::array<std::string_view, 20> kAnnotations = {"title",
                                                           "description",
                                                           "default",
                                                           "examples",
                                                           "example",
                                                           "$schema",
                                                           "$id",
                                                           "$comment",
                                                           "deprecated",
                                                           "readOnly",
                                                           "writeOnly",
                                                           "$defs",
                                                           "definitions",
                                                           "$anchor",
                                                           "contentEncoding",
                                                           "contentMediaType",
                                                           "discriminator",
                                                           "externalDocs",
                                                           "xml",
                                                           "strict"};

struct Keyword {
  std::string_view name;
  std::string_view type;  // the type that it speaks about; empty: all
};
constexpr std::array<Keyword, 23> kKeywords = {{{"type", ""},
                                                {"enum", ""},
                                                {"const", ""},
                                                {"anyOf", ""},
                                                {"oneOf", ""},
                                                {"allOf", ""},
                                                {"$ref", ""},
                                                {"nullable", ""},
                                                {"properties", "object"},
                                                {"required", "object"},
                                                {"additionalProperties", "object"},
                                                {"items", "array"},
                                                {"prefixItems", "array"},
                                                {"minItems", "array"},
                                                {"maxItems", "array"},
                                                {"minLength", "string"},
                                                {"maxLength", "string"},
                                                {"pattern", "string"},
                                                {"format", "string"},
                                                {"minimum", "number"},
                                                {"maximum", "number"},
                                                {"exclusiveMinimum", "number"},
                                                {"exclusiveMaximum", "number"}}};

bool is_annotation(std::string_view key) {
  return key.substr(0, 2) == "x-" ||
         std::find(kAnnotations.begin(), kAnnotations.end(), key) != kAnnotations.end();
}

const Keyword* find_keyword(std::string_view key) {
  const auto* const found = std::find_if(kKeywords.begin(), kKeywords.end(),
                                         [&](const Keyword& k) { return k.name == key; });
  return found == kKeywords.end() ? nullptr : found;
}

// Keywords that restrict nothing with this value.
bool is_without_effect(std::string_view key, const Value& value) {
  if (key == "uniqueItems") return value == Value(false);
  if (key == "minProperties" || key == "minContains") return value == Value(0);
  if (key == "multipleOf") return false;
  if (key == "patternProperties" || key == "dependencies" || key == "dependentRequired" ||
      key == "dependentSchemas") {
    return value.is_object() && value.empty();
  }
  if (key == "propertyNames" || key == "unevaluatedProperties" || key == "unevaluatedItems" ||
      key == "additionalItems") {
    return value == Value(true);
  }
  return false;
}

bool value_has_type(const Value& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  // A number like 1e300 is an integer for the schema, but its text may not be for a reader.
  return value.is_number_integer();
}

bool type_allows(const Value& schema, const Value& value) {
  const auto type = schema.find("type");
  if (type == schema.end()) return true;
  if (type->is_string()) return value_has_type(value, type->get_ref<const std::string&>());
  return std::any_of(type->begin(), type->end(), [&](const Value& one) {
    return one.is_string() && value_has_type(value, one.get_ref<const std::string&>());
  });
}

Value without(const Value& schema, std::initializer_list<std::string_view> keys) {
  Value rest = Value::object();
  for (const auto& [key, value] : schema.items()) {
    if (!is_annotation(key) && std::find(keys.begin(), keys.end(), key) == keys.end()) {
      rest[key] = value;
    }
  }
  return rest;
}

Value both(const Value& a, const Value& b) { return Value{{"allOf", Value::array({a, b})}}; }

}  // namespace

Expression SchemaCompiler::fail(const std::string& path, const std::string& what) {
  const std::string place = path.size() <= 120 ? path : path.substr(0, 120) + "...";
  budget_.fail(invalid_argument("json schema at " + place + ": " + what));
  return choice({});
}

Expression SchemaCompiler::subschema(const Value& schema, const std::string& path) {
  const std::string text = json::dump(schema);
  if (!budget_.charge(64 + 4 * static_cast<int64_t>(text.size()))) return choice({});
  const auto [known, is_new] = rule_of_schema_.try_emplace(text, 0);
  if (!is_new) return rule(known->second);
  budget_.charge_memory(static_cast<int64_t>(text.size()) + 128);
  const int idx = known->second = rules_.reserve();
  if (++depth_ > budget_.limits().max_depth) {
    return fail(path, "schemas nested deeper than " + std::to_string(budget_.limits().max_depth));
  }
  rules_.define(idx, build(schema, path));
  --depth_;
  return rule(idx);
}

Expression SchemaCompiler::build(const Value& schema, const std::string& path) {
  if (schema == Value(true)) return json_any_value(rules_);
  if (schema == Value(false)) return choice({});
  if (!schema.is_object()) return fail(path, "a schema is an object, true or false");
  if (path != "#") check_base(schema, path);
  check_keywords(schema, path);
  if (!budget_.ok()) return choice({});
  const auto nullable = schema.find("nullable");
  if (nullable == schema.end()) return build_object_schema(schema, path);
  if (!nullable->is_boolean()) return fail(path, "\"nullable\" is true or false");
  const Expression inner = build_object_schema(without(schema, {"nullable"}), path);
  // An enum lists null itself where it is meant.
  const bool adds_null =
      *nullable == Value(true) && !schema.contains("enum") && !schema.contains("const");
  return adds_null ? choice({inner, literal("null")}) : inner;
}

Expression SchemaCompiler::build_object_schema(const Value& schema, const std::string& path) {
  if (schema.contains("$ref")) return build_reference(schema, path);
  if (schema.contains("allOf")) return build_all_of(schema, path);
  if (schema.contains("anyOf") && schema.contains("oneOf")) {
    return fail(path, "\"anyOf\" beside \"oneOf\" is not supported");
  }
  if (schema.contains("anyOf")) return build_alternatives(schema, "anyOf", path);
  if (schema.contains("oneOf")) return build_alternatives(schema, "oneOf", path);
  if (const auto values = schema.find("enum"); values != schema.end()) {
    if (!values->is_array()) return fail(path, "\"enum\" is a list of values");
    return build_enum(schema, *values, path);
  }
  if (const auto value = schema.find("const"); value != schema.end()) {
    return build_enum(schema, Value::array({*value}), path);
  }
  return build_types(schema, path);
}

void SchemaCompiler::check_base(const Value& schema, const std::string& path) {
  if (has_own_base(schema)) {
    fail(path, "\"$id\" below the root is supported only as a fragment (\"#name\")");
  }
}

void SchemaCompiler::check_keywords(const Value& schema, const std::string& path) {
  for (const auto& [key, value] : schema.items()) {
    if (!budget_.charge(8)) return;
    if (is_annotation(key) || find_keyword(key) != nullptr || is_without_effect(key, value))
      continue;
    if (key == "multipleOf" && value == Value(1) && schema.contains("type") &&
        schema["type"] == Value("integer")) {
      continue;
    }
    fail(path, "\"" + key.substr(0, 64) + "\" is not supported");
    return;
  }
}

int SchemaCompiler::count(const Value& schema, std::string_view keyword, int fallback,
                          const std::string& path) {
  const auto found = schema.find(keyword);
  if (found == schema.end()) return fallback;
  const bool is_whole =
      found->is_number_integer() ||
      (found->is_number_float() && found->get<double>() >= 0 &&
       found->get<double>() ==
           static_cast<double>(static_cast<int64_t>(std::min(found->get<double>(), 1e15))));
  if (!is_whole || found->get<double>() < 0) {
    fail(path, "\"" + std::string(keyword) + "\" is a whole number, not negative");
    return fallback;
  }
  return static_cast<int>(std::min(found->get<double>(), 1e9));
}

Expression SchemaCompiler::build_types(const Value& schema, const std::string& path) {
  constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                      "integer", "boolean", "null"};
  std::vector<std::string_view> types;
  const auto add = [&](std::string_view type) {
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  };
  if (const auto type = schema.find("type"); type != schema.end()) {
    const Value list = type->is_array() ? *type : Value::array({*type});
    for (const Value& one : list) {
      const std::string name = one.is_string() ? one.get<std::string>() : "";
      const auto* const known = std::find(kTypes.begin(), kTypes.end(), name);
      if (known == kTypes.end()) return fail(path, "\"type\" names a type that does not exist");
      add(*known);
    }
  } else {
    // Without a type, the keywords say which values are meant.
    for (const auto& [key, value] : schema.items()) {
      const Keyword* const keyword = find_keyword(key);
      if (keyword != nullptr && !keyword->type.empty()) add(keyword->type);
    }
    if (types.empty()) return json_any_value(rules_);
  }
  std::vector<Expression> ways;
  for (const std::string_view type : types) ways.push_back(build_type(type, schema, path));
  return choice(std::move(ways));
}

Expression SchemaCompiler::build_type(std::string_view type, const Value& schema,
                                      const std::string& path) {
  if (type == "object") return build_object(schema, path);
  if (type == "array") return build_array(schema, path);
  if (type == "string") return build_string(schema, path);
  if (type == "number") return build_number(schema, /*is_integer=*/false, path);
  if (type == "integer") return build_number(schema, /*is_integer=*/true, path);
  if (type == "boolean") return choice({literal("true"), literal("false")});
  return literal("null");
}

Expression SchemaCompiler::build_enum(const Value& schema, const Value& values,
                                      const std::string& path) {
  for (const auto& [key, value] : schema.items()) {
    const Keyword* const keyword = find_keyword(key);
    const bool restricts = keyword != nullptr && !keyword->type.empty();
    const bool is_pair = key == "const" && schema.contains("enum");
    if (restricts || is_pair) {
      return fail(path, "\"" + key + "\" beside \"enum\" or \"const\" is not supported");
    }
  }
  std::vector<Expression> ways;
  for (const Value& value : values) {
    if (!type_allows(schema, value)) continue;
    ways.push_back(literal(json::dump(value)));
    if (!budget_.charge(16)) break;
  }
  return choice(std::move(ways));
}

Expression SchemaCompiler::build_alternatives(const Value& schema, std::string_view keyword,
                                              const std::string& path) {
  const Value& branches = schema[std::string(keyword)];
  if (!branches.is_array() || branches.empty()) {
    return fail(path, "\"" + std::string(keyword) + "\" is a list of schemas");
  }
  const Value siblings = without(schema, {keyword});
  if (keyword == "oneOf") check_branches(siblings, branches, path);
  std::vector<Expression> ways;
  for (size_t i = 0; i < branches.size() && budget_.ok(); ++i) {
    const std::string place = path + "/" + std::string(keyword) + "/" + std::to_string(i);
    ways.push_back(subschema(siblings.empty() ? branches[i] : both(siblings, branches[i]), place));
  }
  return choice(std::move(ways));
}

void SchemaCompiler::check_branches(const Value& siblings, const Value& branches,
                                    const std::string& path) {
  SchemaOverlap overlap(budget_, [&](const Value& schema) { return resolve(schema, path); });
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (overlap.are_disjoint({&siblings, &branches[j]}, {&siblings, &branches[i]})) continue;
      if (!budget_.ok()) return;
      fail(path, "\"oneOf\": a value may fit both branch " + std::to_string(j) + " and branch " +
                     std::to_string(i) +
                     "; use \"anyOf\", or tell them apart by type or by the const of a required "
                     "property");
      return;
    }
  }
}

// A reference is built as a rule of its own once, so that schemas may refer to themselves.
Expression SchemaCompiler::build_reference(const Value& schema, const std::string& path) {
  const Value siblings = without(schema, {"$ref"});
  const Value only_reference = {{"$ref", schema["$ref"]}};
  if (!siblings.empty()) return build_all_of(both(only_reference, siblings), path);
  const Value* const target = resolve(schema, path);
  if (target == nullptr) return choice({});
  const auto [known, is_new] = rule_of_reference_.try_emplace(schema["$ref"].get<std::string>(), 0);
  if (!is_new) return rule(known->second);
  const int idx = known->second = rules_.reserve();
  rules_.define(idx, subschema(*target, schema["$ref"].get<std::string>()));
  return rule(idx);
}

const Value* SchemaCompiler::resolve(const Value& schema, const std::string& path) {
  const Value& reference = schema["$ref"];
  if (!reference.is_string()) {
    fail(path, "\"$ref\" is a string");
    return nullptr;
  }
  // Names of anchors are looked for in the whole document.
  budget_.charge(reference.get_ref<const std::string&>().starts_with("#/") ? 256 : 1 << 14);
  const Result<const Value*> target =
      find_reference(document_, reference.get_ref<const std::string&>());
  if (target) return *target;
  fail(path, target.error().message);
  return nullptr;
}

Expression SchemaCompiler::build_all_of(const Value& schema, const std::string& path) {
  Value merged = Value::object();
  std::vector<Value> pending = {schema};
  while (!pending.empty()) {
    Value part = std::move(pending.back());
    pending.pop_back();
    if (++num_merges_ > kMaxMerges) {
      return fail(path,
                  "more than " + std::to_string(kMaxMerges) + " schemas to merge in \"allOf\"");
    }
    if (!budget_.charge(256)) return choice({});
    if (part == Value(true)) continue;
    if (part == Value(false)) return choice({});
    if (!part.is_object()) return fail(path, "\"allOf\" is a list of schemas");
    check_keywords(part, path);
    if (part.contains("$ref")) {
      const Value* const target = resolve(part, path);
      if (target == nullptr) return choice({});
      if (target != &document_) check_base(*target, path);
      pending.push_back(*target);
      budget_.charge(static_cast<int64_t>(target->size()) * 64);
    }
    if (const auto list = part.find("allOf"); list != part.end()) {
      if (!list->is_array()) return fail(path, "\"allOf\" is a list of schemas");
      for (const Value& one : *list) check_base(one, path);
      pending.insert(pending.end(), list->rbegin(), list->rend());
    }
    merge(merged, without(part, {"allOf", "$ref"}), path);
    if (!budget_.ok()) return choice({});
  }
  return subschema(merged, path);
}

Expression lower_json_schema(std::string_view schema, RuleSet& rules) {
  Budget& budget = rules.budget();
  if (!budget.charge_source(static_cast<int64_t>(schema.size()))) return choice({});
  const Result<Value> document = json::parse(schema, {.max_depth = kJsonDepth});
  if (!document) {
    budget.fail(invalid_argument("json schema: " + document.error().message));
    return choice({});
  }
  return SchemaCompiler(*document, rules).compile();
}

}  // namespace fathom::grammar
