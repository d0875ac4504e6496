// Any bytes as a schema: compiling ends within its budget, and a random output that comes to its end is JSON.
//
// Input: byte 0 seeds the walk, the rest is the schema.

#include <string>

#include "base/json.h"
#include "tests/fuzz/grammar_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  using namespace fathom;
  const std::string schema(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto walk = grammar::tests::fuzz_walk(grammar::json_schema(schema), data[0]);
  if (walk.is_complete)
    FATHOM_CHECK(json::Value::accept(walk.text), schema << " gave " << walk.text);
  return 0;
}
