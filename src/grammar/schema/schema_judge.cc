// Whether a value satisfies facts, and whether none can.

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/json.h"
#include "grammar/expressions/code_points.h"
#include "grammar/schema/schema_reader.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

// How deep members in members are looked at when it is judged whether there is a value.
constexpr int kMaxMemberDepth = 4;

int64_t num_characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

bool is_within(NumberUnits units, const NumberFacts& facts) {
  return !(facts.least && units < *facts.least) && !(facts.most && units > *facts.most) &&
         !(facts.above && units <= *facts.above) && !(facts.below && units >= *facts.below);
}

bool is_listed(const ObjectFacts::Rest& rest, const std::string& name) {
  if (std::find(rest.names.begin(), rest.names.end(), name) != rest.names.end()) return true;
  if (rest.listing == nullptr) return false;
  const auto listed = rest.listing->find("properties");
  return listed != rest.listing->end() && listed->is_object() && listed->contains(name);
}

}  // namespace

std::vector<std::string> patterns_of(const ObjectFacts::Rest& rest) {
  std::vector<std::string> patterns = rest.patterns;
  const auto listed =
      rest.listing == nullptr ? Value::const_iterator{} : rest.listing->find("patternProperties");
  if (rest.listing != nullptr && listed != rest.listing->end() && listed->is_object()) {
    for (const auto& [pattern, value] : listed->items()) patterns.push_back(pattern);
  }
  return patterns;
}

bool SchemaReader::matches(const std::string& pattern, const std::string& text) {
  const TextSet* const at_most = texts_.pattern(pattern, TextSets::kAtMost);
  const TextSet* const at_least =
      at_most == nullptr ? nullptr : texts_.pattern(pattern, TextSets::kAtLeast);
  if (at_least == nullptr)
    return refuse("the pattern " + pattern.substr(0, 64) +
                  " is too large to be combined with others");
  const bool does = holds(*at_most, text);
  if (does != holds(*at_least, text)) {
    refuse("dialects differ in whether the pattern " + pattern.substr(0, 64) + " matches " +
           text.substr(0, 64));
  }
  return does;
}

Conjunction SchemaReader::member_schemas(const ObjectFacts& object, const std::string& name) {
  Conjunction schemas;
  const auto listed = object.properties.find(name);
  if (listed != object.properties.end()) schemas = listed->second;
  for (const ObjectFacts::Pattern& pattern : object.patterns) {
    if (matches(pattern.name, name)) schemas.push_back(pattern.value);
  }
  for (const ObjectFacts::Rest& rest : object.rests) {
    if (is_listed(rest, name)) continue;
    const std::vector<std::string> patterns = patterns_of(rest);
    if (std::any_of(patterns.begin(), patterns.end(),
                    [&](const std::string& one) { return matches(one, name); }))
      continue;
    schemas.push_back({rest.value, false});
  }
  if (!object.names.empty() && ok() && !satisfies(Value(name), object.names, Sure::kSurely)) {
    static const Value never = false;
    if (!satisfies(Value(name), object.names, Sure::kPerhaps)) {
      schemas.push_back({&never, false});
    } else {
      refuse("it is not known whether \"propertyNames\" takes " + name.substr(0, 64));
    }
  }
  return schemas;
}

Conjunction SchemaReader::item_schemas(const ArrayFacts& array, size_t idx) const {
  Conjunction schemas;
  for (const ArrayFacts::Items& items : array.items) {
    if (idx < items.prefix.size()) {
      schemas.push_back(items.prefix[idx]);
    } else if (items.rest != nullptr) {
      schemas.push_back({items.rest, items.rest_negated});
    }
  }
  std::sort(schemas.begin(), schemas.end());
  schemas.erase(std::unique(schemas.begin(), schemas.end()), schemas.end());
  return schemas;
}

bool SchemaReader::satisfies(const Value& value, const Conjunction& schemas, Sure sure) {
  const Alternatives ways = read(schemas);
  if (sure == Sure::kPerhaps && !ways.is_exact) return true;
  return std::any_of(ways.all.begin(), ways.all.end(),
                     [&](const Facts& facts) { return satisfies(value, facts, sure); });
}

bool SchemaReader::satisfies(const Value& value, const Facts& facts, Sure sure) {
  if (!budget_.charge(64)) return false;
  if ((type_of(value) & facts.types) == 0) return false;
  const auto is_value = [&](const Value* one) { return are_equal(*one, value); };
  if (facts.values && std::none_of(facts.values->begin(), facts.values->end(), is_value))
    return false;
  if (std::any_of(facts.excluded.begin(), facts.excluded.end(), is_value)) return false;
  if (value.is_string())
    return satisfies_string(value.get_ref<const std::string&>(), facts.string, sure);
  if (value.is_number()) return satisfies_number(value, facts.number, sure);
  if (value.is_array()) return satisfies_array(value, facts.array, sure);
  return !value.is_object() || satisfies_object(value, facts.object, sure);
}

bool SchemaReader::satisfies_string(const std::string& text, const StringFacts& facts, Sure sure) {
  const int64_t length = num_characters(text);
  if (length < facts.min_length || (facts.max_length && length > *facts.max_length)) return false;
  const auto side = sure == Sure::kSurely ? TextSets::kAtMost : TextSets::kAtLeast;
  const auto other = sure == Sure::kSurely ? TextSets::kAtLeast : TextSets::kAtMost;
  const auto is_in = [&](const TextSet* set) {
    if (set == nullptr)
      return !refuse("a pattern is too large to be compared with values") || sure == Sure::kPerhaps;
    return holds(*set, text);
  };
  for (const std::string& pattern : facts.patterns) {
    if (!is_in(texts_.pattern(pattern, side))) return false;
  }
  for (const std::string& pattern : facts.other_patterns) {
    if (is_in(texts_.pattern(pattern, other))) return false;
  }
  return std::all_of(facts.formats.begin(), facts.formats.end(), [&](const std::string& format) {
    return sure == Sure::kPerhaps || is_in(texts_.format(format));
  });
}

bool SchemaReader::satisfies_number(const Value& value, const NumberFacts& facts, Sure sure) {
  const std::optional<NumberUnits> units = units_of(value);
  const bool is_free = !facts.least && !facts.most && !facts.above && !facts.below &&
                       facts.multiples.empty() && facts.other_multiples.empty();
  if (!units) return is_free || sure == Sure::kPerhaps;
  if (!is_within(*units, facts)) return false;
  const auto is_multiple = [&](const Value* step) { return *units % *units_of(*step) == 0; };
  return std::all_of(facts.multiples.begin(), facts.multiples.end(), is_multiple) &&
         std::none_of(facts.other_multiples.begin(), facts.other_multiples.end(), is_multiple);
}

bool SchemaReader::satisfies_array(const Value& value, const ArrayFacts& facts, Sure sure) {
  const auto size = static_cast<int64_t>(value.size());
  if (size < facts.min || (facts.max && size > *facts.max)) return false;
  for (size_t i = 0; i < value.size(); ++i) {
    if (!satisfies(value[i], item_schemas(facts, i), sure)) return false;
    for (size_t j = 0; facts.unique && j < i; ++j) {
      if (are_equal(value[i], value[j])) return false;
    }
  }
  for (const ArrayFacts::Contains& contains : facts.contains) {
    const auto num_with = [&](Sure how) {
      return std::count_if(value.begin(), value.end(), [&](const Value& item) {
        return satisfies(item, Conjunction{contains.item}, how);
      });
    };
    if (num_with(sure) < contains.min) return false;
    if (contains.max &&
        num_with(sure == Sure::kSurely ? Sure::kPerhaps : Sure::kSurely) > *contains.max)
      return false;
  }
  return true;
}

bool SchemaReader::satisfies_object(const Value& value, const ObjectFacts& facts, Sure sure) {
  const auto size = static_cast<int64_t>(value.size());
  if (size < facts.min || (facts.max && size > *facts.max)) return false;
  for (const PresenceClause& clause : facts.presence) {
    const bool holds = std::any_of(clause.begin(), clause.end(), [&](const auto& one) {
      return value.contains(one.first) == one.second;
    });
    if (!holds) return false;
  }
  for (const auto& [name, member] : value.items()) {
    if (!satisfies(member, member_schemas(facts, name), sure)) return false;
  }
  return true;
}

bool SchemaReader::is_impossible(const Facts& facts, int depth) {
  if (facts.types == 0) return true;
  if (facts.values) {
    return std::none_of(facts.values->begin(), facts.values->end(), [&](const Value* value) {
      return satisfies(*value, facts, Sure::kPerhaps);
    });
  }
  for (unsigned type = kObject; type <= kNull; type *= 2) {
    if ((facts.types & type) != 0 && !is_type_impossible(type, facts, depth)) return false;
  }
  return true;
}

bool SchemaReader::is_type_impossible(unsigned type, const Facts& facts, int depth) {
  const auto excludes = [&](const Value& value) {
    return std::any_of(facts.excluded.begin(), facts.excluded.end(),
                       [&](const Value* one) { return are_equal(*one, value); });
  };
  if (type == kNull) return excludes(nullptr);
  if (type == kBoolean) return excludes(true) && excludes(false);
  if (type == kString) {
    const StringFacts& string = facts.string;
    if (string.max_length && string.min_length > *string.max_length) return true;
    if (string.patterns.size() + string.other_patterns.size() < 2 &&
        (string.patterns.empty() || (!string.max_length && string.min_length == 0))) {
      return false;
    }
    const std::optional<TextSet> set = texts_.set_of(string, {}, TextSets::kAtLeast);
    return set && is_empty(*set);
  }
  if ((type & kNumber) != 0) {
    const NumberFacts& number = facts.number;
    return (number.least && number.most && *number.least > *number.most) ||
           (number.least && number.below && *number.least >= *number.below) ||
           (number.above && number.most && *number.above >= *number.most) ||
           (number.above && number.below && *number.above >= *number.below);
  }
  if (type == kObject) return is_object_impossible(facts.object, depth);
  const ArrayFacts& array = facts.array;
  if (array.max && array.min > *array.max) return true;
  for (int64_t i = 0; i < std::min<int64_t>(array.min, kMaxMemberDepth); ++i) {
    if (are_impossible(item_schemas(array, static_cast<size_t>(i)), depth + 1)) return true;
  }
  return false;
}

bool SchemaReader::is_object_impossible(const ObjectFacts& object, int depth) {
  if (object.max && object.min > *object.max) return true;
  std::set<std::string> present, absent;
  for (const PresenceClause& clause : object.presence) {
    if (clause.empty()) return true;
    if (clause.size() == 1) (clause[0].second ? present : absent).insert(clause[0].first);
  }
  return std::any_of(present.begin(), present.end(), [&](const std::string& name) {
    return absent.count(name) > 0 || are_impossible(member_schemas(object, name), depth + 1);
  });
}

bool SchemaReader::are_impossible(const Conjunction& schemas, int depth) {
  if (schemas.empty() || depth > kMaxMemberDepth || !ok()) return false;
  const Alternatives ways = read(schemas);
  return ok() && ways.is_exact &&
         std::all_of(ways.all.begin(), ways.all.end(),
                     [&](const Facts& facts) { return is_impossible(facts, depth); });
}

}  // namespace fathom::grammar
