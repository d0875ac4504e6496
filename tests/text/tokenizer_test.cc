#include "text/tokenizer.h"
#include "text/piece_owner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "tests/cpu_time.h"
#include "tests/text/golden_file.h"
#include "text/pieces/utf8.h"

namespace fathom::text {
namespace {

std::string bytes_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

TEST(Tokenizer, reads_a_model_folder) {
  const Tokenizer tokenizer = v3_tokenizer();
  EXPECT_EQ(tokenizer.vocab_size(), 2048);
  EXPECT_EQ(tokenizer.bos_id(), 0);
  EXPECT_EQ(tokenizer.eos_id(), 1);
  EXPECT_TRUE(tokenizer.add_bos_token());
  EXPECT_EQ(tokenizer.token_id("<think>"), 5);
  EXPECT_EQ(tokenizer.token_id("<thinking>"), std::nullopt);
  EXPECT_EQ(tokenizer.token_id(""), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(5));
  EXPECT_FALSE(tokenizer.is_special(500));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(2048));
  EXPECT_EQ(tokenizer.token_bytes(5), "<think>");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(2048), "");
}

TEST(Tokenizer, needs_no_config_beside_tokenizer_json) {
  const Tokenizer tokenizer = v2_tokenizer();
  EXPECT_EQ(tokenizer.bos_id(), -1);
  EXPECT_EQ(tokenizer.eos_id(), -1);
  EXPECT_FALSE(tokenizer.add_bos_token());
}

TEST(Tokenizer, says_which_file_is_missing) {
  const Result<Tokenizer> tokenizer = Tokenizer::load("/nonexistent");
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
  EXPECT_NE(tokenizer.error().message.find("/nonexistent: holds no tokenizer.json and"),
            std::string::npos);
}

TEST(Tokenizer, adds_bos_only_when_asked) {
  const Tokenizer tokenizer = v3_tokenizer();
  std::vector<int32_t> ids = tokenizer.encode("Hello");
  ids.insert(ids.begin(), tokenizer.bos_id());
  EXPECT_EQ(tokenizer.encode("Hello", {.add_bos = true}), ids);
  EXPECT_EQ(tokenizer.encode("", {.add_bos = true}), std::vector<int32_t>{tokenizer.bos_id()});
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(Tokenizer, makes_no_added_token_from_plain_text) {
  for (const Tokenizer& tokenizer : {v3_tokenizer(), v2_tokenizer()}) {
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const std::string text = "a " + std::string(tokenizer.token_bytes(id)) + "b";
      for (const int32_t made : tokenizer.encode(text, {.parse_special = false})) {
        ASSERT_FALSE(tokenizer.is_special(made)) << text;
      }
    }
    for (const char* control : {"<\uff5cUser\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>"}) {
      const int32_t id = tokenizer.token_id(control).value();
      EXPECT_EQ(tokenizer.encode(control), std::vector<int32_t>{id});
      const std::vector<int32_t> plain = tokenizer.encode(control, {.parse_special = false});
      EXPECT_EQ(std::count(plain.begin(), plain.end(), id), 0);
      EXPECT_EQ(tokenizer.decode(plain, true), control);
    }
  }
}

TEST(Tokenizer, takes_the_longest_added_token_and_never_splits_it) {
  const AddedTokenMatcher matcher({{"<a", 1}, {"<ab>", 2}, {"b>", 3}, {"<ab>c", 4}});
  const auto match = [&](std::string_view text, size_t from) {
    const std::optional<AddedTokenMatch> found = matcher.find(text, from);
    return found ? std::tuple{found->begin, found->end, found->id}
                 : std::tuple{size_t{0}, size_t{0}, -1};
  };
  EXPECT_EQ(match("x<ab>c", 0), (std::tuple{size_t{1}, size_t{6}, 4}));
  EXPECT_EQ(match("x<ab>d", 0), (std::tuple{size_t{1}, size_t{5}, 2}));
  EXPECT_EQ(match("x<ab", 0), (std::tuple{size_t{1}, size_t{3}, 1}));
  EXPECT_EQ(match("x<ab>", 2), (std::tuple{size_t{3}, size_t{5}, 3}));
  EXPECT_EQ(match("<<", 0), (std::tuple{size_t{0}, size_t{0}, -1}));
}

TEST(Tokenizer, gives_back_any_bytes_that_are_not_text) {
  const Tokenizer tokenizer = v3_tokenizer();
  constexpr uint32_t kSeed = 5;
  std::mt19937 random(kSeed);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 24, '\0');
    for (char& byte : bytes)
      byte = static_cast<char>(random() % 4 == 0 ? random() : 0x80 + random() % 0x80);
    const std::vector<int32_t> ids = tokenizer.encode(bytes, {.parse_special = false});
    ASSERT_EQ(bytes_of(tokenizer, ids), bytes) << "seed " << kSeed << " round " << round;
    std::string expected;
    Utf8Lossy utf8;
    utf8.append(bytes, expected);
    utf8.finish(expected);
    ASSERT_EQ(tokenizer.decode(ids, true), expected);
  }
}

TEST(Tokenizer, replaces_bytes_that_neither_utf8_nor_the_vocabulary_has) {
  const Tokenizer tokenizer = v2_tokenizer();
  EXPECT_EQ(bytes_of(tokenizer, tokenizer.encode("a\xff\xc0z\x80")), "a\ufffd\ufffdz\x80");
}

TEST(Tokenizer, gives_the_same_ids_from_every_thread_and_from_copies) {
  const Tokenizer original = v3_tokenizer();
  const Tokenizer copy = original;
  const Tokenizer other = v2_tokenizer();
  const GoldenFile golden = read_golden_file("v3.golden");
  constexpr size_t kStrings = 5'000;
  std::vector<std::thread> threads;
  std::array<int, 4> wrong{};
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kStrings; ++i) {
        const GoldenEncoding& expected = golden.encodings[(i * 7 + t) % golden.encodings.size()];
        // The other tokenizer's pieces go through the same cache in between.
        other.encode(expected.text);
        const PieceOwner owner(i % 2 == 0 ? "alice" : "bob");
        wrong[t] += (t % 2 == 0 ? original : copy).encode(expected.text) != expected.ids;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, (std::array<int, 4>{}));
}

// Each is a quarter of a megabyte; anything quadratic would run for minutes.
TEST(Tokenizer, stays_linear_on_text_made_to_be_slow) {
  for (const Tokenizer& tokenizer : {v3_tokenizer(), v2_tokenizer()}) {
    const CpuStopwatch watch;
    for (const char* unit :
         {"a", " ", "\n", "\r\n ", "!", "0", "\u4e2d", "\u3000", "\u0301", "<\uff5c", "<think",
          "<\uff5cbegin\u2581of\u2581sentence\uff5c", "\xf0\x9f", "the", " \u2003", "'"}) {
      std::string text;
      while (text.size() < (size_t{1} << 18)) text += unit;
      const std::vector<int32_t> ids = tokenizer.encode(text);
      ASSERT_EQ(bytes_of(tokenizer, ids), text) << unit;
    }
    EXPECT_LT(watch.seconds(), 60.0);
  }
}

}  // namespace
}  // namespace fathom::text
