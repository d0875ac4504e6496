#pragma once
// The tuned files that are compiled into the program (src/tuned/h200/ and its like), as `fathom tune` wrote them.
//
//   const Table table = shipped_table("NVIDIA_H200");      // empty: none ship for it
//
// Thread-safe (no state).

#include <span>
#include <string_view>

#include "tuned/table.h"

namespace fathom::tuned {

struct ShippedFile {
  std::string_view name, text;
};
std::span<const ShippedFile> shipped_files();

// Those for a device, as its name stands in files. REQUIRES: they are right, which a test says.
Table shipped_table(std::string_view device);

}  // namespace fathom::tuned
