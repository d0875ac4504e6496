#pragma once
// Calls a function with the end of every piece that a pre-tokenizer cuts.
//
//   for_each_piece(PreTokenizerKind::kV3, text, [&](const char* piece_end) { ... });
//
// Thread-safe.

#include <string_view>

#include "text/pieces/pre_tokenizer.h"
#include "text/pieces/pre_tokenizer_kimi.h"
#include "text/pieces/pre_tokenizer_v2.h"
#include "text/pieces/pre_tokenizer_v3.h"

namespace fathom::text {

template <class Emit>
void for_each_piece(PreTokenizerKind kind, std::string_view text, Emit& emit) {
  switch (kind) {
    case PreTokenizerKind::kV2:
      return V2Splitter<Emit>(emit).split(text);
    case PreTokenizerKind::kV3:
      return split_v3(text, emit);
    case PreTokenizerKind::kKimi:
      return split_kimi(text, emit);
  }
}

}  // namespace fathom::text
