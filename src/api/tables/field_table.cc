#include "api/tables/field_table.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "base/check.h"

namespace fathom::api {
namespace {

// Longer names are no misspelling of ours, and comparing costs their product.
constexpr size_t kMaxComparedBytes = 64;

// maxTokens, max-tokens and MAX_TOKENS are max_tokens to a reader.
std::string plain_letters(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c == '_' || c == '-') continue;
    letters += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return letters;
}

// So that "z" is no misspelling of "n".
int most_edits(std::string_view name) { return static_cast<int>(name.size()) / 3; }

}  // namespace

int edit_distance(std::string_view a, std::string_view b, int limit) {
  // Names of bodies are as long as their senders like; none that long is near one of ours, whatever its dashes.
  if (std::max(a.size(), b.size()) > 2 * kMaxComparedBytes) return limit + 1;
  const std::string from = plain_letters(a), to = plain_letters(b);
  if (from.size() > kMaxComparedBytes || to.size() > kMaxComparedBytes) return limit + 1;
  if (std::abs(static_cast<int>(from.size()) - static_cast<int>(to.size())) > limit)
    return limit + 1;
  using Row = std::array<int, kMaxComparedBytes + 1>;
  // rows[i % 3][j]: between the first i letters of `from` and the first j of `to`; a swap looks two rows back.
  std::array<Row, 3> rows{};
  for (size_t j = 0; j <= to.size(); ++j) rows[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= from.size(); ++i) {
    Row& row = rows[i % 3];
    const Row& above = rows[(i - 1) % 3];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= to.size(); ++j) {
      const int change = above[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({change, above[j] + 1, row[j - 1] + 1});
      const bool is_swap = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (is_swap) row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
    }
  }
  return std::min(rows[from.size() % 3][to.size()], limit + 1);
}

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
