#include "tests/source_tree.h"

#include <cstdlib>

namespace fathom {

// Tests that were built on another machine are told by the environment.
std::string source_path(const std::string& name) {
  const char* moved = std::getenv("FATHOM_SOURCE_DIR");
  return std::string(moved != nullptr ? moved : FATHOM_SOURCE_DIR) + "/" + name;
}

}  // namespace fathom
