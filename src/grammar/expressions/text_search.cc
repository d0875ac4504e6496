#include "grammar/expressions/text_search.h"

#include <algorithm>

namespace fathom::grammar {

TextSearch::TextSearch(const std::vector<std::string>& texts, Budget& budget) {
  new_state(budget);
  for (size_t i = 0; i < texts.size() && budget.ok(); ++i)
    add(texts[i], static_cast<int>(i), budget);
  if (budget.ok()) link(budget);
}

int TextSearch::new_state(Budget& budget) {
  budget.charge(256);
  budget.charge_memory(sizeof(next_[0]));
  next_.emplace_back().fill(kNone);
  found_.push_back(kNone);
  return num_states() - 1;
}

void TextSearch::add(const std::string& text, int number, Budget& budget) {
  int at = 0;
  for (size_t i = 0; i < text.size() && budget.ok(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    int to = next(at, byte);
    if (to == kNone) {
      to = new_state(budget);
      next_[static_cast<size_t>(at)][byte] = to;
    }
    at = to;
  }
  if (found(at) == kNone) found_[static_cast<size_t>(at)] = number;
}

// By depth: a byte that no text goes on with leads where it leads from the longest other text begun here.
void TextSearch::link(Budget& budget) {
  std::vector<int> pending = {0}, fallback(next_.size(), 0);
  for (size_t i = 0; i < pending.size() && budget.charge(256); ++i) {
    const auto state = static_cast<size_t>(pending[i]);
    const auto behind = static_cast<size_t>(fallback[state]);
    if (found_[behind] != kNone) {
      found_[state] =
          found_[state] == kNone ? found_[behind] : std::min(found_[state], found_[behind]);
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      int32_t& to = next_[state][byte];
      const int32_t other = state == 0 ? 0 : next_[behind][byte];
      if (to == kNone) {
        to = other;
      } else {
        fallback[static_cast<size_t>(to)] = other;
        pending.push_back(to);
      }
    }
  }
}

}  // namespace fathom::grammar
