#include "text/pieces/utf8.h"

#include <gtest/gtest.h>

#include "text/byte_alphabet.h"

namespace fathom::text {
namespace {

std::string lossy(const std::string& bytes) {
  std::string text;
  Utf8Lossy utf8;
  utf8.append(bytes, text);
  utf8.finish(text);
  return text;
}

const std::string kReplaced(kReplacementCharacter);

TEST(Utf8, replaces_each_maximal_subpart_by_one_character) {
  // The example of the Unicode standard, table 3-11.
  EXPECT_EQ(lossy("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"),
            kReplaced + kReplaced + kReplaced + kReplaced + "\x41");
  EXPECT_EQ(lossy("\xed\xa0\x80"), kReplaced + kReplaced + kReplaced);
  EXPECT_EQ(lossy("\xc0\xaf\xf5\x80"), kReplaced + kReplaced + kReplaced + kReplaced);
  EXPECT_EQ(lossy("\xf4\x90\x80\x80"), kReplaced + kReplaced + kReplaced + kReplaced);
  EXPECT_EQ(lossy("a\xf0\x9f\x98"), "a" + kReplaced);
  EXPECT_EQ(lossy("\xf4\x8f\xbf\xbf\xef\xbf\xbf"), "\xf4\x8f\xbf\xbf\xef\xbf\xbf");
}

TEST(Utf8, gives_the_same_text_however_the_bytes_are_cut) {
  const std::string bytes =
      "a\xf0\x9f\x98\x80\xe1\x80\xe4\xb8\xad\xc3\xed\xa0\x80\xf0\x91\xff.\xe2\x82";
  const std::string expected = lossy(bytes);
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      std::string text;
      Utf8Lossy utf8;
      utf8.append(bytes.substr(0, first), text);
      utf8.append(bytes.substr(first, second - first), text);
      utf8.append(bytes.substr(second), text);
      utf8.finish(text);
      ASSERT_EQ(text, expected) << first << " " << second;
    }
  }
}

TEST(Utf8, accepts_exactly_the_scalar_values) {
  for (uint32_t c = 0x80; c < 0x110000; c += 7) {
    std::string bytes;
    if (c >= 0x10000) bytes += static_cast<char>(0xf0 | c >> 18);
    if (c >= 0x800)
      bytes += static_cast<char>((c >= 0x10000 ? 0x80 : 0xe0) |
                                 (c >> 12 & (c >= 0x10000 ? 0x3f : 0x0f)));
    bytes += static_cast<char>((c >= 0x800 ? 0x80 : 0xc0) | (c >> 6 & 0x3f));
    bytes += static_cast<char>(0x80 | (c & 0x3f));
    const bool is_surrogate = c >= 0xd800 && c <= 0xdfff;
    ASSERT_EQ(is_valid_utf8(bytes), !is_surrogate) << c;
    if (!is_surrogate) {
      ASSERT_EQ(next_utf8(bytes.data(), bytes.data() + bytes.size()).code_point, c);
    }
  }
}

TEST(ByteAlphabet, spells_every_byte_and_reads_it_back) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = spelling_of_byte(static_cast<uint8_t>(byte));
    ASSERT_EQ(bytes_of_spelling(spelling), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(spelling_of_byte(' '), "\u0120");
  EXPECT_EQ(bytes_of_spelling("\u0120the"), " the");
}

TEST(ByteAlphabet, knows_which_characters_spell_nothing) {
  for (const char* text : {"a b", "\uff5c", "\u0144", "\xff", "\xad", "\u00ad", "\n"}) {
    EXPECT_EQ(bytes_of_spelling(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace fathom::text
