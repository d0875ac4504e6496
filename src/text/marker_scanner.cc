#include "text/marker_scanner.h"

#include "text/output/json_object_machine.h"

namespace fathom::text {

bool MarkerScanner::push(char c) {
  if (num_pending_ == 0 || c == '<') {
    num_pending_ = c == '<' && num_markers_ > 0 ? 1 : 0;
    candidates_ = (1u << num_markers_) - 1;
    return false;
  }
  uint32_t left = 0;
  for (size_t i = 0; i < num_markers_; ++i) {
    if ((candidates_ >> i & 1) == 0 || markers_[i][num_pending_] != c) continue;
    left |= 1u << i;
    if (markers_[i].size() == num_pending_ + 1) {
      found_ = i;
      num_pending_ = 0;
      return true;
    }
  }
  candidates_ = left;
  num_pending_ = left == 0 ? 0 : num_pending_ + 1;
  return false;
}

bool push_into_gap(MarkerScanner& scanner, char c, bool& is_found) {
  const size_t num_before = scanner.num_pending();
  is_found = scanner.push(c);
  if (is_found) return true;
  if (scanner.num_pending() == 0) return num_before == 0 && is_json_space(c);
  return scanner.num_pending() == num_before + 1;
}

}  // namespace fathom::text
