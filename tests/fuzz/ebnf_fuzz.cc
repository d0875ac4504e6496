// Any bytes as rules of EBNF or Lark: compiling ends within its budget, and a random output that comes to its end is
// taken again byte by byte.
//
// Input: byte 0 seeds the walk, the rest is the rules.

#include <string>

#include "tests/fuzz/grammar_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  using namespace fathom;
  const std::string rules(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto walk = grammar::tests::fuzz_walk(grammar::rules_text(rules), data[0]);
  if (walk.is_complete) grammar::tests::check_taken(grammar::rules_text(rules), walk.text);
  return 0;
}
