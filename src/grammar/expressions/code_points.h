#pragma once
// Sets of characters as sorted, disjoint ranges, and their UTF-8 forms as sequences of byte ranges.
//
//   std::vector<CodePointRange> letters = normalized({{'a', 'z'}, {'A', 'Z'}});
//   for (const Utf8Range& bytes : utf8_ranges(letters)) ...
//
// Pure functions, thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expressions/expression.h"

namespace fathom::grammar {

constexpr char32_t kMaxCodePoint = 0x10FFFF;

// Sorted and disjoint, without surrogates and numbers beyond Unicode.
std::vector<CodePointRange> normalized(std::vector<CodePointRange> ranges);
// All characters that are not in the ranges (which need not be normalized).
std::vector<CodePointRange> complement(std::vector<CodePointRange> ranges);
std::vector<CodePointRange> intersection(const std::vector<CodePointRange>& a,
                                         const std::vector<CodePointRange>& b);

// One product of byte ranges: byte i of the character lies in bytes[i].
struct Utf8Range {
  struct Bytes {
    uint8_t first, last;
  };
  std::array<Bytes, 4> bytes;
  int length;
};
std::vector<Utf8Range> utf8_ranges(const std::vector<CodePointRange>& ranges);

void append_utf8(char32_t code_point, std::string& text);
// Takes one character off the front; nullopt (and nothing taken) where the text is not valid UTF-8 or ends.
std::optional<char32_t> take_utf8(std::string_view& text);

}  // namespace fathom::grammar
