// Stop strings and a text cut into pieces: what comes out is what a search of the whole text leaves.
// Input: number of strings, then for each its length and bytes, then pieces as length and bytes.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/stop_matcher.h"

namespace {

using fathom::text::StopMatcher;
using fathom::text::StopStrings;

std::string_view take(std::string_view& input, size_t max_size) {
  if (input.empty()) return {};
  const size_t size = std::min(static_cast<size_t>(static_cast<unsigned char>(input[0])) % max_size,
                               input.size() - 1);
  const std::string_view taken = input.substr(1, size);
  input.remove_prefix(1 + size);
  return taken;
}

// The end of the string that is complete first in the whole text, and the longest that ends there.
struct Best {
  size_t end = std::string::npos, size = 0;
};

Best search(const std::vector<std::string>& stops, const std::string& text) {
  Best best;
  for (const std::string& stop : stops) {
    const size_t at = text.find(stop);
    if (at == std::string::npos) continue;
    const size_t end = at + stop.size();
    if (end < best.end || (end == best.end && stop.size() > best.size)) best = {end, stop.size()};
  }
  return best;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) return 0;
  const size_t num_strings = static_cast<unsigned char>(input[0]) % 16u;
  input.remove_prefix(1);
  std::vector<std::string> stops;
  for (size_t i = 0; i < num_strings; ++i) {
    const std::string_view stop = take(input, 17);
    if (!stop.empty()) stops.emplace_back(stop);
  }
  StopMatcher matcher(std::make_shared<const StopStrings>(stops));
  std::string text, out;
  bool found = false;
  while (!input.empty() && !found) {
    const std::string_view piece = take(input, 33);
    text += piece;
    found = matcher.push(piece, out);
  }
  if (!found) matcher.finish(out);
  const Best best = search(stops, text);
  FATHOM_CHECK(found == (best.end != std::string::npos), "found " << found);
  const size_t visible = found ? best.end - best.size : text.size();
  FATHOM_CHECK(out == text.substr(0, visible), "out has " << out.size() << " bytes");
  return 0;
}
