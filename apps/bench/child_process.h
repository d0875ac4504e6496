#pragma once
// This program again, in a process of its own: what aborts there ends nothing here.
//
//   const ChildEnd end = run_this_program({"bench", "engine", "--model-path", "demo"}, /*time_limit_seconds=*/60);
//   if (!end.why_failed.empty()) say(end.why_failed);       // "aborted: ...", "took longer than 60 s"
//
// The child's output goes nowhere, the last line of its errors into the reason. It ends when this process does.
// One at a time. Throws StartupError when there can be no child.

#include <string>
#include <vector>

namespace fathom::apps {

struct ChildEnd {
  std::string why_failed;  // empty: exit status 0
  double seconds = 0;
};

ChildEnd run_this_program(const std::vector<std::string>& words, double time_limit_seconds);

}  // namespace fathom::apps
