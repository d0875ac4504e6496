#pragma once
// Shows how far loading has come: on a terminal one line that is redrawn, else a log line per quarter.
//
//   LoadProgressBar bar("Loading weights");
//   options.on_progress = [&](const weights::LoadProgress& p) { bar.update(p); };
//   ... bar.finish();
//
// One thread at a time calls it. Writes to standard error.

#include <cstdint>
#include <string>

#include "weights/loader.h"

namespace fathom::apps {

// Of the bytes; 1 when there are none to load.
double fraction_done(const weights::LoadProgress& progress);

// "Loading weights  [#####     ]  52%   6.8/13.1 MB   1.2 GB/s   3 s left", for a terminal.
std::string progress_line(const std::string& title, const weights::LoadProgress& progress);

// "512 B", "13.1 MB", "671.0 GB": three significant digits or so, decimal units.
std::string format_bytes(int64_t bytes);

class LoadProgressBar {
 public:
  explicit LoadProgressBar(std::string title);
  void update(const weights::LoadProgress& progress);
  // Ends the redrawn line, so that other output starts on a fresh one.
  void finish();

 private:
  void log_quarter(const weights::LoadProgress& progress);

  std::string title_;
  bool redraw_;
  bool drawn_ = false;
  int64_t next_quarter_ = 1;
};

}  // namespace fathom::apps
