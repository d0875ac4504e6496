#include "apps/common/result_file.h"

#include <fstream>

#include "base/json.h"
#include "base/startup_error.h"

namespace fathom::apps {

namespace {

void write(std::ofstream file, const std::string& path, const std::string& text) {
  file << text;
  file.flush();
  if (!file) throw StartupError(path + ": cannot write the result");
}

}  // namespace

void append_result(const std::string& path, const json::Value& line) {
  write(std::ofstream(path, std::ios::app), path, json::dump(line) + "\n");
}

void write_result_file(const std::string& path, const std::string& text) {
  write(std::ofstream(path), path, text);
}

}  // namespace fathom::apps
