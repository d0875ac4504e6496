#include "api/tables/field_table.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/edit_distance.h"

namespace fathom::api {
namespace {

// So that "z" is no misspelling of "n".
int most_edits(std::string_view name) { return static_cast<int>(name.size()) / 3; }

}  // namespace

FieldTable::FieldTable(std::string_view name,
                       std::initializer_list<std::span<const FieldRule>> groups)
    : name_(name) {
  for (const std::span<const FieldRule> group : groups) {
    rules_.insert(rules_.end(), group.begin(), group.end());
  }
  std::ranges::sort(rules_, {}, &FieldRule::name);
  const auto twice = std::ranges::adjacent_find(rules_, {}, &FieldRule::name);
  FATHOM_CHECK(twice == rules_.end(), name_ << " has two rules for " << twice->name);
}

const FieldRule* FieldTable::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(rules_, name, {}, &FieldRule::name);
  return found != rules_.end() && found->name == name ? &*found : nullptr;
}

std::string_view FieldTable::nearest(std::string_view name) const {
  std::string_view best;
  int fewest = most_edits(name) + 1;
  for (const FieldUse use : {FieldUse::kHonoured, FieldUse::kRefused, FieldUse::kWithoutEffect}) {
    for (const FieldRule& rule : rules_) {
      if (rule.use != use) continue;
      const int edits = edit_distance(name, rule.name, fewest - 1);
      if (edits >= fewest) continue;
      fewest = edits;
      best = rule.name;
    }
  }
  return best;
}

const FieldRule* FieldTable::place_of(std::string_view name) const {
  const auto has_it = [&](const FieldRule& rule) {
    if (rule.use != FieldUse::kHonoured || rule.inner == nullptr) return false;
    const FieldRule* inner = rule.inner().find(name);
    return inner != nullptr && inner->use == FieldUse::kHonoured;
  };
  const auto found = std::ranges::find_if(rules_, has_it);
  return found == rules_.end() ? nullptr : &*found;
}

}  // namespace fathom::api
