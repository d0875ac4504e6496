#pragma once
// Finds one of a few special strings in a stream of bytes and knows at every byte how long a beginning of
// one it has seen. Every marker begins with '<' and has no other '<', so a beginning that breaks off
// hides no other one, and each byte is looked at once.
//
//   MarkerScanner scanner({markup::kThinkEnd});
//   if (scanner.push(c)) found(scanner.marker());
//
// Not synchronised. The markers must outlive the scanner.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/check.h"

namespace fathom::text {

class MarkerScanner {
 public:
  MarkerScanner() = default;
  MarkerScanner(std::initializer_list<std::string_view> markers) {
    for (const std::string_view marker : markers) add(marker);
  }
  // REQUIRES: no beginning is pending.
  void add(std::string_view marker) {
    FATHOM_CHECK(marker.starts_with('<') && marker.rfind('<') == 0, "marker " << marker);
    FATHOM_CHECK(num_markers_ < markers_.size(), "more than " << markers_.size() << " markers");
    markers_[num_markers_++] = marker;
  }

  // True when this byte completes a marker, which marker() then is; the scanner starts afresh.
  bool push(char c);
  // Bytes of a marker's beginning that the last bytes pushed may still turn into a marker.
  size_t num_pending() const { return num_pending_; }
  std::string_view marker() const { return markers_[found_]; }
  void reset() { num_pending_ = 0; }

 private:
  std::array<std::string_view, 6> markers_;
  size_t num_markers_ = 0;
  size_t num_pending_ = 0;
  uint32_t candidates_ = 0;  // bit per marker that begins with the pending bytes
  size_t found_ = 0;
};

// Pushes c and tells whether all bytes since the last marker are white space or the beginning of a marker.
// REQUIRES: that was so before c.
bool push_into_gap(MarkerScanner& scanner, char c, bool& is_found);

}  // namespace fathom::text
