#pragma once
// Text to token ids and back, exactly as Hugging Face `tokenizers` does it for the byte-level BPE files of
// the DeepSeek family, and `tiktoken` for those of Kimi and Moonlight.
//
//   Result<Tokenizer> tokenizer = Tokenizer::load("/models/DeepSeek-V3");
//   std::vector<int32_t> ids = tokenizer->encode("Hello", {.add_bos = tokenizer->add_bos_token()});
//   std::string text = tokenizer->decode(ids, /*skip_special_tokens=*/true);
//
// Text that is not valid UTF-8 (which `tokenizers` cannot be given) is encoded byte by byte: every stray
// byte is a character without a class, and the ids' token_bytes() joined are the input again. Bytes that
// UTF-8 never uses and the vocabulary lacks (0xc0, 0xc1, from 0xf5) are encoded as U+FFFD.
//
// Immutable, thread-safe; each thread that encodes keeps a cache of 1 MiB. Owns everything.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pieces/pre_tokenizer.h"
#include "text/tokenizer_json.h"

namespace fathom::text {

struct EncodeOptions {
  bool add_bos = false;  // REQUIRES: the tokenizer has a BOS token
  // false: no added token is looked for, special or not, and text that looks like one is plain text. This
  // keeps text from users from becoming control tokens.
  bool parse_special = true;
};

class Tokenizer {
 public:
  // Reads tokenizer.json, or tiktoken.model where there is none, and, where it exists, tokenizer_config.json from a
  // model's directory.
  static Result<Tokenizer> load(const std::string& model_path);
  // An empty tokenizer_config_json stands for a missing file.
  static Result<Tokenizer> parse(std::string_view tokenizer_json,
                                 std::string_view tokenizer_config_json);
  // The same of the text of a tiktoken.model.
  static Result<Tokenizer> parse_tiktoken(std::string_view ranks,
                                          std::string_view tokenizer_config_json);

  // REQUIRES: text.size() < 2^32 - 1.
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Valid UTF-8: bytes that form no character become U+FFFD. Ids without a token are passed over.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // The raw bytes of a token, which may be part of a character; empty for an id without a token.
  std::string_view token_bytes(int32_t id) const;
  // Whether decode() passes over the id when told to skip special tokens: the file's flag "special".
  bool is_special(int32_t id) const;
  // In the file's list of added tokens, special or not.
  bool is_added(int32_t id) const;
  // The id of an added token's content or of a vocabulary entry as the file spells it.
  std::optional<int32_t> token_id(std::string_view content) const;
  // The id of the added token with this content. Large vocabularies have ordinary entries for words of the chat formats
  // ("function", "```"), which are text like any other: whoever looks for a marker asks here.
  std::optional<int32_t> added_token_id(std::string_view content) const;

  int vocab_size() const { return static_cast<int>(texts_.size()); }  // max id + 1
  int32_t bos_id() const { return bos_id_; }                          // -1: none
  int32_t eos_id() const { return eos_id_; }                          // -1: none
  // Whether prompts of plain text begin with BOS.
  bool add_bos_token() const { return add_bos_token_; }

 private:
  struct EncodeState;
  explicit Tokenizer(TokenizerSpec spec);
  static Result<Tokenizer> create(TokenizerSpec spec, std::string_view tokenizer_config_json);

  void find_unmerged_tokens();
  void merge_piece(std::string_view piece, EncodeState& state) const;
  void encode_piece(std::string_view piece, const char* readable_end, EncodeState& state) const;
  void encode_plain(std::string_view text, EncodeState& state) const;
  void encode_between(const AddedTokenMatcher& matcher, std::string_view text,
                      EncodeState& state) const;
  std::string with_encodable_bytes(std::string_view text) const;
  Status resolve(const TokenizerConfig& config);
  // The tokens that the file spells so: an added one may share the spelling of an ordinary one's bytes.
  std::span<const int32_t> ids_of(std::string_view content) const;

  uint32_t instance_ = 0;  // tells this object's entries from others' in the threads' caches
  PreTokenizerKind pre_tokenizer_;
  BpeMerges merges_;
  bool has_all_bytes_ = false;
  // Of a tokenizer that takes whole tokens first: those that merges would not make of their bytes, sorted by these.
  std::vector<int32_t> unmerged_tokens_;
  AddedTokenMatcher exact_added_;       // "normalized": false, looked for first
  AddedTokenMatcher normalized_added_;  // "normalized": true, looked for in what is left
  std::vector<std::string> texts_;      // [vocab_size] as spelled in the file; empty: no such id
  std::vector<int32_t> ids_by_text_;    // sorted by texts_[id]
  std::string bytes_;                   // of all tokens, one after the other
  std::vector<size_t> byte_ends_;       // [vocab_size]
  std::vector<bool> special_;           // [vocab_size]
  std::vector<bool> added_;             // [ids]
  int32_t bos_id_ = -1;
  int32_t eos_id_ = -1;
  bool add_bos_token_ = false;
};

}  // namespace fathom::text
