#pragma once
// The classes of code points that the pre-tokenizers ask about, as the regex engine of Hugging Face
// `tokenizers` answers (tools/tokenizer/unicode_classes.py asks it about every code point).
//
//   const UnicodeClasses& classes = unicode_classes();
//   if (classes[0x4e2d] & kUnicodeLetter) ...
//
// Built once on first use, immutable, lives until the program ends. Thread-safe.

#include <array>
#include <cstdint>
#include <vector>

namespace fathom::text {

// Bits of one entry.
inline constexpr uint16_t kUnicodeLetter = 1 << 0;       // \p{L}
inline constexpr uint16_t kUnicodeMark = 1 << 1;         // \p{M}
inline constexpr uint16_t kUnicodeNumber = 1 << 2;       // \p{N}
inline constexpr uint16_t kUnicodePunctuation = 1 << 3;  // \p{P} or \p{S}
inline constexpr uint16_t kUnicodeSpace = 1 << 4;        // \s
inline constexpr uint16_t kUnicodeDigit = 1 << 5;        // what the Digits pre-tokenizer isolates
inline constexpr uint16_t kV3Script = 1 << 6;            // the V3 family's class of Han and kana
inline constexpr uint16_t kV2Cased = 1 << 7;             // the V2 family's list of cased letters
inline constexpr uint16_t kV2Punctuation = 1 << 8;       // the V2 family's list of punctuation
inline constexpr uint16_t kV2Ideograph = 1 << 9;         // the V2 family's class of Han and Hangul

inline constexpr uint16_t kHan = 1 << 10;        // \p{Han}
inline constexpr uint16_t kKimiUpper = 1 << 11;  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
inline constexpr uint16_t kKimiLower = 1 << 12;  // [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]

class UnicodeClasses {
 public:
  UnicodeClasses();

  // REQUIRES: code_point <= 0x10ffff.
  uint16_t operator[](uint32_t code_point) const {
    return pages_[(uint32_t{page_of_[code_point >> kPageBits]} << kPageBits) |
                  (code_point & ((1u << kPageBits) - 1))];
  }

  // The entries of the first 128 code points.
  const uint16_t* ascii() const { return pages_.data(); }

 private:
  static constexpr uint32_t kPageBits = 8;
  static constexpr uint32_t kNumPages = 0x110000 >> kPageBits;
  std::array<uint16_t, kNumPages> page_of_{};
  // The distinct pages, one after the other; the first holds ASCII.
  std::vector<uint16_t> pages_;
};

const UnicodeClasses& unicode_classes();

}  // namespace fathom::text
