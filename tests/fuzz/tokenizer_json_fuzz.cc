// Any bytes as tokenizer.json, or, after a NUL byte, as tokenizer_config.json: an error line or a tokenizer
// that works.

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/pieces/utf8.h"
#include "text/tokenizer.h"

namespace {

using fathom::Result;
using fathom::text::Tokenizer;

void use(const Tokenizer& tokenizer) {
  constexpr std::string_view kText =
      "Hello <think>, 12345  \r\n\xe4\xb8\xad\xe6\x96\x87 \xff<|EOT|>";
  for (const bool parse_special : {false, true}) {
    const std::vector<int32_t> ids = tokenizer.encode(kText, {.parse_special = parse_special});
    for (const int32_t id : ids) {
      FATHOM_CHECK(id >= 0 && id < tokenizer.vocab_size(), "id " << id);
      FATHOM_CHECK(!tokenizer.token_bytes(id).empty(), "id " << id << " has no bytes");
    }
    FATHOM_CHECK(fathom::text::is_valid_utf8(tokenizer.decode(ids, true)), "decoded text");
  }
  FATHOM_CHECK(tokenizer.bos_id() < tokenizer.vocab_size(), "bos_id " << tokenizer.bos_id());
  FATHOM_CHECK(tokenizer.eos_id() < tokenizer.vocab_size(), "eos_id " << tokenizer.eos_id());
  FATHOM_CHECK(!tokenizer.add_bos_token() || tokenizer.bos_id() >= 0, "BOS without an id");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view config = end == std::string_view::npos ? "" : input.substr(end + 1);
  const Result<Tokenizer> tokenizer = Tokenizer::parse(input.substr(0, end), config);
  if (tokenizer) {
    use(*tokenizer);
  } else {
    const std::string& line = tokenizer.error().message;
    FATHOM_CHECK(!line.empty() && line.find_first_of("\r\n") == std::string::npos,
                 "error line: " << line);
  }
  return 0;
}
