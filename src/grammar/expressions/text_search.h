#pragma once
// TextSearch: finds which of some texts occurs first, a byte at a time, as the automaton of Aho and Corasick.
//
//   const TextSearch search({"<a>", "<b>"}, budget);
//   int at = 0;
//   at = search.next(at, byte);
//   if (search.found(at) == 1) ...                  // what was read ends with "<b>"
//
// Immutable once built. A failed budget means that it is incomplete.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/expressions/budget.h"

namespace fathom::grammar {

class TextSearch {
 public:
  static constexpr int kNone = -1;

  // REQUIRES: no text is empty. Where several end at one place, the first of them counts.
  TextSearch(const std::vector<std::string>& texts, Budget& budget);

  int num_states() const { return static_cast<int>(next_.size()); }
  int next(int state, uint8_t byte) const { return next_[static_cast<size_t>(state)][byte]; }
  // The text that ends here.
  int found(int state) const { return found_[static_cast<size_t>(state)]; }

 private:
  int new_state(Budget& budget);
  void add(const std::string& text, int number, Budget& budget);
  void link(Budget& budget);

  std::vector<std::array<int32_t, 256>> next_;
  std::vector<int> found_;
};

}  // namespace fathom::grammar
