#pragma once
// Cuts text into the pieces that byte-pair merges never cross, as the regular expressions of the three
// published pre-tokenizers do, but with hand-written scanners: linear in the text, whatever it is.
//
//   std::vector<size_t> ends;
//   pre_tokenize(PreTokenizerKind::kV3, "Hello, world", ends);      // {5, 6, 12}
//
// A byte that is not part of valid UTF-8 counts as a character without any class.
// Pure function, thread-safe.

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"

namespace fathom::text {

enum class PreTokenizerKind {
  kV2,    // DeepSeek-LLM, V2, V2-Lite: five splits one inside the other, then single digits
  kV3,    // V3, R1, V3.1: numbers by three, Han and kana, then words
  kKimi,  // Kimi-K2, Moonlight: one pattern, words by their case
};

// Appends the end of every piece, ascending; the last is text.size(). No piece is empty.
void pre_tokenize(PreTokenizerKind kind, std::string_view text, std::vector<size_t>& ends);

// Recognises the "pre_tokenizer" value of a tokenizer.json. Any other than those of V2 and V3
// is refused by name.
Result<PreTokenizerKind> pre_tokenizer_kind(const json::Value& pre_tokenizer);

}  // namespace fathom::text
