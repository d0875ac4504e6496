// Any bytes as a pattern: compiling ends within its budget, and a random output that comes to its end is
// taken again, byte by byte, and by the pattern in a group.
//
// Input: byte 0 seeds the walk, the rest is the pattern.

#include <string>

#include "tests/fuzz/grammar_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  using namespace fathom;
  const std::string pattern(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto walk = grammar::tests::fuzz_walk(grammar::regex(pattern), data[0]);
  if (walk.is_complete) grammar::tests::check_taken(grammar::regex(pattern), walk.text);
  return 0;
}
