#include "base/base64.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

// RFC 4648, section 10.
TEST(Base64, has_the_standards_examples) {
  const std::pair<const char*, const char*> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : examples) {
    EXPECT_EQ(encode_base64(bytes), text);
    EXPECT_EQ(decode_base64(text), bytes);
  }
  EXPECT_EQ(decode_base64("Zg"), "f");
  EXPECT_EQ(decode_base64("Z g="), std::nullopt);
}

TEST(Base64, takes_every_byte_back) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::string some = bytes.substr(bytes.size() - size);
    EXPECT_EQ(decode_base64(encode_base64(some)), some);
  }
}

}  // namespace
}  // namespace fathom
