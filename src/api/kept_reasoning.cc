#include "api/kept_reasoning.h"

#include "base/base64.h"
#include "text/pieces/utf8.h"

namespace fathom::api {

std::string keep_reasoning(std::string_view text) { return encode_base64(text); }

std::string kept_reasoning(std::string_view kept) {
  std::string text = decode_base64(kept).value_or("");
  return text::is_valid_utf8(text) ? text : "";
}

}  // namespace fathom::api
