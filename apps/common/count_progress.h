#pragma once
// Shows how many of a known number of things are done, how fast, about when the rest will be, and what is under way; as
// live lines are shown (apps/common/live_line.h).
//
//   CountProgress progress("questions", 200);
//   for (...) { progress.start("question 7"); ...; progress.add(); }
//
// Thread-safe.

#include <cstdint>
#include <functional>
#include <string>

#include "apps/common/live_line.h"
#include "base/mutex.h"

namespace fathom::apps {

// "104 of 200 questions, 13.1/s, about 7 s left", "2 of 15 decode steps, 4.0 s each, about 52 s left",
// "0 of 15 decode steps, 4 s so far". `done_seconds` had passed when the last of `done` was.
std::string count_text(const std::string& what, int64_t done, int64_t total, double seconds,
                       double done_seconds);

class CountProgress {
 public:
  CountProgress(std::string what, int64_t total);

  // Names what is under way, until the next add().
  void start(std::string now);
  void add(int64_t count = 1);
  // Runs what writes other output: the line is away meanwhile.
  void beside(const std::function<void()>& output) { line_.beside(output); }
  void finish() { line_.finish(); }

 private:
  std::string text(double seconds);

  const std::string what_;
  const int64_t total_;
  Mutex mutex_;
  int64_t done_ FATHOM_GUARDED_BY(mutex_) = 0;
  double done_seconds_ FATHOM_GUARDED_BY(mutex_) = 0;
  std::string now_ FATHOM_GUARDED_BY(mutex_);
  LiveLine line_;  // the last: its thread reads the others
};

}  // namespace fathom::apps
