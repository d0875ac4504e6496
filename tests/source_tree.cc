#include "tests/source_tree.h"

namespace fathom {

std::string source_path(const std::string& name) { return FATHOM_SOURCE_DIR "/" + name; }

}  // namespace fathom
