#pragma once
// docs/api.md, for the tests that hold it to the parsers.

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/source_tree.h"

namespace fathom::api::tests {

inline std::string api_doc_text() {
  std::ifstream file(source_path("docs/api.md"));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What stands in backticks in a line.
inline std::vector<std::string> in_backticks(const std::string& line) {
  std::vector<std::string> names;
  for (size_t begin = line.find('`'); begin != std::string::npos;) {
    const size_t end = line.find('`', begin + 1);
    if (end == std::string::npos) break;
    names.push_back(line.substr(begin + 1, end - begin - 1));
    begin = line.find('`', end + 1);
  }
  return names;
}

}  // namespace fathom::api::tests
