#include "apps/engine/progress.h"

#include <gtest/gtest.h>

namespace fathom::apps {
namespace {

TEST(Progress, line_shows_share_bytes_speed_and_time_left) {
  EXPECT_EQ(
      progress_line("Loading",
                    {.bytes_done = 3'000'000'000, .bytes_total = 12'000'000'000, .seconds = 1.5}),
      "Loading  [######                  ]  25%  3.0 GB of 12.0 GB  2.0 GB/s  4 s left");
}

TEST(Progress, line_is_sound_at_both_ends) {
  EXPECT_EQ(progress_line("L", {.bytes_done = 0, .bytes_total = 10, .seconds = 0}),
            "L  [                        ]   0%  0 B of 10 B  0 B/s");
  EXPECT_EQ(progress_line("L", {.bytes_done = 10, .bytes_total = 10, .seconds = 1}),
            "L  [########################] 100%  10 B of 10 B  10 B/s");
  EXPECT_EQ(progress_line("L", {}), "L  [########################] 100%  0 B of 0 B  0 B/s");
}

TEST(Progress, bytes_have_decimal_units) {
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 kB");
  EXPECT_EQ(format_bytes(13'120'776), "13.1 MB");
  EXPECT_EQ(format_bytes(999'960), "1.0 MB");
  EXPECT_EQ(format_bytes(671'000'000'000), "671.0 GB");
}

}  // namespace
}  // namespace fathom::apps
