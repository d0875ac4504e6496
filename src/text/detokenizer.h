#pragma once
// Text of a growing list of token ids, whole characters only: the pieces joined are what Tokenizer::decode
// gives for all ids at once, however a character is spread over tokens.
//
//   Detokenizer detokenizer(tokenizer);
//   for (int32_t id : ids) send(detokenizer.push(id));
//   send(detokenizer.finish());
//
// Borrows the tokenizer, which must outlive it. Owned by one sequence; not synchronised.

#include <cstdint>
#include <string>

#include "text/pieces/utf8.h"
#include "text/tokenizer.h"

namespace fathom::text {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens = true)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  // The characters that this token completes; empty while the last one is unfinished.
  std::string push(int32_t id);

  // What is left of an unfinished character as one U+FFFD. The object can be used again.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  Utf8Lossy utf8_;
};

}  // namespace fathom::text
