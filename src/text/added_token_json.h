#pragma once
// An added token as tokenizer.json's "added_tokens" and tokenizer_config.json's "added_tokens_decoder" describe it.
//
//   Result<AddedToken> token = read_added_token(value, "added_tokens[3]");    // the id is the caller's to read
//
// What would change which text becomes the token (single_word, lstrip, rstrip) is refused by name. Pure function.

#include <string>

#include "base/json_fwd.h"
#include "base/result.h"
#include "text/tokenizer_json.h"

namespace fathom::text {

Result<AddedToken> read_added_token(const json::Value& value, const std::string& where);

}  // namespace fathom::text
