#pragma once
// A whole small text file of a checkpoint's directory.
//
//   Result<std::string> text = read_config_file("models/demo/config.json");
//
// A directory, a device or a pipe is refused instead of read. Thread-safe.

#include <cstdint>
#include <string>

#include "base/result.h"

namespace fathom::config {

// No configuration is longer; a longer file is refused.
constexpr int64_t kMaxConfigBytes = 1 << 20;

// Error kNotFound: there is no such file.
Result<std::string> read_config_file(const std::string& path);

}  // namespace fathom::config
