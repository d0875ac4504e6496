#pragma once
// FirstBytes: a set of characters by the first byte of their UTF-8 form. A byte below 0x80 is one character, one from
// 0xC2 to 0xF4 stands for all that begin with it.

#include <array>
#include <cstddef>
#include <cstdint>

namespace fathom::grammar {

class FirstBytes {
 public:
  void add(uint8_t byte) { words_[byte / 64] |= uint64_t{1} << (byte % 64); }
  bool has(uint8_t byte) const { return (words_[byte / 64] >> (byte % 64) & 1) != 0; }
  FirstBytes& operator|=(const FirstBytes& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  bool is_in(const FirstBytes& other) const {
    uint64_t outside = 0;
    for (size_t i = 0; i < words_.size(); ++i) outside |= words_[i] & ~other.words_[i];
    return outside == 0;
  }

 private:
  std::array<uint64_t, 4> words_{};
};

// Where a text stands within a character.
struct CharPlace {
  uint8_t num_left = 0;               // more bytes of the character; 0 = between two
  uint8_t first = 0x80, last = 0xBF;  // the next of them
  bool is_broken = false;             // this is no UTF-8

  bool operator==(const CharPlace&) const = default;
  CharPlace next(uint8_t byte) const;
};

inline CharPlace CharPlace::next(uint8_t byte) const {
  if (is_broken) return *this;
  if (num_left > 0) {
    const bool fits = byte >= first && byte <= last;
    return {.num_left = static_cast<uint8_t>(num_left - 1), .is_broken = !fits};
  }
  if (byte < 0x80) return {};
  if (byte < 0xC2 || byte > 0xF4) return {.is_broken = true};
  // RFC 3629, section 4: no longer forms than needed, no surrogates, nothing above U+10FFFF.
  CharPlace place{.num_left = static_cast<uint8_t>(byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3)};
  if (byte == 0xE0) place.first = 0xA0;
  if (byte == 0xED) place.last = 0x9F;
  if (byte == 0xF0) place.first = 0x90;
  if (byte == 0xF4) place.last = 0x8F;
  return place;
}

}  // namespace fathom::grammar
