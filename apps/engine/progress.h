#pragma once
// Shows how far a start has come: on a terminal one line that is redrawn, else lines of the log, a few seconds apart.
//
//   LoadProgressBar bar("Loading weights");
//   options.on_progress = [&](const weights::LoadProgress& p) { bar.update(p); };
//   ... bar.finish();
//
//   const LiveLine line = start_phase("Planning the memory");
//
// Thread-safe. Writes to standard error.

#include <cstdint>
#include <optional>
#include <string>

#include "apps/common/live_line.h"
#include "base/mutex.h"
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
  // All is loaded: says so, on a line that stays.
  void finish() { line_.keep(); }

 private:
  // As it was told last, with the seconds of now; none = nothing has been read.
  std::optional<weights::LoadProgress> progress(double seconds);

  const std::string title_;
  Mutex mutex_;
  std::optional<weights::LoadProgress> last_ FATHOM_GUARDED_BY(mutex_);
  LiveLine line_;  // the last: its thread reads the others
};

// A phase of the start that takes as long as it takes: "Planning the memory, 8 s so far".
LiveLine start_phase(const std::string& title);

}  // namespace fathom::apps
