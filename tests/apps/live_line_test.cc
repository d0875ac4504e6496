#include "apps/common/live_line.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "apps/common/count_progress.h"
#include "apps/engine/progress.h"
#include "base/log.h"

namespace fathom::apps {
namespace {

using namespace std::chrono_literals;

constexpr double kShort = 0.02;
constexpr auto kPatience = 20s;

template <class Condition>
bool comes_true(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
  return condition();
}

// Standard error is a file here, as where a program writes into a log.
class LiveLineTest : public testing::Test {
 protected:
  void SetUp() override { testing::internal::CaptureStderr(); }
  void TearDown() override {
    if (!is_read_) errors();
    set_log_level(before_);
  }
  std::string errors() {
    is_read_ = true;
    return testing::internal::GetCapturedStderr();
  }

 private:
  const LogLevel before_ = log_level();
  bool is_read_ = false;
};

TEST_F(LiveLineTest, one_long_piece_of_work_is_not_silent) {
  std::atomic<int> num_asked = 0;
  bool was_asked = false;
  {
    const LiveLine line([&](double) { return "said " + std::to_string(++num_asked); }, {}, kShort);
    was_asked = comes_true([&] { return num_asked >= 3; });
  }
  EXPECT_TRUE(was_asked);
  EXPECT_TRUE(errors().starts_with("said 1\nsaid 2\nsaid 3\n"));
}

TEST_F(LiveLineTest, many_short_pieces_are_not_silent_either) {
  std::atomic<int> num_asked = 0;
  EXPECT_TRUE(comes_true([&] {
    const LiveLine line([&](double) { return "said " + std::to_string(++num_asked); }, {}, kShort);
    std::this_thread::sleep_for(5ms);
    return num_asked >= 2;
  }));
}

TEST_F(LiveLineTest, at_level_error_nothing_is_said) {
  set_log_level(LogLevel::kError);
  std::atomic<int> num_asked = 0;
  {
    LiveLine line([&](double) { return "said " + std::to_string(++num_asked); }, {}, kShort);
    std::this_thread::sleep_for(10 * std::chrono::duration<double>(kShort));
    line.keep();
  }
  EXPECT_EQ(num_asked, 0);
  EXPECT_EQ(errors(), "");
}

TEST_F(LiveLineTest, the_last_word_is_said_at_once) {
  LiveLine line([](double) { return "all is there"; });
  line.keep();
  EXPECT_EQ(errors(), "all is there\n");
}

TEST_F(LiveLineTest, weights_of_which_nothing_was_told_are_not_said_to_be_there) {
  set_log_level(LogLevel::kInfo);
  LoadProgressBar("Loading weights").finish();
  const std::string text = errors();
  EXPECT_NE(text.find("phase=\"Loading weights\""), std::string::npos) << text;
  EXPECT_EQ(text.find("percent"), std::string::npos) << text;
}

TEST_F(LiveLineTest, weights_that_are_there_are_said_to_be) {
  set_log_level(LogLevel::kInfo);
  LoadProgressBar bar("Loading weights");
  bar.update({.bytes_done = 10, .bytes_total = 10, .seconds = 2});
  bar.finish();
  const std::string text = errors();
  EXPECT_NE(text.find("percent=100 bytes=10 bytes_total=10"), std::string::npos) << text;
}

TEST(CountText, says_only_what_is_known) {
  EXPECT_EQ(count_text("steps", 0, 15, 4.2, 0), "0 of 15 steps, 4 s so far");
  EXPECT_EQ(count_text("steps", 2, 15, 8, 8), "2 of 15 steps, 4.0 s each, about 52 s left");
  EXPECT_EQ(count_text("questions", 104, 200, 8, 8),
            "104 of 200 questions, 13.0/s, about 7 s left");
  EXPECT_EQ(count_text("rows", 1000, 2000, 2, 2), "1000 of 2000 rows, 500/s, about 2 s left");
  // A long one is under way: the speed stays that of the ends.
  EXPECT_EQ(count_text("rows", 2, 4, 15, 10), "2 of 4 rows, 5.0 s each, about 5 s left");
  EXPECT_EQ(count_text("rows", 2, 4, 30, 10), "2 of 4 rows, 5.0 s each, about 0 s left");
}

TEST(FormatSeconds, has_minutes_where_there_are_some) {
  EXPECT_EQ(format_seconds(99.4), "99 s");
  EXPECT_EQ(format_seconds(125), "2:05 min");
}

}  // namespace
}  // namespace fathom::apps
