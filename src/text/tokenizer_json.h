#pragma once
// Reads tokenizer.json and tokenizer_config.json strictly: whatever would change the tokens of a text in a
// way that the V2 and V3 families do not is refused by name, in one line.
//
//   Result<TokenizerSpec> spec = parse_tokenizer_json(text);
//   if (!spec) return spec.error();
//
// Plain data, owned by the caller. Pure functions, thread-safe.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/bpe.h"
#include "text/pieces/pre_tokenizer.h"

namespace fathom::text {

inline constexpr int32_t kMaxVocabSize = 1 << 21;

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  bool normalized = false;  // matched after, and only between, those that are not
};

struct TokenizerSpec {
  PreTokenizerKind pre_tokenizer = PreTokenizerKind::kV3;
  std::vector<std::string> texts;       // [max id + 1] as the file spells them; empty: no such id
  std::array<int32_t, 256> byte_ids{};  // -1: only for bytes that no valid UTF-8 has
  std::vector<MergeRule> merges;
  bool whole_tokens_first =
      false;  // a piece that is a token is that token, whatever merges make of it
  std::vector<AddedToken> added_tokens;
};

// What tokenizer_config.json says that concerns token ids.
struct TokenizerConfig {
  std::string bos_token;  // empty: none
  std::string eos_token;
  bool add_bos_token = false;
};

Result<TokenizerSpec> parse_tokenizer_json(std::string_view text);

// Empty text stands for a missing file.
Result<TokenizerConfig> parse_tokenizer_config(std::string_view text);

}  // namespace fathom::text
