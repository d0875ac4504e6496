#include "text/pieces/pre_tokenizer.h"

#include "text/pieces/pieces.h"

namespace fathom::text {

void pre_tokenize(PreTokenizerKind kind, std::string_view text, std::vector<size_t>& ends) {
  auto emit = [&ends, begin = text.data()](const char* piece_end) {
    ends.push_back(static_cast<size_t>(piece_end - begin));
  };
  for_each_piece(kind, text, emit);
}

}  // namespace fathom::text
