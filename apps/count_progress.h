#pragma once
// Shows how many of a known number of things are done, how fast, and when the rest will be: on a terminal one line that
// is redrawn, else a line every ten seconds.
//
//   CountProgress progress("questions", 200);
//   for (...) { ...; progress.add(); }
//   progress.finish();
//
// Writes to standard error. Thread-safe.

#include <cstdint>
#include <mutex>
#include <string>

#include "base/clock.h"

namespace fathom::apps {

// "12 s", "2:05 min"
std::string format_seconds(double seconds);
// "104 of 200 questions, 13.1/s, 7 s left"
std::string count_text(const std::string& what, int64_t done, int64_t total, double seconds);

class CountProgress {
 public:
  CountProgress(std::string what, int64_t total);
  ~CountProgress() { finish(); }
  CountProgress(const CountProgress&) = delete;
  CountProgress& operator=(const CountProgress&) = delete;

  void add(int64_t count = 1);
  // Takes the line away, for other output; the next add() draws it again.
  void clear();
  void finish() { clear(); }

 private:
  const std::string what_;
  const int64_t total_;
  const bool redraw_;
  std::mutex mutex_;
  Stopwatch watch_;
  int64_t done_ = 0;
  double next_seconds_;
  bool drawn_ = false;
};

}  // namespace fathom::apps
