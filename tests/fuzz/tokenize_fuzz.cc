// Any bytes as text, for both families: the ids' bytes are the text, whatever is special; the detokenizer's
// pieces are the text decoded at once. The first byte picks family and options.

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tests/source_tree.h"
#include "text/detokenizer.h"
#include "text/pieces/utf8.h"
#include "text/tokenizer.h"

namespace {

using fathom::text::Detokenizer;
using fathom::text::Tokenizer;

std::string read(const char* path) {
  std::ifstream file(fathom::source_path(path), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const Tokenizer& tokenizer_of(bool is_v2) {
  static const Tokenizer v3 = Tokenizer::parse(read("models/demo/tokenizer.json"), "").value();
  static const Tokenizer v2 =
      Tokenizer::parse(read("tests/data/tokenizer/v2_tokenizer.json"), "").value();
  return is_v2 ? v2 : v3;
}

std::string bytes_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

void check_detokenizer(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  Detokenizer detokenizer(tokenizer, skip);
  std::string joined;
  for (const int32_t id : ids) {
    const std::string piece = detokenizer.push(id);
    FATHOM_CHECK(fathom::text::is_valid_utf8(piece), "a piece cuts a character");
    joined += piece;
  }
  joined += detokenizer.finish();
  FATHOM_CHECK(joined == tokenizer.decode(ids, skip), "pieces differ from the text at once");
}

// The input's bytes in pairs as ids, which brings together tokens that no text does.
std::vector<int32_t> ids_from(std::string_view bytes) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    ids.push_back(static_cast<uint8_t>(bytes[i]) << 8 | static_cast<uint8_t>(bytes[i + 1]));
  }
  return ids;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool parse_special = data[0] & 2, skip = data[0] & 4;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool is_v2 = data[0] & 1;
  const Tokenizer& tokenizer = tokenizer_of(is_v2);
  const std::vector<int32_t> ids = tokenizer.encode(text, {.parse_special = parse_special});
  // V2's vocabulary has no tokens for bytes that UTF-8 never uses, and among its added tokens letters such as "ü",
  // which the byte-level decoder reads as such bytes, here as in Hugging Face's tokenizers.
  if (fathom::text::is_valid_utf8(text) && !(is_v2 && parse_special)) {
    FATHOM_CHECK(tokenizer.decode(ids, false) == text, "text does not come back");
  }
  if (!is_v2) FATHOM_CHECK(bytes_of(tokenizer, ids) == text, "bytes do not come back");
  if (!parse_special) {
    for (const int32_t id : ids) FATHOM_CHECK(!tokenizer.is_special(id), "special id " << id);
  }
  FATHOM_CHECK(tokenizer.encode(text, {.parse_special = parse_special}) == ids, "not repeatable");
  check_detokenizer(tokenizer, ids, skip);
  check_detokenizer(tokenizer, ids_from(text), skip);
  return 0;
}
