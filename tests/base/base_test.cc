#include <gtest/gtest.h>

#include "base/failpoint.h"
#include "base/log.h"
#include "base/result.h"
#include "base/rng.h"

namespace fathom {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("odd");
  return value / 2;
}

TEST(Result, holds_a_value_or_an_error) {
  EXPECT_EQ(*half(4), 2);
  EXPECT_EQ(half(3).error().code, ErrorCode::kInvalidArgument);
  EXPECT_DEATH(*half(3), "odd");
}

TEST(Check, prints_the_message_and_aborts) {
  EXPECT_DEATH(FATHOM_CHECK(1 > 2, "one is " << 1), "1 > 2: one is 1");
}

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(Rng, matches_the_published_philox_vectors) {
  EXPECT_EQ(philox(0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(uniform(0), 0.0f);
  EXPECT_LT(uniform(~uint32_t{0}), 1.0f);
}

TEST(Failpoint, fires_once_at_the_nth_hit) {
  EXPECT_FALSE(failpoint("a"));
  arm_failpoint("a", 2);
  EXPECT_FALSE(failpoint("a"));
  EXPECT_FALSE(failpoint("b"));
  EXPECT_TRUE(failpoint("a"));
  EXPECT_FALSE(failpoint("a"));
  disarm_failpoints();
}

TEST(Log, escapes_values_into_one_line) {
  testing::internal::CaptureStderr();
  FATHOM_LOG(kInfo, "test", "two words", {{"text", "a\nb \"c\""}, {"n", 3}});
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find(R"(module=test event="two words" text="a\x0ab \"c\"" n=3)"),
            std::string::npos)
      << line;
}

TEST(Log, lets_no_value_reach_the_terminal_as_a_control) {
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    set_log_format(format);
    for (int c = 0; c < 0x20; ++c) {
      testing::internal::CaptureStderr();
      FATHOM_LOG(kInfo, "test", "e",
                 {{"id", "a" + std::string(1, static_cast<char>(c)) + "[31mb"}});
      const std::string line = testing::internal::GetCapturedStderr();
      EXPECT_EQ(line.find(static_cast<char>(c)), c == '\n' ? line.size() - 1 : std::string::npos)
          << "control " << c << ": " << line;
    }
  }
  set_log_format(LogFormat::kText);
}

}  // namespace
}  // namespace fathom
