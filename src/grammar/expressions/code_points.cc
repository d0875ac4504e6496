#include "grammar/expressions/code_points.h"

#include <algorithm>
#include <utility>

namespace fathom::grammar {
namespace {

constexpr char32_t kSurrogateFirst = 0xD800, kSurrogateLast = 0xDFFF;

std::vector<CodePointRange> merged(std::vector<CodePointRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  std::vector<CodePointRange> result;
  for (const CodePointRange& range : ranges) {
    if (range.first > range.last) continue;
    if (!result.empty() && range.first <= result.back().last + 1) {
      result.back().last = std::max(result.back().last, range.last);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

// Both ends have `length` bytes in UTF-8 and agree in the bytes before `idx`.
void split(std::string_view first, std::string_view last, size_t idx, Utf8Range range,
           std::vector<Utf8Range>& out) {
  const auto byte = [](char c) { return static_cast<uint8_t>(c); };
  const size_t length = first.size();
  while (idx < length && first[idx] == last[idx]) {
    range.bytes[idx] = {byte(first[idx]), byte(first[idx])};
    ++idx;
  }
  if (idx == length) return out.push_back(range);
  const bool first_is_low = first.substr(idx + 1).find_first_not_of('\x80') == first.npos;
  const bool last_is_high = last.substr(idx + 1).find_first_not_of('\xBF') == last.npos;
  uint8_t middle_first = byte(first[idx]), middle_last = byte(last[idx]);
  if (!first_is_low) {
    const std::string high =
        std::string(first.substr(0, idx + 1)) + std::string(length - idx - 1, '\xBF');
    split(first, high, idx, range, out);
    ++middle_first;
  }
  if (!last_is_high) --middle_last;
  if (middle_first <= middle_last) {
    range.bytes[idx] = {middle_first, middle_last};
    for (size_t rest = idx + 1; rest < length; ++rest) range.bytes[rest] = {0x80, 0xBF};
    out.push_back(range);
  }
  if (!last_is_high) {
    const std::string low =
        std::string(last.substr(0, idx + 1)) + std::string(length - idx - 1, '\x80');
    split(low, last, idx, range, out);
  }
}

}  // namespace

std::vector<CodePointRange> normalized(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> result;
  for (const CodePointRange& range : merged(std::move(ranges))) {
    const char32_t last = std::min(range.last, kMaxCodePoint);
    if (range.first < kSurrogateFirst) {
      result.push_back({range.first, std::min<char32_t>(last, kSurrogateFirst - 1)});
    }
    if (last > kSurrogateLast)
      result.push_back({std::max<char32_t>(range.first, kSurrogateLast + 1), last});
  }
  result.erase(std::remove_if(result.begin(), result.end(),
                              [](const CodePointRange& r) { return r.first > r.last; }),
               result.end());
  return result;
}

std::vector<CodePointRange> complement(std::vector<CodePointRange> ranges) {
  std::vector<CodePointRange> result;
  char32_t next = 0;
  for (const CodePointRange& range : merged(std::move(ranges))) {
    if (range.first > next) result.push_back({next, range.first - 1});
    next = std::max<char32_t>(next, range.last + 1);
  }
  if (next <= kMaxCodePoint) result.push_back({next, kMaxCodePoint});
  return normalized(std::move(result));
}

std::vector<CodePointRange> intersection(const std::vector<CodePointRange>& a,
                                         const std::vector<CodePointRange>& b) {
  std::vector<CodePointRange> outside = complement(a);
  const std::vector<CodePointRange> outside_b = complement(b);
  outside.insert(outside.end(), outside_b.begin(), outside_b.end());
  return complement(std::move(outside));
}

std::vector<Utf8Range> utf8_ranges(const std::vector<CodePointRange>& ranges) {
  constexpr std::array<char32_t, 4> kLastOfLength = {0x7F, 0x7FF, 0xFFFF, kMaxCodePoint};
  std::vector<Utf8Range> result;
  for (const CodePointRange& range : ranges) {
    char32_t first = range.first;
    for (const char32_t last_of_length : kLastOfLength) {
      if (first > range.last) break;
      if (first > last_of_length) continue;
      const char32_t last = std::min(range.last, last_of_length);
      std::string first_bytes, last_bytes;
      append_utf8(first, first_bytes);
      append_utf8(last, last_bytes);
      split(first_bytes, last_bytes, 0,
            {.bytes = {}, .length = static_cast<int>(first_bytes.size())}, result);
      first = last + 1;
    }
  }
  return result;
}

void append_utf8(char32_t c, std::string& text) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    add(0xE0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3F));
  } else {
    add(0xF0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3F));
    add(0x80 | (c >> 6 & 0x3F));
  }
  add(0x80 | (c & 0x3F));
}

std::optional<char32_t> take_utf8(std::string_view& text) {
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (text.empty()) return std::nullopt;
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length == 0 || lead >= 0xF8 || text.size() < length) return std::nullopt;
  char32_t c = length == 1 ? lead : lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if ((byte & 0xC0) != 0x80) return std::nullopt;
    c = c << 6 | (byte & 0x3F);
  }
  const bool is_surrogate = c >= kSurrogateFirst && c <= kSurrogateLast;
  if (c < kLeast[length] || c > kMaxCodePoint || is_surrogate) return std::nullopt;
  text.remove_prefix(length);
  return c;
}

}  // namespace fathom::grammar
