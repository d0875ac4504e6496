#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/text/golden_file.h"

namespace fathom::text {
namespace {

int32_t id_of_byte(const Tokenizer& tokenizer, const std::string& spelling) {
  return tokenizer.token_id(spelling).value();
}

TEST(Detokenizer, holds_back_a_character_until_it_is_whole) {
  const Tokenizer tokenizer = v3_tokenizer();
  Detokenizer detokenizer(tokenizer);
  // U+1F642 by single bytes, f0 9f 99 82, as the alphabet spells them.
  EXPECT_EQ(detokenizer.push(id_of_byte(tokenizer, "\u00f0")), "");
  EXPECT_EQ(detokenizer.push(id_of_byte(tokenizer, "\u0141")), "");
  EXPECT_EQ(detokenizer.push(id_of_byte(tokenizer, "\u013b")), "");
  EXPECT_EQ(detokenizer.push(id_of_byte(tokenizer, "\u0124")), "\U0001f642");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, ends_an_unfinished_character_with_one_replacement) {
  const Tokenizer tokenizer = v3_tokenizer();
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(id_of_byte(tokenizer, "\u00f0")), "");
  EXPECT_EQ(detokenizer.push(id_of_byte(tokenizer, "\u0141")), "");
  EXPECT_EQ(detokenizer.push(id_of_byte(tokenizer, "a")), "\ufffda");
  EXPECT_EQ(detokenizer.push(id_of_byte(tokenizer, "\u00f0")), "");
  EXPECT_EQ(detokenizer.finish(), "\ufffd");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, passes_over_special_tokens_when_told_to) {
  const Tokenizer tokenizer = v3_tokenizer();
  const int32_t think = tokenizer.token_id("<think>").value();
  EXPECT_EQ(Detokenizer(tokenizer).push(think), "");
  EXPECT_EQ(Detokenizer(tokenizer, false).push(think), "<think>");
}

// A million random tokens of each vocabulary, in sequences of all lengths.
class DetokenizerProperty : public testing::TestWithParam<bool> {};

TEST_P(DetokenizerProperty, pieces_joined_are_the_text_at_once) {
  constexpr uint32_t kSeed = 11;
  const Tokenizer tokenizer = GetParam() ? v3_tokenizer() : v2_tokenizer();
  std::mt19937 random(kSeed);
  // Of part characters, which random ids alone seldom bring together.
  std::vector<int32_t> byte_ids;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!is_valid_utf8(tokenizer.token_bytes(id))) byte_ids.push_back(id);
  }
  ASSERT_GT(byte_ids.size(), 100u);
  size_t num_tokens = 0;
  while (num_tokens < 1'000'000) {
    std::vector<int32_t> ids(random() % 2000);
    for (int32_t& id : ids) {
      const bool any = random() % 3 == 0;
      id =
          any ? static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer.vocab_size() + 2)) -
                    1
              : byte_ids[random() % byte_ids.size()];
    }
    num_tokens += ids.size();
    for (const bool skip : {true, false}) {
      Detokenizer detokenizer(tokenizer, skip);
      std::string joined;
      for (const int32_t id : ids) {
        const std::string piece = detokenizer.push(id);
        ASSERT_TRUE(is_valid_utf8(piece));
        joined += piece;
      }
      joined += detokenizer.finish();
      ASSERT_EQ(joined, tokenizer.decode(ids, skip)) << "seed " << kSeed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DetokenizerProperty, testing::Bool(),
                         [](const auto& info) { return info.param ? "v3" : "v2"; });

}  // namespace
}  // namespace fathom::text
