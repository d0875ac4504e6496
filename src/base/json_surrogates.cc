#include "base/json_surrogates.h"

#include <charconv>
#include <cstdint>

namespace fathom::json {
namespace {

constexpr size_t kEscapeBytes = 6;  // \uXXXX

enum class Half { kNone, kHigh, kLow };

// What the escape at `at` is half of. REQUIRES: there is a backslash.
Half half_at(std::string_view text, size_t at) {
  if (text.size() - at < kEscapeBytes || text[at + 1] != 'u') return Half::kNone;
  uint32_t unit = 0;
  const char* const begin = text.data() + at + 2;
  const std::from_chars_result read = std::from_chars(begin, begin + 4, unit, 16);
  if (read.ec != std::errc() || read.ptr != begin + 4) return Half::kNone;
  if (unit >= 0xD800 && unit <= 0xDBFF) return Half::kHigh;
  return unit >= 0xDC00 && unit <= 0xDFFF ? Half::kLow : Half::kNone;
}

}  // namespace

std::optional<std::string> with_whole_pairs(std::string_view text) {
  std::optional<std::string> mended;
  size_t at = text.find('\\');
  while (at < text.size() && text.size() - at >= 2) {
    const Half half = half_at(text, at);
    const size_t after = at + (half == Half::kNone ? 2 : kEscapeBytes);
    const bool is_pair = half == Half::kHigh && after < text.size() && text[after] == '\\' &&
                         half_at(text, after) == Half::kLow;
    if (half != Half::kNone && !is_pair) {
      if (!mended) mended.emplace(text);
      mended->replace(at, kEscapeBytes, "\\ufffd");
    }
    at = text.find('\\', is_pair ? after + kEscapeBytes : after);
  }
  return mended;
}

}  // namespace fathom::json
