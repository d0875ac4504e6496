#pragma once
// Log-probabilities in the three forms that clients know.
//
//   append_chat_logprobs(out, news.tokens, {tokenizer}, top_logprobs);   // {"content":[{"token":...}]}
//   CompletionLogprobs logprobs; logprobs.add(token, ...);  logprobs.append_to(out);
//   append_native_entry(out, token, with_text, tokenizer);               // [logprob, id, text|null]
//
// Token texts are valid UTF-8: bytes of an unfinished character are shown as U+FFFD (chat's `bytes` has them
// as they are). Pure functions and plain values.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/batch.h"
#include "text/tokenizer.h"

namespace fathom::answer {

std::string token_text(const text::Tokenizer& tokenizer, int32_t token);

// How log-probabilities call a token: by its text, or "token_id:7", which tells tokens of one text apart.
struct TokenNames {
  const text::Tokenizer& tokenizer;
  bool as_ids = false;
  std::string operator()(int32_t token) const;
};

// {"token","bytes","logprob","top_logprobs"}
void append_token_logprob(std::string& out, const core::SampledToken& token,
                          const TokenNames& names, int num_top);
void append_chat_logprobs(std::string& out, std::span<const core::SampledToken> tokens,
                          const TokenNames& names, int num_top);

// [7,8,9]
void append_token_ids(std::string& out, std::span<const int32_t> ids);
void append_token_ids(std::string& out, std::span<const core::SampledToken> tokens);

// vLLM's form: [null,{"7":{"logprob":..,"rank":..,"decoded_token":..},..},..], one for each token of the prompt, of
// which the first has none. Each holds the token itself and num_top likeliest ones; the rank of a token that is none
// of the known likeliest ones is null.
void append_prompt_logprobs(std::string& out, std::span<const core::SampledToken> tokens,
                            const text::Tokenizer& tokenizer, int num_top);

// {"text_offset","token_logprobs","tokens","top_logprobs"} of /v1/completions, collected token by token.
class CompletionLogprobs {
 public:
  CompletionLogprobs(const TokenNames& names, int num_top) : names_(names), num_top_(num_top) {}

  // `is_shown`: whether the token's text is part of the text that text_offset counts in.
  void add(const core::SampledToken& token, bool is_shown = true);
  // The first token of a prompt: nothing comes before it.
  void add_without_logprob(int32_t token, bool is_shown = true);
  // What `other` has so far comes first here, too. REQUIRES: nothing was added.
  void begin_as(const CompletionLogprobs& other);
  // The object of what was added since the last time. Offsets go on, in characters.
  void append_to(std::string& out);

 private:
  void add_token(int32_t token, bool is_shown);
  void append_tops(const core::SampledToken& token);

  TokenNames names_;
  int num_top_;
  int64_t offset_ = 0;
  std::string offsets_, logprobs_, tokens_, tops_;
};

// [logprob,id,text]; text is null without `with_text`.
void append_native_entry(std::string& out, std::pair<int32_t, float> token, bool with_text,
                         const text::Tokenizer& tokenizer);
// [[logprob,id,text],...], best first.
void append_native_top(std::string& out, const core::SampledToken& token, bool with_text,
                       const text::Tokenizer& tokenizer);

}  // namespace fathom::answer
