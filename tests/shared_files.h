#pragma once
// ../shared, the folder beside the source tree with checkpoints and templates that are too large for it. A test
// that reads it is skipped without it, and says so:
//
//   if (!is_shared("fixtures/v2")) GTEST_SKIP() << not_shared("fixtures/v2");
//   load(shared_path("fixtures/v2"));

#include <filesystem>
#include <string>

#include "tests/source_tree.h"

namespace fathom {

inline std::string shared_path(const std::string& name) { return source_path("../shared/" + name); }

inline bool is_shared(const std::string& name) {
  return std::filesystem::exists(shared_path(name));
}

inline std::string not_shared(const std::string& name) {
  return "there is no ../shared/" + name +
         "; to run it: put the project's folder shared beside the source tree";
}

}  // namespace fathom
