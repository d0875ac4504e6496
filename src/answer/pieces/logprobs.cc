#include "answer/pieces/logprobs.h"

#include <algorithm>

#include "answer/pieces/json_text.h"
#include "text/pieces/utf8.h"

namespace fathom::answer {
namespace {

void append_bytes(std::string& out, std::string_view bytes) {
  out += '[';
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    append_json(out, static_cast<int>(static_cast<unsigned char>(bytes[i])));
  }
  out += ']';
}

void append_chat_token(std::string& out, std::pair<int32_t, float> token, const TokenNames& names) {
  out += R"({"token":)";
  append_json(out, names(token.first));
  out += R"(,"bytes":)";
  append_bytes(out, names.tokenizer.token_bytes(token.first));
  out += R"(,"logprob":)";
  append_json(out, token.second);
}

size_t num_shown(const core::SampledToken& token, int num_top) {
  return std::min(token.top_logprobs.size(), static_cast<size_t>(std::max(num_top, 0)));
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

void append_vllm_token(std::string& out, std::pair<int32_t, float> token, size_t rank,
                       const text::Tokenizer& tokenizer) {
  out += '"' + std::to_string(token.first) + R"(":{"logprob":)";
  append_json(out, token.second);
  out += R"(,"rank":)" + (rank > 0 ? std::to_string(rank) : std::string("null"));
  out += R"(,"decoded_token":)";
  append_json(out, token_text(tokenizer, token.first));
  out += '}';
}

}  // namespace

std::string TokenNames::operator()(int32_t token) const {
  return as_ids ? "token_id:" + std::to_string(token) : token_text(tokenizer, token);
}

void append_token_ids(std::string& out, std::span<const int32_t> ids) {
  out += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ',';
    append_json(out, ids[i]);
  }
  out += ']';
}

void append_token_ids(std::string& out, std::span<const core::SampledToken> tokens) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append_json(out, tokens[i].token);
  }
  out += ']';
}

void append_prompt_logprobs(std::string& out, std::span<const core::SampledToken> tokens,
                            const text::Tokenizer& tokenizer, int num_top) {
  out += "[null";
  for (const core::SampledToken& token : tokens) {
    const auto is_it = [&](const std::pair<int32_t, float>& top) {
      return top.first == token.token;
    };
    const auto& tops = token.top_logprobs;
    const auto place = std::find_if(tops.begin(), tops.end(), is_it);
    const size_t rank = place == tops.end() ? 0 : static_cast<size_t>(place - tops.begin()) + 1;
    out += ",{";
    append_vllm_token(out, {token.token, token.logprob}, rank, tokenizer);
    for (size_t i = 0; i < num_shown(token, num_top); ++i) {
      if (is_it(tops[i])) continue;
      out += ',';
      append_vllm_token(out, tops[i], i + 1, tokenizer);
    }
    out += '}';
  }
  out += ']';
}

std::string token_text(const text::Tokenizer& tokenizer, int32_t token) {
  text::Utf8Lossy lossy;
  std::string text;
  lossy.append(tokenizer.token_bytes(token), text);
  lossy.finish(text);
  return text;
}

void append_token_logprob(std::string& out, const core::SampledToken& token,
                          const TokenNames& names, int num_top) {
  append_chat_token(out, {token.token, token.logprob}, names);
  out += R"(,"top_logprobs":[)";
  for (size_t j = 0; j < num_shown(token, num_top); ++j) {
    if (j > 0) out += ',';
    append_chat_token(out, token.top_logprobs[j], names);
    out += '}';
  }
  out += "]}";
}

void append_chat_logprobs(std::string& out, std::span<const core::SampledToken> tokens,
                          const TokenNames& names, int num_top) {
  out += R"({"content":[)";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append_token_logprob(out, tokens[i], names, num_top);
  }
  out += R"(],"refusal":null})";
}

void CompletionLogprobs::add_token(int32_t token, bool is_shown) {
  for (std::string* list : {&offsets_, &logprobs_, &tokens_, &tops_}) {
    if (!list->empty()) *list += ',';
  }
  append_json(offsets_, offset_);
  append_json(tokens_, names_(token));
  // Of its bytes: the text of a part of a character would count as a whole one.
  if (is_shown) offset_ += num_characters(names_.tokenizer.token_bytes(token));
}

void CompletionLogprobs::add_without_logprob(int32_t token, bool is_shown) {
  add_token(token, is_shown);
  logprobs_ += "null";
  tops_ += "null";
}

void CompletionLogprobs::add(const core::SampledToken& token, bool is_shown) {
  add_token(token.token, is_shown);
  append_json(logprobs_, token.logprob);
  append_tops(token);
}

// The likeliest tokens, and the chosen one where it is none of them: with logprobs 0 it alone.
void CompletionLogprobs::begin_as(const CompletionLogprobs& other) {
  offset_ = other.offset_;
  offsets_ = other.offsets_;
  logprobs_ = other.logprobs_;
  tokens_ = other.tokens_;
  tops_ = other.tops_;
}

void CompletionLogprobs::append_tops(const core::SampledToken& token) {
  std::vector<std::pair<int32_t, float>> shown(
      token.top_logprobs.begin(),
      token.top_logprobs.begin() + static_cast<std::ptrdiff_t>(num_shown(token, num_top_)));
  shown.emplace_back(token.token, token.logprob);
  tops_ += '{';
  // Two tokens may have the same text (parts of characters): the likelier one keeps the key.
  std::vector<std::string> keys;
  for (const auto& [id, logprob] : shown) {
    std::string key = names_(id);
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    if (!keys.empty()) tops_ += ',';
    append_json(tops_, key);
    tops_ += ':';
    append_json(tops_, logprob);
    keys.push_back(std::move(key));
  }
  tops_ += '}';
}

void CompletionLogprobs::append_to(std::string& out) {
  out += R"({"text_offset":[)" + offsets_ + R"(],"token_logprobs":[)" + logprobs_;
  out += R"(],"tokens":[)" + tokens_ + R"(],"top_logprobs":[)" + tops_ + "]}";
  for (std::string* list : {&offsets_, &logprobs_, &tokens_, &tops_}) list->clear();
}

void append_native_entry(std::string& out, std::pair<int32_t, float> token, bool with_text,
                         const text::Tokenizer& tokenizer) {
  out += '[';
  append_json(out, token.second);
  out += ',';
  append_json(out, token.first);
  out += ',';
  if (with_text) {
    append_json(out, token_text(tokenizer, token.first));
  } else {
    out += "null";
  }
  out += ']';
}

void append_native_top(std::string& out, const core::SampledToken& token, bool with_text,
                       const text::Tokenizer& tokenizer) {
  out += '[';
  for (size_t i = 0; i < token.top_logprobs.size(); ++i) {
    if (i > 0) out += ',';
    append_native_entry(out, token.top_logprobs[i], with_text, tokenizer);
  }
  out += ']';
}

}  // namespace fathom::answer
