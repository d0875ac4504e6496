#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/sanitized.h"

namespace fathom::text {
namespace {

constexpr int kRandomCases = kIsSanitized ? 100'000 : 1'200'000;

struct Found {
  std::string text;
  int matched = -1;
  bool operator==(const Found&) const = default;
};

// What the matcher must find, by looking at the whole text: the smallest end, then the longest string, then
// the first of equal ones.
Found search(const std::vector<std::string>& stops, const std::string& text) {
  size_t best_end = std::string::npos;
  Found best{.text = text};
  for (size_t i = 0; i < stops.size(); ++i) {
    const size_t at = text.find(stops[i]);
    if (at == std::string::npos) continue;
    const size_t end = at + stops[i].size();
    const bool is_longer =
        best.matched >= 0 && stops[i].size() > stops[static_cast<size_t>(best.matched)].size();
    if (end < best_end || (end == best_end && is_longer)) {
      best_end = end;
      best = {.text = text.substr(0, at), .matched = static_cast<int>(i)};
    }
  }
  return best;
}

// Pushes the text in pieces that end at `cuts`; fails when a byte comes out that the whole search leaves in.
Found push_in_pieces(const std::shared_ptr<const StopStrings>& stops, const std::string& text,
                     const std::vector<size_t>& cuts) {
  StopMatcher matcher(stops);
  std::string out;
  size_t begin = 0;
  for (const size_t end : cuts) {
    const size_t size_before = out.size();
    const bool done = matcher.push(std::string_view(text).substr(begin, end - begin), out);
    EXPECT_GE(out.size(), size_before);
    begin = end;
    if (done) return {.text = out, .matched = matcher.matched()};
  }
  matcher.finish(out);
  return {.text = out, .matched = matcher.matched()};
}

std::shared_ptr<const StopStrings> make_stops(std::vector<std::string> strings) {
  return std::make_shared<const StopStrings>(std::move(strings));
}

TEST(StopMatcher, passes_everything_on_when_there_are_no_stop_strings) {
  StopMatcher matcher(nullptr);
  std::string out;
  EXPECT_FALSE(matcher.push("anything", out));
  EXPECT_EQ(out, "anything");
}

TEST(StopMatcher, holds_back_the_beginning_of_a_stop_string_and_nothing_else) {
  StopMatcher matcher(make_stops({"Question"}));
  std::string out;
  EXPECT_FALSE(matcher.push("42\nQuest", out));
  EXPECT_EQ(out, "42\n");
  EXPECT_EQ(matcher.num_held_bytes(), 5u);
  EXPECT_FALSE(matcher.push(" over", out));
  EXPECT_EQ(out, "42\nQuest over");
}

TEST(StopMatcher, lets_held_text_out_at_the_end) {
  StopMatcher matcher(make_stops({"abc"}));
  std::string out;
  EXPECT_FALSE(matcher.push("xab", out));
  EXPECT_EQ(out, "x");
  matcher.finish(out);
  EXPECT_EQ(out, "xab");
}

TEST(StopMatcher, the_string_that_is_complete_first_wins_even_inside_a_longer_one) {
  StopMatcher matcher(make_stops({"abcd", "bc"}));
  std::string out;
  EXPECT_TRUE(matcher.push("xabcd", out));
  EXPECT_EQ(matcher.matched(), 1);
  EXPECT_EQ(out, "xa");
}

TEST(StopMatcher, of_strings_that_end_together_the_longest_wins) {
  StopMatcher matcher(make_stops({"c", "abc", "bc"}));
  std::string out;
  EXPECT_TRUE(matcher.push("xabc", out));
  EXPECT_EQ(matcher.matched(), 1);
  EXPECT_EQ(out, "x");
}

TEST(StopMatcher, falls_back_to_a_shorter_beginning_when_a_longer_one_breaks_off) {
  StopMatcher matcher(make_stops({"aab"}));
  std::string out;
  EXPECT_FALSE(matcher.push("aaaa", out));
  EXPECT_EQ(out, "aa");
  EXPECT_TRUE(matcher.push("b", out));
  EXPECT_EQ(out, "aa");
}

TEST(StopMatcher, finds_what_a_search_of_the_whole_text_finds_however_it_is_cut) {
  constexpr uint64_t kSeed = 20261121;
  std::mt19937_64 random(kSeed);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  for (int run = 0; run < kRandomCases; ++run) {
    const size_t alphabet = 2 + below(3);
    const auto random_text = [&](size_t length) {
      std::string text(length, 'a');
      for (char& c : text) c = static_cast<char>('a' + below(alphabet));
      return text;
    };
    std::vector<std::string> stops(1 + below(4));
    for (std::string& stop : stops) stop = random_text(1 + below(5));
    const std::string text = random_text(below(24));
    std::vector<size_t> cuts;
    for (size_t at = 0; at < text.size();)
      cuts.push_back(at = std::min(text.size(), at + below(6)));
    const Found found = push_in_pieces(make_stops(stops), text, cuts);
    ASSERT_EQ(found, search(stops, text))
        << "seed " << kSeed << ", run " << run << ", text " << text;
  }
}

TEST(StopMatcher, never_shows_a_byte_that_belongs_to_the_stop_string) {
  std::mt19937_64 random(7);
  for (int run = 0; run < 20'000; ++run) {
    std::string text(30, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    const std::vector<std::string> stops{"abba", "bbb"};
    const Found expected = search(stops, text);
    StopMatcher matcher(make_stops(stops));
    std::string out;
    for (const char c : text) {
      const bool done = matcher.push(std::string_view(&c, 1), out);
      ASSERT_LE(out.size(), expected.text.size()) << text;
      if (done) break;
    }
  }
}

TEST(StopMatcher, sixteen_strings_of_256_equal_bytes_stay_linear) {
  std::vector<std::string> strings;
  for (size_t i = 0; i < 16; ++i)
    strings.push_back(std::string(255, 'a') + static_cast<char>('b' + i));
  StopMatcher matcher(make_stops(strings));
  std::string out;
  const std::string text(1 << 20, 'a');
  EXPECT_FALSE(matcher.push(text, out));
  EXPECT_EQ(out.size(), text.size() - 255);
  EXPECT_TRUE(matcher.push("q", out));
  EXPECT_EQ(matcher.matched(), 15);
}

}  // namespace
}  // namespace fathom::text
