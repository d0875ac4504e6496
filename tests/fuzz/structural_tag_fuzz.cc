// Any JSON as a structural tag: compiling ends within its budget, and a random output that comes to its end is taken
// again byte by byte.
//
// Input: byte 0 seeds the walk, the rest is the tag.

#include <optional>
#include <string>

#include "base/json.h"
#include "grammar/structural_tag.h"
#include "tests/fuzz/grammar_oracle.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  using namespace fathom;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  const auto tag = json::parse(text, {.max_depth = 64});
  if (!tag) return 0;
  // A tokenizer without special tokens: every text is itself.
  const grammar::TokenNames names{
      .split =
          [](std::string_view piece) {
            std::vector<grammar::Marker> pieces;
            if (!piece.empty()) pieces.push_back({std::string(piece), -1});
            return pieces;
          },
      .special = [](int64_t) { return std::optional<grammar::Marker>(); }};
  const auto walk = grammar::tests::fuzz_walk(grammar::structural_tag(*tag, names), data[0]);
  if (walk.is_complete)
    grammar::tests::check_taken(grammar::structural_tag(*tag, names), walk.text);
  return 0;
}
