// Which members are present: schemas that speak of nothing else become clauses, whatever "anyOf", "oneOf", "not" and
// "if" they stand in, so that an object is written once and not once for each way to choose.

#include <algorithm>
#include <string>
#include <utility>

#include "base/json.h"
#include "grammar/schema/schema_reader.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

constexpr int kMaxClauseDepth = 16;
constexpr size_t kMaxClauses = 256;

// Left out where it always holds: a name is present or absent.
void add_clause(std::vector<PresenceClause>& clauses, PresenceClause clause) {
  std::sort(clause.begin(), clause.end());
  clause.erase(std::unique(clause.begin(), clause.end()), clause.end());
  for (size_t i = 1; i < clause.size(); ++i) {
    if (clause[i].first == clause[i - 1].first) return;
  }
  if (std::find(clauses.begin(), clauses.end(), clause) == clauses.end())
    clauses.push_back(std::move(clause));
}

bool is_never(const Value& schema) {
  if (schema == Value(false)) return true;
  const auto excluded =
      schema.is_object() && schema.size() == 1 ? schema.find("not") : schema.end();
  return excluded != schema.end() &&
         (*excluded == Value(true) || (excluded->is_object() && excluded->empty()));
}

bool is_always(const Value& schema) {
  if (schema == Value(true)) return true;
  return schema.is_object() &&
         std::none_of(schema.items().begin(), schema.items().end(),
                      [](const auto& entry) { return is_keyword(entry.key()); });
}

}  // namespace

std::optional<SchemaReader::Presence> SchemaReader::both_present(Presence a, const Presence& b) {
  for (const PresenceClause& clause : b.clauses) add_clause(a.clauses, clause);
  a.others = a.others && b.others;
  if (a.clauses.size() > kMaxClauses) return std::nullopt;
  return a;
}

std::optional<SchemaReader::Presence> SchemaReader::either_present(const Presence& a,
                                                                   const Presence& b) {
  Presence result = {.clauses = {}, .others = a.others || b.others};
  if (a.clauses.size() * b.clauses.size() > kMaxClauses) return std::nullopt;
  for (const PresenceClause& x : a.clauses) {
    for (const PresenceClause& y : b.clauses) {
      budget_.charge(64);
      PresenceClause clause = x;
      clause.insert(clause.end(), y.begin(), y.end());
      add_clause(result.clauses, std::move(clause));
    }
  }
  return result;
}

Alternatives SchemaReader::as_alternatives(const Presence& presence) {
  Facts facts;
  facts.object.presence = presence.clauses;
  // What says nothing of members speaks of no type either.
  const bool is_always = presence.clauses.empty() && presence.others;
  facts.mentioned = is_always ? 0 : kObject;
  const bool is_never = std::any_of(presence.clauses.begin(), presence.clauses.end(),
                                    [](const PresenceClause& clause) { return clause.empty(); });
  if (is_never) facts.types &= ~kObject;
  if (!presence.others) facts.types &= kObject;
  facts.names_types = is_never || !presence.others;
  if (facts.types == 0) return {};
  return {.all = {std::move(facts)}};
}

std::optional<SchemaReader::Presence> SchemaReader::presence_of_list(const Value& list, bool all,
                                                                     bool negated, int depth) {
  if (!list.is_array() || list.empty()) return std::nullopt;
  std::optional<Presence> result;
  for (const Value& part : list) {
    const std::optional<Presence> one = presence(part, negated, depth);
    if (!one) return std::nullopt;
    result = !result ? one
             : all   ? both_present(std::move(*result), *one)
                     : either_present(*result, *one);
    if (!result) return std::nullopt;
  }
  return result;
}

// One of them, and no two.
std::optional<SchemaReader::Presence> SchemaReader::presence_of_one(const Value& list, int depth) {
  std::optional<Presence> result = presence_of_list(list, /*all=*/false, /*negated=*/false, depth);
  if (!result) return std::nullopt;
  int num_others = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    num_others += presence(list[i], false, depth)->others ? 1 : 0;
    for (size_t j = 0; j < i; ++j) {
      const std::optional<Presence> a = presence(list[i], true, depth),
                                    b = presence(list[j], true, depth);
      std::optional<Presence> pair = a && b ? either_present(*a, *b) : std::nullopt;
      if (!pair) return std::nullopt;
      result = both_present(std::move(*result), *pair);
      if (!result) return std::nullopt;
    }
  }
  result->others = num_others == 1;
  return result;
}

std::optional<SchemaReader::Presence> SchemaReader::presence(const Value& schema, bool negated,
                                                             int depth) {
  if (depth > kMaxClauseDepth || !budget_.charge(64)) return std::nullopt;
  const Presence always = {}, never = {.clauses = {{}}, .others = false};
  if (schema.is_boolean()) return (schema == Value(true)) != negated ? always : never;
  if (!schema.is_object()) return std::nullopt;
  Presence all = negated ? never : always;
  for (const auto& [key, value] : schema.items()) {
    if (!is_keyword(key) || key == "then" || key == "else") continue;
    const std::optional<Presence> one = presence_of(key, schema, negated, depth + 1);
    if (!one) return std::nullopt;
    std::optional<Presence> next =
        negated ? either_present(all, *one) : both_present(std::move(all), *one);
    if (!next) return std::nullopt;
    all = std::move(*next);
  }
  return all;
}

// What one keyword says, with those that belong to it.
std::optional<SchemaReader::Presence> SchemaReader::presence_of(const std::string& key,
                                                                const Value& schema, bool negated,
                                                                int depth) {
  const Value& value = schema[key];
  if (key == "allOf") return presence_of_list(value, !negated, negated, depth);
  if (key == "anyOf") return presence_of_list(value, negated, negated, depth);
  if (key == "oneOf" && !negated && value.is_array()) return presence_of_one(value, depth);
  if (key == "not") return presence(value, !negated, depth);
  if (key == "type" && json::is_text(value, "object")) {
    Presence objects = {.clauses = {}, .others = negated};
    if (negated) objects.clauses = {{}};
    return objects;
  }
  if (key == "$ref") {
    const Value* const target = resolve(schema);
    return target == nullptr ? std::nullopt : presence(*target, negated, depth);
  }
  if (key == "if" && !negated) {
    const std::optional<Presence> holds = presence(value, false, depth),
                                  fails = presence(value, true, depth);
    if (!holds || !fails) return std::nullopt;
    Presence all;
    for (const char* const name : {"then", "else"}) {
      const auto part = schema.find(name);
      if (part == schema.end()) continue;
      const std::optional<Presence> one = presence(*part, false, depth);
      const auto either =
          one ? either_present(*one, *(name[0] == 't' ? fails : holds)) : std::nullopt;
      if (!either) return std::nullopt;
      all = *both_present(std::move(all), *either);
    }
    return all;
  }
  Facts facts;
  if (key == "properties" && value.is_object()) {
    for (const auto& [name, property] : value.items()) {
      if (is_always(property)) continue;
      if (!is_never(property)) return std::nullopt;
      facts.object.presence.push_back({{name, false}});
    }
  } else if (key == "required" || key == "dependentRequired") {
    if (!read_object_keyword(key, value, schema, facts)) return std::nullopt;
  } else {
    return std::nullopt;
  }
  if (!negated) return Presence{.clauses = facts.object.presence, .others = true};
  Presence broken = {.clauses = {{}}, .others = false};
  for (const PresenceClause& clause : facts.object.presence) {
    Presence one = {.clauses = {}, .others = false};
    for (const auto& [name, is_present] : clause) one.clauses.push_back({{name, !is_present}});
    const std::optional<Presence> either = either_present(broken, one);
    if (!either) return std::nullopt;
    broken = *either;
  }
  return broken;
}

}  // namespace fathom::grammar
