#pragma once
// The pages about the API, for the tests that hold them to the parsers.

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/source_tree.h"

namespace fathom::api::tests {

// A page, by its path in the tree. Empty if it is not there.
inline std::string doc_text(const std::string& path) {
  std::ifstream file(source_path(path));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// "messages": docs/reference/messages.md.
inline std::string reference_page(const std::string& name) {
  return doc_text("docs/reference/" + name + ".md");
}

// All that have tables of fields, chat's fields first.
inline std::string api_doc_text() {
  std::string text;
  for (const char* name : {"fields", "messages", "responses", "native", "refused"}) {
    text += reference_page(name);
  }
  return text;
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
