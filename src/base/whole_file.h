#pragma once
// Whole files: read one that a person named, or write one that is there complete or not at all.
//
//   Result<std::string> text = read_whole_file("models/demo/tokenizer.json", 64 << 20);
//   if (const std::error_code error = write_whole_file(path, json)) complain(error.message());
//
// What is no regular file is refused before it is opened: a device may have no end, a pipe nobody who writes to it.
// Thread-safe (no state). Errors name the path and the reason.

#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include "base/result.h"

namespace fathom {

// Links are followed. kNotFound when there is nothing.
Status check_regular_file(const std::string& path);
Result<std::string> read_whole_file(const std::string& path, int64_t max_bytes);

// Writes beside `path` and renames when all is on the disk; a file that is there already is replaced then. After an
// error nothing is left of it.
[[nodiscard]] std::error_code write_whole_file(const std::string& path, std::string_view bytes);

}  // namespace fathom
