#include "base/edit_distance.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

namespace fathom {
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

}  // namespace

int edit_distance(std::string_view a, std::string_view b, int limit) {
  // Names are as long as their senders like; none that long is near one of ours, whatever its dashes.
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

}  // namespace fathom
