// Arrays of schemas.

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/json.h"
#include "grammar/schema/json_schema.h"
#include "grammar/schema/json_space.h"
#include "grammar/schema/json_values.h"

namespace fathom::grammar {
namespace {

using Value = json::Value;

// Longer counts are cut to this: a text within it satisfies them too.
constexpr int64_t kMaxCount = 20'000;
constexpr size_t kMaxPrefixItems = 256;
constexpr size_t kMaxSubsets = 512;  // of values that an array without repetitions may hold

size_t prefix_size(const ArrayFacts& array) {
  size_t size = 0;
  for (const ArrayFacts::Items& items : array.items) size = std::max(size, items.prefix.size());
  return size;
}

}  // namespace

Expression SchemaCompiler::item_of(const ArrayFacts& array, size_t idx, const Conjunction& more) {
  Conjunction schemas = reader_.item_schemas(array, idx);
  schemas.insert(schemas.end(), more.begin(), more.end());
  return sequence({json_space(rules_), value_of(std::move(schemas), path_ + "/items")});
}

Expression SchemaCompiler::build_array(const ArrayFacts& array) {
  const int64_t max = array.max ? std::min(*array.max, kMaxCount) : kUnbounded;
  if (array.min > kMaxCount) return fail("\"minItems\" is at most " + std::to_string(kMaxCount));
  if (array.min > max) return choice({});
  if (prefix_size(array) > kMaxPrefixItems) {
    return fail("more than " + std::to_string(kMaxPrefixItems) + " \"prefixItems\"");
  }
  const bool is_unique = array.unique && max > 1;
  const bool has_contains =
      std::any_of(array.contains.begin(), array.contains.end(),
                  [](const ArrayFacts::Contains& one) { return one.min > 0 || one.max; });
  if (is_unique && has_contains)
    return fail("\"uniqueItems\" beside \"contains\" is not supported");
  const Expression content = is_unique      ? build_unique(array, max)
                             : has_contains ? build_containing(array, max)
                                            : build_list(array, max);
  return sequence({literal("["), content, json_space(rules_), literal("]")});
}

Expression SchemaCompiler::build_list(const ArrayFacts& array, int64_t max) {
  const auto num_prefix = static_cast<int64_t>(prefix_size(array));
  const bool is_open = unlisted_ == Unlisted::kAllowed ||
                       std::any_of(array.items.begin(), array.items.end(),
                                   [](const auto& items) { return items.rest != nullptr; });
  if (num_prefix > 0 && !is_open) max = std::min(max, std::max(array.min, num_prefix));
  const Expression comma = json_comma(rules_),
                   item = item_of(array, static_cast<size_t>(num_prefix));
  const auto more = [&](int64_t written) {
    const auto least = static_cast<int>(std::max<int64_t>(array.min - written, 0));
    const auto most =
        static_cast<int>(max == kUnbounded ? kUnbounded : std::max<int64_t>(max - written, 0));
    return repeat(sequence({comma, item}), least, most);
  };
  Expression content = literal("");
  if (num_prefix > 0) {
    content = more(num_prefix);
  } else if (max > 0) {
    content = sequence({item, more(1)});
  }
  for (int64_t i = num_prefix; i-- > 0 && budget_.ok();) {
    // The item fits only where the list may be that long.
    if (i >= max) {
      content = literal("");
    } else {
      const Expression before = i > 0 ? comma : literal("");
      content = sequence({before, item_of(array, static_cast<size_t>(i)), content});
    }
    if (i >= array.min && i > 0) content = optional(content);
  }
  return array.min == 0 ? optional(content) : content;
}

// A state for each number of items and of those that are to be contained, as far as they matter.
Expression SchemaCompiler::build_containing(const ArrayFacts& array, int64_t max) {
  const ArrayFacts::Contains& wanted = array.contains[0];
  const bool are_alike = std::all_of(
      array.contains.begin(), array.contains.end(), [&](const ArrayFacts::Contains& one) {
        return one.item == wanted.item && one.min == wanted.min && one.max == wanted.max;
      });
  if (!are_alike) return fail("more than one \"contains\" for one array is not supported");
  const auto num_prefix = static_cast<int64_t>(prefix_size(array));
  const int64_t least_last = std::max({array.min, num_prefix, int64_t{1}});
  const int64_t last = max == kUnbounded ? least_last : max;
  const int64_t last_found = wanted.max ? *wanted.max : wanted.min;
  if ((last + 1) * (last_found + 1) > kMaxCount)
    return fail("\"contains\" with such counts of items is not supported");
  const auto state = [&](int64_t num_items, int64_t num_found) {
    return static_cast<int>(num_items * (last_found + 1) + num_found);
  };
  std::vector<GraphEdge> edges;
  std::vector<int> ends;
  for (int64_t n = 0; n <= last && budget_.ok(); ++n) {
    const auto idx = static_cast<size_t>(std::min(n, num_prefix));
    const Expression comma = n > 0 ? json_comma(rules_) : literal("");
    const Conjunction is_other =
        wanted.max ? Conjunction{{wanted.item.schema, !wanted.item.negated}} : Conjunction{};
    const Expression found = sequence({comma, item_of(array, idx, {wanted.item})});
    const Expression other = sequence({comma, item_of(array, idx, is_other)});
    for (int64_t found_before = 0; found_before <= last_found; ++found_before) {
      if (n >= array.min && found_before >= wanted.min) ends.push_back(state(n, found_before));
      if (n == last && max != kUnbounded) continue;
      const int64_t next = std::min(n + 1, last);
      edges.push_back({state(n, found_before), state(next, found_before), other});
      if (found_before < last_found)
        edges.push_back({state(n, found_before), state(next, found_before + 1), found});
    }
  }
  return graph(std::move(edges), std::move(ends), state(last, last_found) + 1);
}

// All values that satisfy the schemas, where they are listed.
std::optional<std::vector<const Value*>> SchemaCompiler::finite_values(const Conjunction& schemas) {
  static const Value yes = true, no = false, null = nullptr;
  static const std::vector<const Value*> literals = {&yes, &no, &null};
  std::vector<const Value*> values;
  const Alternatives ways = reader_.read(schemas);
  for (const Facts& facts : ways.all) {
    if (!facts.values && (facts.types & ~(kBoolean | kNull)) != 0) return std::nullopt;
    for (const Value* const value : facts.values ? *facts.values : literals) {
      const bool is_known = std::any_of(values.begin(), values.end(),
                                        [&](const Value* one) { return are_equal(*one, *value); });
      if (!is_known && reader_.satisfies(*value, facts, SchemaReader::Sure::kSurely))
        values.push_back(value);
    }
  }
  return values;
}

// A state for each set of values that were written.
Expression SchemaCompiler::build_unique(const ArrayFacts& array, int64_t max) {
  const auto values =
      prefix_size(array) > 0 ? std::nullopt : finite_values(reader_.item_schemas(array, 0));
  if (!values || values->size() > 30) {
    return fail("\"uniqueItems\" is supported only where the items are a few listed values");
  }
  std::vector<int> texts;
  for (const Value* const value : *values) texts.push_back(rules_.add(value_text(*value)));
  std::map<uint32_t, int> known = {{0, 0}};
  std::vector<uint32_t> sets = {0};
  std::vector<GraphEdge> edges;
  std::vector<int> ends;
  for (size_t i = 0; i < sets.size() && budget_.charge(256); ++i) {
    const auto size = static_cast<int64_t>(__builtin_popcount(sets[i]));
    if (size >= array.min) ends.push_back(static_cast<int>(i));
    for (size_t value = 0; size < max && value < texts.size(); ++value) {
      const uint32_t next = sets[i] | uint32_t{1} << value;
      if (next == sets[i]) continue;
      const auto [entry, is_new] = known.try_emplace(next, static_cast<int>(sets.size()));
      if (is_new) sets.push_back(next);
      if (sets.size() > kMaxSubsets) {
        return fail("\"uniqueItems\" is supported only where the items are a few listed values");
      }
      edges.push_back({static_cast<int>(i), entry->second,
                       sequence({i > 0 ? json_comma(rules_) : literal(""), json_space(rules_),
                                 rule(texts[value])})});
    }
  }
  return graph(std::move(edges), std::move(ends), static_cast<int>(sets.size()));
}

}  // namespace fathom::grammar
