#pragma once
// A directory of a test's own, removed with everything in it at the end. Tests run side by side, also of
// several checkouts and users on one machine, so no file of a test has a fixed path.
//
//   ScratchDirectory directory;
//   std::ofstream(directory / "config.json") << text;

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/check.h"

namespace fathom {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "fathom_XXXXXX").string();
    FATHOM_CHECK(::mkdtemp(path_.data()) != nullptr, path_);
  }
  ~ScratchDirectory() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace fathom
