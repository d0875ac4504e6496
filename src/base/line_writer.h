#pragma once
// Writes lines to a file descriptor from a thread of its own, so that a reader that stalls (a full pipe, a log
// driver, a stopped terminal) holds up nobody who writes a line.
//
//   LineWriter writer(STDERR_FILENO, {.lost_line = [](int64_t n) { ... }});
//   writer.write("one line\n");                             // returns at once; drops the line when the queue is full
//   writer.flush(std::chrono::seconds(1));                  // false: the reader stalls
//
// Lines come out whole and in the order of write(). Lines that were dropped, or that could not be written, are
// counted; a line of the caller's
// making names how many, where they are missing, at most once in every `report_interval`.
// Thread-safe. The destructor waits for the thread, and so for the reader: a program that must end whatever its
// reader does leaves the writer behind.

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "base/mutex.h"

namespace fathom {

class LineWriter {
 public:
  struct Options {
    int64_t max_bytes = 512 << 10;  // of lines that wait
    // The line that says that so many were dropped, with its line break.
    std::function<std::string(int64_t num_lines)> lost_line;
    std::chrono::milliseconds report_interval{60'000};
  };

  // fd stays the caller's and is neither closed nor made non-blocking, since other programs may share it.
  LineWriter(int fd, Options options);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // `line` has its line break. False: dropped and counted.
  bool write(std::string line);
  // Waits until what was written before has left, at most so long.
  bool flush(std::chrono::milliseconds limit);
  int64_t num_dropped() const;

 private:
  void run();
  // True: it appended one.
  bool take_report(std::deque<std::string>& lines) FATHOM_REQUIRES(mutex_);

  const int fd_;
  const Options options_;
  mutable Mutex mutex_;
  CondVar has_work_, is_idle_;
  std::deque<std::string> lines_ FATHOM_GUARDED_BY(mutex_);
  // Of lines_ and of what the thread has taken of them.
  int64_t waiting_bytes_ FATHOM_GUARDED_BY(mutex_) = 0;
  int64_t num_dropped_ FATHOM_GUARDED_BY(mutex_) = 0, num_reported_ FATHOM_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point next_report_ FATHOM_GUARDED_BY(mutex_){};
  bool stops_ FATHOM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Writes all of `text`, waiting for the reader. False: it gave up on an error, such as a disk without room.
bool write_whole(int fd, const std::string& text);

}  // namespace fathom
