#pragma once
// Which program this is: for --version, reports and what the server says of itself.
//
//   std::puts(version_text("fathom").c_str());      // fathom 0.2.0 (commit 4f2c91d03ab7)
//
// Thread-safe (constants).

#include <string>

namespace fathom::apps {

// "0.2.0"
const char* version();
// The name, the version and the commit (apps/common/commit.h).
std::string version_text(const std::string& program);

}  // namespace fathom::apps
