#pragma once
// What a command is doing, on standard error for as long as it takes: on a terminal one line that is redrawn, else a
// line every few seconds. A thread of its own writes it, so that one long piece of work is not silent.
//
//   LiveLine line([&](double seconds) { return text_of(num_done.load(), seconds); });
//   line.beside([&] { print(row); });
//
//   const LiveLine work = long_work("measuring the read bandwidth");
//
// Says nothing at --log-level error. Thread-safe.

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace fathom::apps {

// "12 s", "2:05 min"
std::string format_seconds(double seconds);
// "measuring the read bandwidth, 8 s so far"
std::string so_far_text(const std::string& what, double seconds);

class LiveLine {
 public:
  // Asked by the thread for what is true now, with the seconds since the start.
  using Text = std::function<std::string(double seconds)>;
  // Where no line is redrawn, in place of the text: for lines of the log. Those that are shown come between the lines
  // of others, so that with `log` nothing is redrawn at --log-level info and below.
  using Log = std::function<void(double seconds)>;
  // Off a terminal a line comes so long after the last one of all live lines, so that many short pieces of work are not
  // silent either; after a sixtieth of the time so far where that is longer.
  static constexpr double kLineSeconds = 3;

  explicit LiveLine(Text text, Log log = {}, double line_seconds = kLineSeconds);
  ~LiveLine();
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  // Runs what writes other output: the line is away meanwhile.
  void beside(const std::function<void()>& output);
  // Since the start.
  double seconds() const { return watch_.seconds(); }
  // Takes it away for good, as the destructor does.
  void finish();
  // Says it once more and leaves it there: the last word.
  void keep();

 private:
  void run();
  std::chrono::duration<double> time_to_next() const;
  void say() FATHOM_REQUIRES(mutex_);
  void erase() FATHOM_REQUIRES(mutex_);
  void end_thread();

  const Text text_;
  const Log log_;
  const bool silent_, redraw_;
  const double line_seconds_;
  const Stopwatch watch_;
  Mutex mutex_;
  CondVar ended_;
  bool ending_ FATHOM_GUARDED_BY(mutex_) = false, drawn_ FATHOM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Of a piece of work of which nobody knows how far it is.
LiveLine long_work(const std::string& what);

}  // namespace fathom::apps
