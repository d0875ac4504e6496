// Ids and text are those of Hugging Face `tokenizers`, and for Kimi's form those of `tiktoken`, string by string.
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/text/golden_file.h"
#include "text/detokenizer.h"

namespace fathom::text {
namespace {

std::string printable(const std::string& text) { return json::dump(json::Value(text)); }

class TokenizerGolden : public testing::TestWithParam<const char*> {
 protected:
  Tokenizer tokenizer() const {
    if (name() == "kimi") return kimi_tokenizer();
    return name() == "v3" ? v3_tokenizer() : v2_tokenizer();
  }
  GoldenFile golden() const { return read_golden_file(name() + ".golden"); }
  std::string name() const { return GetParam(); }
};

TEST_P(TokenizerGolden, encodes_every_string_to_the_same_ids) {
  const Tokenizer tokenizer = this->tokenizer();
  const GoldenFile golden = this->golden();
  ASSERT_GE(golden.encodings.size(), name() == "kimi" ? 20'000u : 60'000u);
  int failures = 0;
  for (const GoldenEncoding& expected : golden.encodings) {
    const std::vector<int32_t> ids = tokenizer.encode(expected.text);
    const std::vector<int32_t> plain = tokenizer.encode(expected.text, {.parse_special = false});
    EXPECT_EQ(ids, expected.ids) << printable(expected.text);
    EXPECT_EQ(plain, expected.plain_ids) << printable(expected.text);
    failures += ids != expected.ids || plain != expected.plain_ids;
    ASSERT_LT(failures, 10);
  }
}

TEST_P(TokenizerGolden, decodes_its_own_ids_to_the_text) {
  const Tokenizer tokenizer = this->tokenizer();
  for (const GoldenEncoding& expected : golden().encodings) {
    ASSERT_EQ(tokenizer.decode(expected.plain_ids, true), expected.text);
  }
}

TEST_P(TokenizerGolden, decodes_random_ids_to_the_same_text) {
  const Tokenizer tokenizer = this->tokenizer();
  const GoldenFile golden = this->golden();
  ASSERT_GE(golden.decodings.size(), 5'000u);
  for (const GoldenDecoding& expected : golden.decodings) {
    ASSERT_EQ(tokenizer.decode(expected.ids, true), expected.without_special)
        << testing::PrintToString(expected.ids);
    ASSERT_EQ(tokenizer.decode(expected.ids, false), expected.with_special)
        << testing::PrintToString(expected.ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerGolden, testing::Values("v3", "v2", "kimi"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fathom::text
