#include "grammar/schema/schema_reader.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "grammar/schema/schema_references.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

constexpr int kMaxDepth = 64;  // of references and combinations at one value
constexpr size_t kMaxAlternatives = 600;
constexpr int kMaxLoneReferences = 64;

Alternatives anything() { return {.all = {Facts{}}}; }
Alternatives nothing() { return {}; }

bool contains_reference(const Value& value) {
  if (value.is_object() && value.contains("$ref")) return true;
  return value.is_structured() && std::any_of(value.begin(), value.end(), contains_reference);
}

bool has(const Value& schema, const char* key) { return schema.find(key) != schema.end(); }

}  // namespace

bool SchemaReader::refuse(const std::string& what) {
  if (problem_.empty()) problem_ = what;
  return false;
}

Alternatives SchemaReader::read(const Conjunction& schemas) {
  Alternatives all = anything();
  for (const SignedSchema& schema : schemas) {
    if (!ok()) return nothing();
    all = all_of(all, read_one(schema));
  }
  return all;
}

Alternatives SchemaReader::all_of(const Alternatives& a, const Alternatives& b) {
  Alternatives result = {.all = {}, .is_exact = a.is_exact && b.is_exact};
  for (const Facts& x : a.all) {
    for (const Facts& y : b.all) {
      const auto size = static_cast<int64_t>(x.object.order.size() + y.object.order.size());
      if (!budget_.charge(256 + 32 * size)) return nothing();
      Facts facts = both(x, y);
      if (facts.types == 0 || (facts.values && facts.values->empty())) continue;
      result.all.push_back(std::move(facts));
      if (result.all.size() > kMaxAlternatives) {
        refuse("it has more than " + std::to_string(kMaxAlternatives) +
               " alternatives when \"anyOf\", \"oneOf\", \"not\" and "
               "the like are combined");
        return nothing();
      }
    }
  }
  return result;
}

void SchemaReader::add(Alternatives& all, Alternatives more) {
  all.is_exact = all.is_exact && more.is_exact;
  std::move(more.all.begin(), more.all.end(), std::back_inserter(all.all));
  if (all.all.size() > kMaxAlternatives) {
    refuse("it has more than " + std::to_string(kMaxAlternatives) + " alternatives");
  }
}

Alternatives SchemaReader::read_one(const SignedSchema& one) {
  const Value& schema = *one.schema;
  if (schema.is_boolean()) return (schema == Value(true)) != one.negated ? anything() : nothing();
  if (!schema.is_object()) {
    refuse("a schema is an object, true or false");
    return nothing();
  }
  if (++depth_ > kMaxDepth) {
    refuse("no finite text satisfies a schema that leads to itself, and combinations are at most " +
           std::to_string(kMaxDepth) + " deep");
  }
  check_keywords(schema);
  Alternatives result = nothing();
  if (ok() && budget_.charge(128))
    result = one.negated ? read_negated(schema) : read_schema(schema);
  --depth_;
  return result;
}

Alternatives SchemaReader::read_schema(const Value& schema) {
  Facts facts;
  for (const auto& [key, value] : schema.items()) {
    if (!ok() || !budget_.charge(16)) return nothing();
    facts.mentioned |= types_of_keyword(key);
    read_keyword(key, value, schema, facts);
  }
  Alternatives all = {.all = {std::move(facts)}};
  all = read_combined(schema, std::move(all));
  close_unevaluated(schema, all);
  const auto nullable = schema.find("nullable");
  // An enum lists null itself where it is meant.
  if (nullable == schema.end() || *nullable != Value(true) || has(schema, "enum") ||
      has(schema, "const"))
    return all;
  Facts null;
  null.types = kNull;
  null.names_types = true;
  all.all.push_back(std::move(null));
  return all;
}

Alternatives SchemaReader::read_combined(const Value& schema, Alternatives all) {
  for (const auto& [key, value] : schema.items()) {
    if (!ok()) return nothing();
    if (key == "$ref") {
      const Value* const target = resolve(schema);
      if (target != nullptr) all = all_of(all, read_one({target, false}));
    } else if (key == "allOf" || key == "anyOf" || key == "oneOf") {
      if (!value.is_array() || value.empty()) {
        refuse("\"" + key + "\" is a list of schemas");
      } else if (key == "allOf") {
        for (const Value& part : value) all = all_of(all, read_one({&part, false}));
      } else if (const auto names = presence_of(key, schema, /*negated=*/false, 0)) {
        all = all_of(all, as_alternatives(*names));
      } else if (ok()) {
        all = all_of(all, key == "anyOf" ? any_of(value, false) : one_of(schema, value));
      }
    } else if (key == "not" || key == "if") {
      const auto names = presence_of(key, schema, /*negated=*/false, 0);
      if (names) {
        all = all_of(all, as_alternatives(*names));
      } else if (ok()) {
        const SignedSchema denied = {&value, true};
        all = all_of(all, key == "not" ? read_one(denied) : read_conditional(schema, false));
      }
    } else if ((key == "dependencies" || key == "dependentSchemas") && value.is_object()) {
      for (const auto& [name, dependent] : value.items()) {
        if (!dependent.is_array()) all = all_of(all, read_dependent(name, dependent));
      }
    }
  }
  return all;
}

Alternatives SchemaReader::any_of(const Value& branches, bool negated) {
  Alternatives all = negated ? anything() : nothing();
  for (const Value& branch : branches) {
    if (!ok()) return nothing();
    if (negated) {
      all = all_of(all, read_one({&branch, true}));
    } else {
      add(all, read_one({&branch, false}));
    }
  }
  return all;
}

bool SchemaReader::are_disjoint(const Alternatives& a, const Alternatives& b) {
  return a.is_exact && b.is_exact && are_disjoint_facts(a, b);
}

bool SchemaReader::are_disjoint_facts(const Alternatives& a, const Alternatives& b) {
  for (const Facts& x : a.all) {
    for (const Facts& y : b.all) {
      if (!budget_.charge(128)) return false;
      if ((x.types & y.types) != 0 && !is_impossible(both(x, y))) return false;
    }
  }
  return true;
}

// As it is written where a schema names no type: only as the types that its keywords speak about.
Alternatives SchemaReader::as_meant(Alternatives ways) {
  for (Facts& facts : ways.all) {
    if (facts.names_types || facts.mentioned == 0 || (facts.types & ~facts.mentioned) == 0)
      continue;
    facts.types &= facts.mentioned;
    facts.names_types = true;
    leave_out(ways, "no value is of the types that its keywords speak about");
  }
  return ways;
}

// Pairs of branches that share values. Where it is enough for two to share none, they are written as they are meant.
std::vector<std::vector<size_t>> SchemaReader::separate(std::vector<Alternatives>& ways) {
  std::vector<std::vector<size_t>> shared(ways.size());
  std::vector<bool> is_meant(ways.size(), false);
  for (size_t i = 0; i < ways.size(); ++i) {
    for (size_t j = 0; j < i && ok(); ++j) {
      if (are_disjoint(ways[i], ways[j])) continue;
      const Alternatives ours = as_meant(ways[i]), theirs = as_meant(ways[j]);
      if (ways[i].is_exact && ways[j].is_exact && are_disjoint_facts(ours, ways[j]) &&
          are_disjoint_facts(ways[i], theirs)) {
        is_meant[i] = is_meant[j] = true;
        continue;
      }
      shared[i].push_back(j);
      shared[j].push_back(i);
    }
  }
  for (size_t i = 0; i < ways.size(); ++i) {
    if (is_meant[i]) ways[i] = as_meant(std::move(ways[i]));
  }
  return shared;
}

// A value that fits two branches would be wrong: a branch that shares values with others is written without those.
Alternatives SchemaReader::one_of(const Value& siblings, const Value& branches) {
  Facts beside;
  for (const auto& [key, value] : siblings.items()) read_keyword(key, value, siblings, beside);
  std::vector<Alternatives> ways;
  for (const Value& branch : branches) {
    ways.push_back(all_of({.all = {beside}}, read_one({&branch, false})));
    if (!ok()) return nothing();
  }
  const std::vector<std::vector<size_t>> shared = separate(ways);
  Alternatives all = nothing();
  for (size_t i = 0; i < ways.size() && ok(); ++i) {
    Alternatives way = std::move(ways[i]);
    for (const size_t other : shared[i]) {
      Alternatives outside = read_one({&branches[other], true});
      const bool is_exact = outside.is_exact;
      way = all_of(way, outside);
      std::erase_if(way.all, [&](const Facts& facts) { return is_impossible(facts); });
      if (ok() && is_exact) continue;
      if (budget_.ok()) {
        problem_.clear();
        refuse(
            "\"oneOf\": a value may fit both branch " + std::to_string(std::min(i, other)) +
            " and branch " + std::to_string(std::max(i, other)) +
            "; use \"anyOf\", or tell them apart by type or by the const of a required property");
      }
      return nothing();
    }
    add(all, std::move(way));
  }
  return all;
}

// None, or two of them.
Alternatives SchemaReader::not_one_of(const Value& branches) {
  Alternatives all = any_of(branches, true);
  for (size_t i = 0; i < branches.size() && ok(); ++i) {
    for (size_t j = 0; j < i && ok(); ++j) {
      add(all, all_of(read_one({&branches[i], false}), read_one({&branches[j], false})));
    }
  }
  return all;
}

Alternatives SchemaReader::read_conditional(const Value& schema, bool negated) {
  const auto then = schema.find("then"), otherwise = schema.find("else");
  if (then == schema.end() && otherwise == schema.end()) return negated ? nothing() : anything();
  const auto branch = [&](bool holds, const Value::const_iterator& part) {
    Alternatives way = read_one({&schema["if"], !holds});
    if (part != schema.end()) return all_of(way, read_one({&*part, negated}));
    return negated ? nothing() : way;
  };
  Alternatives all = branch(true, then);
  add(all, branch(false, otherwise));
  return all;
}

// The name is absent, or the schema holds.
Alternatives SchemaReader::read_dependent(const std::string& name, const Value& dependent) {
  Facts absent, present;
  absent.object.presence = {{{name, false}}};
  present.object.presence = {{{name, true}}};
  present.types = kObject;
  present.names_types = true;
  Alternatives all = {.all = {std::move(absent)}};
  add(all, all_of({.all = {std::move(present)}}, read_one({&dependent, false})));
  return all;
}

// Names that neither the schema nor those in "allOf" and the like speak about are those of the alternative.
void SchemaReader::close_unevaluated(const Value& schema, Alternatives& all) {
  const auto value = schema.find("unevaluatedProperties");
  if (value == schema.end() || *value == Value(true)) return;
  // What stands below "not" is no speaking of, and behind two of them it would look so.
  if (json::dump(document_).find("\"not\"") != std::string::npos) {
    refuse("\"unevaluatedProperties\" beside \"not\" is not supported");
  }
  for (Facts& facts : all.all) {
    if (!facts.object.rests.empty()) continue;
    ObjectFacts::Rest rest = {.listing = nullptr, .names = {}, .patterns = {}, .value = &*value};
    for (const auto& [name, schemas] : facts.object.properties) {
      const auto is_positive = [](const SignedSchema& one) { return !one.negated; };
      if (std::any_of(schemas.begin(), schemas.end(), is_positive)) rest.names.push_back(name);
    }
    for (const ObjectFacts::Pattern& pattern : facts.object.patterns)
      rest.patterns.push_back(pattern.name);
    facts.object.rests.push_back(std::move(rest));
  }
}

SignedSchema SchemaReader::target_of(SignedSchema schema) {
  for (int i = 0;
       i < kMaxLoneReferences && schema.schema->is_object() && has(*schema.schema, "$ref"); ++i) {
    const bool is_alone = std::none_of(
        schema.schema->items().begin(), schema.schema->items().end(),
        [](const auto& entry) { return entry.key() != "$ref" && is_keyword(entry.key()); });
    const Value* const target = is_alone ? resolve(*schema.schema) : nullptr;
    if (target == nullptr) return schema;
    schema.schema = target;
  }
  return schema;
}

const Value* SchemaReader::resolve(const Value& schema) {
  const Value& reference = schema["$ref"];
  if (!reference.is_string()) {
    refuse("\"$ref\" is a string");
    return nullptr;
  }
  // Names of anchors are looked for in the whole document.
  budget_.charge(reference.get_ref<const std::string&>().starts_with("#/") ? 256 : 1 << 14);
  const Result<const Value*> target =
      find_reference(document_, reference.get_ref<const std::string&>());
  if (target) return *target;
  refuse(target.error().message);
  return nullptr;
}

void SchemaReader::check_keywords(const Value& schema) {
  if (&schema != &document_ && has_own_base(schema) && contains_reference(schema)) {
    refuse(
        "\"$id\" below the root is supported only as a fragment (\"#name\") where there is a "
        "\"$ref\" below it");
  }
  const auto dialect = document_.is_object() ? document_.find("$schema") : document_.end();
  const auto is_draft = [&](const char* name) {
    return dialect != document_.end() && dialect->is_string() &&
           dialect->get_ref<const std::string&>().find(name) != std::string::npos;
  };
  // Before the sixth draft it was called "id"; later that is no keyword.
  const auto id = schema.find("id");
  if (&schema != &document_ && id != schema.end() && id->is_string() &&
      (is_draft("draft-04") || is_draft("draft-03")) &&
      !id->get_ref<const std::string&>().starts_with("#") && contains_reference(schema)) {
    refuse(
        "\"id\" below the root is supported only as a fragment (\"#name\") where there is a "
        "\"$ref\" below it");
  }
  for (const char* const key : {"$dynamicRef", "$recursiveRef", "unevaluatedItems"}) {
    const auto found = schema.find(key);
    if (found != schema.end() && *found != Value(true))
      refuse("\"" + std::string(key) + "\" is not supported");
  }
  for (const char* const key : {"extends", "disallow", "divisibleBy"}) {
    if (is_draft("draft-03") && has(schema, key))
      refuse("\"" + std::string(key) + "\" is not supported");
  }
}

}  // namespace fathom::grammar
