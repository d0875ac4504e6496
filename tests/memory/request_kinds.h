#pragma once
// Requests of every kind that the server answers, for tests that make each of them fail.

#include <string>
#include <vector>

namespace fathom::tests {

struct RequestKind {
  std::string name, method, path;
  std::string body{};  // "#" stands for the number of the try: a grammar that is new is compiled
  bool streams = false;
  bool is_exact = true;  // its texts are the same each time
  // Paths that are posted to, without failures, before the request and behind it.
  std::string before{}, behind{};
};

std::vector<RequestKind> request_kinds();

}  // namespace fathom::tests
