#include "cpu/fast/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <vector>

namespace fathom::cpu {
namespace {

TEST(ThreadPoolTest, runs_every_task_once_in_every_one_of_many_short_jobs) {
  for (const int threads : {1, 2, 4, 7}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.num_threads(), threads);
    // Not atomic: the pool must order tasks of one job after the last job.
    std::vector<int> hits(97);
    for (int job = 1; job <= 3000; ++job) {
      const int64_t tasks = job % 98;
      pool.run(tasks, [&](int64_t i, int) { ++hits[static_cast<size_t>(i)]; });
      if (job % 500 == 0) {
        for (size_t i = 0; i < hits.size(); ++i) {
          int expected = 0;
          for (int j = 1; j <= job; ++j) expected += j % 98 > static_cast<int>(i);
          ASSERT_EQ(hits[i], expected) << "task " << i << " after job " << job;
        }
      }
    }
  }
}

TEST(ThreadPoolTest, gives_each_worker_its_own_number) {
  ThreadPool pool(4);
  std::vector<int64_t> sums(4);  // one slot per worker, unsynchronised on purpose
  for (int job = 0; job < 200; ++job)
    pool.run(64, [&](int64_t i, int worker) { sums[static_cast<size_t>(worker)] += i; });
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), int64_t{0}), 200 * 63 * 64 / 2);
}

TEST(ThreadPoolTest, wakes_workers_that_have_parked) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    // Longer than the workers spin.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> inside{0};
    // Ends only when all three are in the job at once, so a worker that slept on would hang the test.
    pool.run(3, [&](int64_t, int) {
      inside.fetch_add(1);
      while (inside.load() < 3) std::this_thread::yield();
    });
    EXPECT_EQ(inside.load(), 3);
  }
}

TEST(ThreadPoolTest, starts_and_stops_without_work) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(1 + i % 5);
}

TEST(ThreadPoolTest, does_nothing_for_no_tasks) {
  ThreadPool pool(4);
  pool.run(0, [](int64_t, int) { FAIL(); });
}

}  // namespace
}  // namespace fathom::cpu
