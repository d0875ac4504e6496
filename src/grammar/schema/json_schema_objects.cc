// Objects of schemas: the listed members in their order, then those with other names.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "grammar/schema/json_schema.h"
#include "grammar/schema/json_space.h"
#include "grammar/schema/json_text.h"
#include "grammar/schema/json_values.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

constexpr size_t kMaxNameClasses = 64;
constexpr size_t kMaxMemberStates = 20'000;

bool is_never(const SignedSchema& one) { return *one.schema == Value(one.negated); }

bool are_never(const Conjunction& schemas) {
  return std::any_of(schemas.begin(), schemas.end(), is_never);
}

// The clauses that are left once it is known whether the name is present. False: one of them is broken.
bool decide(std::vector<PresenceClause>& clauses, const std::string& name, bool is_present) {
  for (size_t i = 0; i < clauses.size();) {
    const auto found = std::find_if(clauses[i].begin(), clauses[i].end(),
                                    [&](const auto& one) { return one.first == name; });
    if (found == clauses[i].end()) {
      ++i;
    } else if (found->second == is_present) {
      clauses.erase(clauses.begin() + static_cast<int64_t>(i));
    } else {
      clauses[i].erase(found);
      if (clauses[i].empty()) return false;
      ++i;
    }
  }
  return true;
}

// Names with what the patterns that match them ask for.
struct NameClass {
  TextSet names;
  std::set<std::string> patterns;
};

}  // namespace

struct SchemaCompiler::Listed {
  std::string name;
  Expression text;
  bool required;
};

// While members are written: which clauses are left, and how many members there are as far as it matters.
struct SchemaCompiler::Counts {
  size_t next = 0;
  std::vector<PresenceClause> clauses;
  int64_t written = 0;
  bool is_first = true;
  friend bool operator<(const Counts& a, const Counts& b) {
    return std::tie(a.next, a.clauses, a.written, a.is_first) <
           std::tie(b.next, b.clauses, b.written, b.is_first);
  }
};

std::vector<SchemaCompiler::Listed> SchemaCompiler::listed_members(const ObjectFacts& object,
                                                                   bool is_open) {
  std::vector<std::string> names = object.order;
  std::set<std::string> known(names.begin(), names.end()), required, absent;
  for (const PresenceClause& clause : object.presence) {
    for (const auto& [name, is_present] : clause) {
      if (clause.size() == 1) (is_present ? required : absent).insert(name);
      if ((is_present || is_open) && known.insert(name).second) names.push_back(name);
    }
  }
  const int max_properties = budget_.limits().max_properties;
  num_properties_ += static_cast<int64_t>(names.size());
  if (names.size() > static_cast<size_t>(max_properties) ||
      num_properties_ > 4 * int64_t{max_properties}) {
    budget_.fail({ErrorCode::kTooLong,
                  "json schema: more than " + std::to_string(max_properties) + " properties"});
    return {};
  }
  std::vector<Listed> members;
  for (const std::string& name : names) {
    if (!budget_.charge(64) || !reader_.ok()) return members;
    Conjunction schemas = reader_.member_schemas(object, name);
    const bool is_required = required.count(name) > 0;
    if (absent.count(name) > 0 || are_never(schemas)) {
      if (is_required) members.push_back({name, choice({}), true});
      continue;
    }
    if (parameters_) {
      members.push_back({name, listed_parameter(name, std::move(schemas)), is_required});
      continue;
    }
    const Expression value = value_of(std::move(schemas), path_ + "/properties/" + name);
    members.push_back(
        {name,
         sequence({json_space(rules_), literal(json_quoted(name)), json_colon(rules_), value}),
         is_required});
  }
  return members;
}

std::optional<TextSet> SchemaCompiler::free_names(const ObjectFacts& object,
                                                  const std::vector<std::string>& names) {
  std::optional<TextSet> set =
      combined(all_texts(), set_of_words(names), Combine::kOnlyFirst, budget_);
  if (object.names.empty() || !set) return set;
  static const Value strings = {{"type", "string"}};
  Conjunction schemas = object.names;
  schemas.push_back({&strings, false});
  TextSet allowed = {.states = {{}}};
  for (const Facts& facts : reader_.read(schemas).all) {
    std::optional<TextSet> way;
    if (facts.values) {
      std::vector<std::string> words;
      for (const Value* const value : *facts.values) {
        if (reader_.satisfies(*value, facts, SchemaReader::Sure::kSurely))
          words.push_back(value->get<std::string>());
      }
      way = set_of_words(words);
    } else {
      std::vector<std::string> excluded;
      for (const Value* const value : facts.excluded) {
        if (value->is_string()) excluded.push_back(value->get<std::string>());
      }
      way = reader_.texts().set_of(facts.string, excluded, TextSets::kAtMost);
    }
    if (!way) return std::nullopt;
    const std::optional<TextSet> either = combined(allowed, *way, Combine::kEither, budget_);
    if (!either) return std::nullopt;
    allowed = *either;
  }
  return combined(*set, allowed, Combine::kBoth, budget_);
}

// One member whose name is none of the names; nothing fits where there can be none.
Expression SchemaCompiler::free_member(const ObjectFacts& object,
                                       const std::vector<std::string>& names, bool is_open) {
  std::set<std::string> patterns;
  for (const ObjectFacts::Pattern& pattern : object.patterns) patterns.insert(pattern.name);
  for (const ObjectFacts::Rest& rest : object.rests) {
    for (const std::string& pattern : patterns_of(rest)) patterns.insert(pattern);
  }
  const auto member = [&](const Expression& name, Conjunction schemas) {
    const std::string path = path_ + "/additionalProperties";
    if (parameters_) return parameter(name, std::move(schemas), path);
    return sequence(
        {json_space(rules_), name, json_colon(rules_), value_of(std::move(schemas), path)});
  };
  const auto schemas_of = [&](const std::set<std::string>& matched) {
    Conjunction schemas;
    for (const ObjectFacts::Pattern& pattern : object.patterns) {
      if (matched.count(pattern.name) > 0) schemas.push_back(pattern.value);
    }
    for (const ObjectFacts::Rest& rest : object.rests) {
      const std::vector<std::string> own = patterns_of(rest);
      const bool is_own = std::any_of(
          own.begin(), own.end(), [&](const std::string& one) { return matched.count(one) > 0; });
      if (!is_own) schemas.push_back({rest.value, false});
    }
    return schemas;
  };
  Conjunction plain = schemas_of({});
  if (patterns.empty() && (!is_open || are_never(plain))) return choice({});
  if (patterns.empty() && names.empty() && object.names.empty())
    return member(parameters_ ? parameters_->texts.any_name() : json_string(rules_),
                  std::move(plain));
  std::optional<TextSet> free = free_names(object, names);
  if (!free) return fail("\"propertyNames\" is too large");
  std::vector<NameClass> classes = {{std::move(*free), {}}};
  for (const std::string& pattern : patterns) {
    std::vector<NameClass> next;
    for (const NameClass& one : classes) {
      const TextSet* const most = reader_.texts().pattern(pattern, TextSets::kAtMost);
      const TextSet* const least = reader_.texts().pattern(pattern, TextSets::kAtLeast);
      if (most == nullptr || least == nullptr)
        return fail("the pattern " + pattern.substr(0, 64) + " is too large");
      std::optional<TextSet> with = combined(one.names, *most, Combine::kBoth, budget_);
      std::optional<TextSet> without = combined(one.names, *least, Combine::kOnlyFirst, budget_);
      if (!with || !without || next.size() > kMaxNameClasses)
        return fail("the names of \"patternProperties\" are too many");
      NameClass matched = {std::move(*with), one.patterns};
      matched.patterns.insert(pattern);
      if (!is_empty(matched.names)) next.push_back(std::move(matched));
      if (!is_empty(*without)) next.push_back({std::move(*without), one.patterns});
    }
    classes = std::move(next);
  }
  std::vector<Expression> ways;
  for (const NameClass& one : classes) {
    Conjunction schemas = schemas_of(one.patterns);
    const bool is_silent = one.patterns.empty() && !is_open;
    if (is_silent || are_never(schemas) || is_empty(one.names)) continue;
    std::optional<Expression> name;
    if (parameters_) {
      name = parameters_->texts.name_of(one.names);
    } else {
      name = sequence({literal("\""), json_text(one.names, rules_), literal("\"")});
    }
    if (!name) return fail("\"propertyNames\" is too large");
    ways.push_back(member(*name, std::move(schemas)));
  }
  return choice(std::move(ways));
}

Expression SchemaCompiler::build_object(const ObjectFacts& object) {
  const bool is_counted = object.min > 0 || object.max;
  const bool is_bare = object.rests.empty() && object.properties.empty() &&
                       object.patterns.empty() && object.names.empty() && object.presence.empty() &&
                       !is_counted;
  if (is_bare && unlisted_ == Unlisted::kNowhere) {
    if (parameters_) return literal("");
    return sequence({literal("{"), json_space(rules_), literal("}")});
  }
  // Further members are written where the schema speaks of them or of nothing.
  const bool is_open = !object.rests.empty() || unlisted_ == Unlisted::kAllowed ||
                       (object.properties.empty() && object.patterns.empty());
  std::vector<Listed> listed = listed_members(object, is_open);
  std::vector<std::string> names = object.order;
  for (const PresenceClause& clause : object.presence) {
    for (const auto& [name, is_present] : clause) names.push_back(name);
  }
  if (!budget_.ok() || !reader_.ok()) return choice({});
  if (is_bare && is_open) return parameters_ ? any_parameters_of_object() : json_any_object(rules_);
  const Expression one = free_member(object, names, is_open);
  const bool has_free = one->kind != Expression::Node::Kind::kChoice || !one->parts.empty();
  const bool is_simple =
      !is_counted && std::all_of(object.presence.begin(), object.presence.end(),
                                 [](const PresenceClause& clause) { return clause.size() == 1; });
  Expression content = is_simple ? build_members(std::move(listed), one, has_free)
                                 : build_counted(object, listed, one, has_free);
  if (parameters_) return content;
  return sequence({literal("{"), content, json_space(rules_), literal("}")});
}

Expression SchemaCompiler::separator() { return parameters_ ? literal("\n") : json_comma(rules_); }

Expression SchemaCompiler::build_members(std::vector<Listed> listed, const Expression& one,
                                         bool has_free) {
  std::vector<Member> parts;
  for (Listed& member : listed) parts.push_back({std::move(member.text), member.required});
  if (has_free) {
    parts.push_back({graph({{0, 1, one}, {1, 0, separator()}}, {1}, 2), /*required=*/false});
  }
  return members(std::move(parts), separator());
}

// A state for each place among the members, with the clauses that are left and the number of those written.
Expression SchemaCompiler::build_counted(const ObjectFacts& object,
                                         const std::vector<Listed>& listed, const Expression& one,
                                         bool has_free) {
  const int64_t cap = object.max ? std::max(*object.max, object.min) : object.min;
  std::map<Counts, int> known;
  std::vector<Counts> states;
  std::vector<GraphEdge> edges;
  std::vector<int> ends;
  int num_states = 0;
  const auto state_of = [&](Counts counts) {
    const auto [entry, is_new] = known.try_emplace(counts, num_states);
    if (is_new) {
      // The second is the place behind the comma.
      num_states += 2;
      states.push_back(std::move(counts));
    }
    return entry->second;
  };
  Counts start = {.clauses = object.presence};
  std::set<std::string> is_listed;
  for (const Listed& member : listed) is_listed.insert(member.name);
  for (const PresenceClause& clause : object.presence) {
    for (const auto& [name, is_present] : clause) {
      if (is_listed.count(name) == 0 && !decide(start.clauses, name, false)) return choice({});
    }
  }
  state_of(start);
  for (size_t i = 0; i < states.size(); ++i) {
    const Counts at = states[i];
    const int from = static_cast<int>(2 * i), behind_comma = from + 1;
    if (states.size() > kMaxMemberStates ||
        !budget_.charge(256 + 64 * static_cast<int64_t>(at.clauses.size()))) {
      return budget_.ok() ? fail("its rules about which members are present are too many")
                          : choice({});
    }
    edges.push_back({from, behind_comma, at.is_first ? literal("") : separator()});
    const int64_t missing = object.min - at.written;
    if (at.next == listed.size()) {
      if (!at.clauses.empty()) continue;
      if (missing <= 0) ends.push_back(from);
      // Free names may repeat each other: only the first surely counts.
      const int64_t room = object.max ? *object.max - at.written : kUnbounded;
      if (!has_free || missing > 1 || room <= 0) continue;
      const int done = num_states;
      num_states += 2;
      states.push_back(
          {.next = listed.size() + 1, .clauses = {}, .written = done, .is_first = true});
      const int more =
          room == kUnbounded ? kUnbounded : static_cast<int>(std::min<int64_t>(room - 1, 20'000));
      edges.push_back(
          {behind_comma, done, sequence({one, repeat(sequence({separator(), one}), 0, more)})});
      ends.push_back(done);
      continue;
    }
    if (at.next > listed.size()) continue;
    Counts left_out = at, present = at;
    ++left_out.next;
    ++present.next;
    present.is_first = false;
    present.written = std::min(cap, at.written + 1);
    const std::string& name = listed[at.next].name;
    if (decide(left_out.clauses, name, false))
      edges.push_back({from, state_of(left_out), literal("")});
    const bool has_room = !object.max || at.written < *object.max;
    if (has_room && decide(present.clauses, name, true)) {
      edges.push_back({behind_comma, state_of(present), listed[at.next].text});
    }
  }
  if (ends.empty() && has_free && object.min > static_cast<int64_t>(listed.size()) + 1) {
    return fail(
        "\"minProperties\" counts members with names that are not listed, and those may repeat "
        "each other");
  }
  return graph(std::move(edges), std::move(ends), num_states);
}

}  // namespace fathom::grammar
