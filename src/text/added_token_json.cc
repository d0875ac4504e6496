#include "text/added_token_json.h"

#include "base/json.h"
#include "text/added_tokens.h"
#include "text/pieces/json_fields.h"

namespace fathom::text {

Result<AddedToken> read_added_token(const json::Value& value, const std::string& where) {
  if (!value.is_object()) return invalid_argument(where + " must be an object");
  const auto content = value.find("content");
  if (content == value.end() || !content->is_string() ||
      content->get_ref<const std::string&>().empty()) {
    return invalid_argument(where + ".content must be a string that is not empty");
  }
  AddedToken token{.content = content->get<std::string>()};
  const std::string name = where + " " + json::shown_text(token.content);
  if (token.content.size() > kMaxAddedTokenBytes) {
    return invalid_argument(name + " has " + std::to_string(token.content.size()) +
                            " bytes, the limit is " + std::to_string(kMaxAddedTokenBytes));
  }
  for (const char* flag : {"single_word", "lstrip", "rstrip"}) {
    const Result<bool> set = bool_field(value, flag, false);
    if (!set) return invalid_argument(name + ": " + set.error().message);
    if (*set) return invalid_argument(name + ": " + flag + " = true is not supported");
  }
  const Result<bool> special = bool_field(value, "special", false);
  if (!special) return invalid_argument(name + ": " + special.error().message);
  const Result<bool> normalized = bool_field(value, "normalized", !*special);
  if (!normalized) return invalid_argument(name + ": " + normalized.error().message);
  token.special = *special;
  token.normalized = *normalized;
  return token;
}

}  // namespace fathom::text
