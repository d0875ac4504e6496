#pragma once
// Results of benches as a file of JSON lines, one appended per measurement.
//
//   append_result(flags.result_filename, line);     // StartupError when it cannot be written

#include <string>

#include "base/json_fwd.h"

namespace fathom::apps {

void append_result(const std::string& path, const json::Value& line);
// A file of its own.
void write_result_file(const std::string& path, const std::string& text);

}  // namespace fathom::apps
