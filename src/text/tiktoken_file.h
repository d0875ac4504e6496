#pragma once
// Reads the tokenizer of Kimi and Moonlight as published: tiktoken.model, where each line is a token in base64 and its
// rank, which is its id. The special tokens behind them are those of tokenizer_config.json's "added_tokens_decoder";
// of the first 256 ids the ones that are not listed are called <|reserved_token_ID|>. What a checkpoint's own Python
// would say is known here and never run: the pattern of pre_tokenizer_kimi.h.
//
//   Result<TokenizerSpec> spec = parse_tiktoken(ranks, tokenizer_config_json);
//   if (!spec) return spec.error();     // names the file, in one line
//
// Pure function, thread-safe.

#include <string_view>

#include "base/result.h"
#include "text/tokenizer_json.h"

namespace fathom::text {

Result<TokenizerSpec> parse_tiktoken(std::string_view ranks,
                                     std::string_view tokenizer_config_json);

}  // namespace fathom::text
