#pragma once
// Where this source tree lies. Known to one file only, so that objects of two checkouts are the same and a
// compiler cache serves both.
//
//   source_path("models/demo")      // what "models/demo" is in this tree, an absolute path

#include <string>

namespace fathom {

std::string source_path(const std::string& name);

}  // namespace fathom
