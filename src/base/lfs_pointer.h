#pragma once
// Git LFS pointers: the few lines of text that a repository cloned without Git LFS has in the place of each large file.
//
//   if (is_lfs_pointer(text)) return lfs_pointer_error("models/x/tokenizer.json");
//   // models/x/tokenizer.json: is a Git LFS pointer, the file itself is not here yet: run `git lfs pull` in models/x
//
// Thread-safe (no state).

#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom {

// A pointer's first line has this many bytes at least; what is shorter is none.
inline constexpr size_t kLfsPointerPrefixBytes = 24;

bool is_lfs_pointer(std::string_view beginning_of_file);
Error lfs_pointer_error(const std::string& path);

}  // namespace fathom
