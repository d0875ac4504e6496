// Threads of libraries end before the process takes the libraries apart.

#include "cuda/runtime/background.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <latch>
#include <thread>

namespace fathom::cuda {
namespace {

using std::chrono::milliseconds;

TEST(Background, gives_what_the_work_returns) {
  Background background;
  EXPECT_EQ(background.start([] { return 7; }).get(), 7);
  background.wait();
}

TEST(Background, waits_for_all_that_was_started_and_for_what_that_started) {
  Background background;
  std::atomic<int> ended = 0;
  for (int i = 0; i < 5; ++i)
    background.start([&] {
      background.start([&] {
        std::this_thread::sleep_for(milliseconds(20));
        ++ended;
      });
      ++ended;
    });
  background.wait();
  EXPECT_EQ(ended, 10);
  background.wait();  // nothing is left
}

TEST(Background, waits_for_threads_whose_results_nobody_asked_for_yet) {
  Background background;
  std::latch may_end(1);
  bool has_ended = false;
  background.start([&] {
    may_end.wait();
    has_ended = true;
  });
  background.start([] {});  // leaves the one that still runs where it is
  may_end.count_down();
  background.wait();
  EXPECT_TRUE(has_ended);
}

TEST(Background, has_any_number_of_waiters) {
  Background background;
  std::latch may_end(1);
  std::atomic<bool> has_ended = false;
  background.start([&] {
    may_end.wait();
    std::this_thread::sleep_for(milliseconds(50));
    has_ended = true;
  });
  const auto wait = [&] {
    may_end.wait();
    background.wait();
    EXPECT_TRUE(has_ended);
  };
  std::jthread one(wait), other(wait);
  may_end.count_down();
}

// What a library leaves to exit(): its end takes a while, in which a thread would still find it gone.
class Library {
 public:
  ~Library() {
    gone = true;
    std::this_thread::sleep_for(milliseconds(500));
  }
  static inline std::atomic<bool> gone = false;
};

[[noreturn]] void end_while_a_library_is_opened() {
  static const Library library;
  static Background& background = *new Background;
  background.start([] {
    std::this_thread::sleep_for(milliseconds(100));
    if (Library::gone) _exit(9);
  });
  background.wait();
  std::exit(0);
}

TEST(BackgroundDeathTest, a_process_that_waited_ends_well) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(end_while_a_library_is_opened(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace fathom::cuda
