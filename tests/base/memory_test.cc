#include "base/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/worker_pool.h"
#include "tests/sanitized.h"

namespace fathom::memory {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// In a process of its own, whose address space is what it has now and so much more. Its exit status.
int status_with_room(size_t num_bytes, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    size_t num_pages = 0;
    if (FILE* const file = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(file, "%zu", &num_pages) != 1) _exit(97);
      std::fclose(file);
    }
    const rlim_t limit = num_pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + num_bytes;
    const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
    if (setrlimit(RLIMIT_AS, &limits) != 0) _exit(98);
    _exit(body());
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Everything there is, in small pieces.
std::vector<std::unique_ptr<char[]>> take_all() {
  std::vector<std::unique_ptr<char[]>> pieces;
  pieces.reserve(1 << 16);
  const MayFail scope;
  try {
    while (true) pieces.push_back(std::make_unique<char[]>(16 << 10));
  } catch (const std::bad_alloc&) {
    return pieces;
  }
}

class MemoryFailure : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kIsSanitized)
      GTEST_SKIP() << "a sanitizer's allocator ends the program where there is no memory; to run "
                      "it: make test";
  }
};

TEST_F(MemoryFailure, what_may_fail_throws_and_what_must_succeed_takes_from_the_reserve) {
  EXPECT_EQ(status_with_room(64 * kMiB,
                             [] {
                               arm(8 * kMiB);
                               const auto hoard = take_all();
                               if (hoard.size() < 1000 || counts().num_failures == 0) return 1;
                               const MustSucceed scope;
                               const std::vector<char> needed(kMiB);
                               return counts().num_reserve_uses > 0 && needed.size() == kMiB ? 0
                                                                                             : 2;
                             }),
            0);
}

TEST_F(MemoryFailure, what_must_succeed_waits_until_others_give_back) {
  EXPECT_EQ(status_with_room(64 * kMiB,
                             [] {
                               configure_heap();
                               arm(2 * kMiB);
                               std::vector<std::unique_ptr<char[]>> hoard;
                               std::thread other;
                               {
                                 const MustSucceed scope;
                                 other = std::thread([&] {
                                   while (counts().num_waits < 5) std::this_thread::yield();
                                   hoard.clear();
                                   give_back();
                                 });
                               }
                               hoard = take_all();
                               const MustSucceed scope;
                               std::vector<std::vector<char>> needed;
                               for (int i = 0; i < 8; ++i) needed.emplace_back(kMiB);
                               other.join();
                               return counts().num_waits >= 5 ? 0 : 1;
                             }),
            0);
}

TEST_F(MemoryFailure, the_reserve_is_filled_again) {
  EXPECT_EQ(status_with_room(64 * kMiB,
                             [] {
                               arm(4 * kMiB);
                               for (int round = 0; round < 3; ++round) {
                                 const int64_t used = counts().num_reserve_uses;
                                 auto hoard = take_all();
                                 {
                                   const MustSucceed scope;
                                   const std::vector<char> needed(kMiB);
                                 }
                                 if (counts().num_reserve_uses == used) return 1 + round;
                                 hoard.clear();
                                 give_back();
                                 refill();
                               }
                               return 0;
                             }),
            0);
}

TEST_F(MemoryFailure, scopes_nest) {
  arm(0);
  // Larger than any address space: an allocation that must succeed would wait for ever.
  volatile size_t too_much = size_t{1} << 60;
  const auto fails = [&] {
    try {
      ::operator delete(::operator new(too_much));  // a call, which the compiler keeps
      return false;
    } catch (const std::bad_alloc&) {
      return true;
    }
  };
  EXPECT_TRUE(fails());
  const MustSucceed outer;
  {
    const MayFail inner;
    EXPECT_TRUE(fails());
    {
      const MustSucceed innermost;
      const std::vector<char> small(100);
      EXPECT_EQ(small.size(), 100u);
    }
    EXPECT_TRUE(fails());
  }
  std::set_new_handler(nullptr);
}

TEST(Memory, the_limit_is_positive_and_no_more_than_the_machine_has) {
  EXPECT_GT(limit_bytes(), 0);
  EXPECT_LE(limit_bytes(), static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE));
  EXPECT_EQ(status_with_room(128 * kMiB,
                             [] {
                               rlimit limit{};
                               getrlimit(RLIMIT_AS, &limit);
                               return limit_bytes() <= static_cast<int64_t>(limit.rlim_cur) ? 0 : 1;
                             }),
            0);
}

TEST(WorkerPool, a_job_that_throws_ends_alone) {
  int num_done = 0;
  {
    WorkerPool workers({.num_threads = 1});
    EXPECT_TRUE(workers.post([] { throw std::bad_alloc(); }));
    EXPECT_TRUE(workers.post([] { throw std::length_error("too long"); }));
    EXPECT_TRUE(workers.post([&] { ++num_done; }));
  }
  EXPECT_EQ(num_done, 1);
}

// One thread, held up until all jobs are there.
TEST(WorkerPool, owners_take_turns) {
  std::string order;
  std::promise<void> begin;
  {
    WorkerPool workers({.num_threads = 1});
    EXPECT_TRUE(workers.post([&] { begin.get_future().wait(); }));
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(workers.post([&] { order += 'a'; }, "alice"));
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(workers.post([&] { order += 'b'; }, "bob"));
    EXPECT_TRUE(workers.post([&] { order += 'c'; }, "carol"));
    EXPECT_GE(workers.num_queued(), 7);
    begin.set_value();
  }
  EXPECT_EQ(order, "abcabaa");
}

TEST(WorkerPool, an_owner_has_its_part_of_the_queue) {
  std::promise<void> begin;
  WorkerPool workers({.num_threads = 1, .max_queued_jobs = 4, .max_queued_jobs_per_owner = 2});
  std::promise<void> has_begun;
  EXPECT_TRUE(workers.post([&] {
    has_begun.set_value();
    begin.get_future().wait();
  }));
  has_begun.get_future().wait();
  EXPECT_TRUE(workers.post([] {}, "alice"));
  EXPECT_TRUE(workers.post([] {}, "alice"));
  EXPECT_FALSE(workers.post([] {}, "alice"));
  EXPECT_TRUE(workers.post([] {}, "bob"));
  EXPECT_TRUE(workers.post([] {}, "carol"));
  EXPECT_FALSE(workers.post([] {}, "dan"));
  begin.set_value();
}

}  // namespace
}  // namespace fathom::memory
