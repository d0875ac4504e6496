#include "apps/result_file.h"

#include <fstream>

#include "base/startup_error.h"

namespace fathom::apps {

void append_result(const std::string& path, const json::Value& line) {
  std::ofstream file(path, std::ios::app);
  file << json::dump(line) << "\n";
  file.flush();
  if (!file) throw StartupError(path + ": cannot write the result");
}

}  // namespace fathom::apps
