#include "text/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <numeric>

#include "base/check.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "base/whole_file.h"
#include "text/byte_alphabet.h"
#include "text/piece_cache.h"
#include "text/piece_owner.h"
#include "text/pieces/pieces.h"
#include "text/pieces/utf8.h"
#include "text/tiktoken_file.h"

namespace fathom::text {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

// The caches of all tokenizers that a thread uses; entries carry the tokenizer's instance number.
thread_local PieceCache t_piece_cache;

uint32_t next_instance() {
  static std::atomic<uint32_t> last{0};
  return ++last;
}

Result<std::string> read_model_file(const std::filesystem::path& path) {
  Result<std::string> text = read_whole_file(path.string(), kMaxFileBytes);
  if (text && is_lfs_pointer(*text)) return lfs_pointer_error(path.string());
  return text;
}

AddedTokenMatcher matcher_of(const std::vector<AddedToken>& tokens, bool normalized) {
  std::vector<AddedTokenContent> contents;
  for (const AddedToken& token : tokens) {
    if (token.normalized == normalized) contents.push_back({token.content, token.id});
  }
  return AddedTokenMatcher(std::move(contents));
}

}  // namespace

struct Tokenizer::EncodeState {
  std::vector<int32_t> ids;
  BpeScratch scratch;
  PieceCache& cache = t_piece_cache;
  const uint32_t owner = PieceOwner::current();
};

Tokenizer::Tokenizer(TokenizerSpec spec)
    : instance_(next_instance()),
      pre_tokenizer_(spec.pre_tokenizer),
      merges_(spec.byte_ids, spec.merges),
      exact_added_(matcher_of(spec.added_tokens, false)),
      normalized_added_(matcher_of(spec.added_tokens, true)),
      texts_(std::move(spec.texts)) {
  has_all_bytes_ = std::count(spec.byte_ids.begin(), spec.byte_ids.end(), -1) == 0;
  byte_ends_.reserve(texts_.size());
  for (const std::string& text : texts_) {
    const std::optional<std::string> bytes = bytes_of_spelling(text);
    bytes_ += bytes ? *bytes : text;
    byte_ends_.push_back(bytes_.size());
  }
  special_.resize(texts_.size());
  added_.resize(texts_.size());
  for (const AddedToken& token : spec.added_tokens) {
    special_[static_cast<size_t>(token.id)] = token.special;
    added_[static_cast<size_t>(token.id)] = true;
  }
  ids_by_text_.resize(texts_.size());
  std::iota(ids_by_text_.begin(), ids_by_text_.end(), 0);
  std::sort(ids_by_text_.begin(), ids_by_text_.end(), [this](int32_t a, int32_t b) {
    return texts_[static_cast<size_t>(a)] < texts_[static_cast<size_t>(b)];
  });
  if (spec.whole_tokens_first) find_unmerged_tokens();
}

// Looking up every piece would cost every piece; hardly any token is one of these.
void Tokenizer::find_unmerged_tokens() {
  BpeScratch scratch;
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab_size(); ++id) {
    if (is_added(id) || token_bytes(id).empty()) continue;
    ids.clear();
    merges_.encode(token_bytes(id), scratch, ids);
    if (ids != std::vector<int32_t>{id}) unmerged_tokens_.push_back(id);
  }
  std::sort(unmerged_tokens_.begin(), unmerged_tokens_.end(),
            [this](int32_t a, int32_t b) { return token_bytes(a) < token_bytes(b); });
}

Result<Tokenizer> Tokenizer::parse(std::string_view tokenizer_json,
                                   std::string_view tokenizer_config_json) {
  Result<TokenizerSpec> spec = parse_tokenizer_json(tokenizer_json);
  if (!spec) return Error{spec.error().code, "tokenizer.json: " + spec.error().message};
  return create(std::move(*spec), tokenizer_config_json);
}

Result<Tokenizer> Tokenizer::parse_tiktoken(std::string_view ranks,
                                            std::string_view tokenizer_config_json) {
  Result<TokenizerSpec> spec = text::parse_tiktoken(ranks, tokenizer_config_json);
  if (!spec) return spec.error();
  return create(std::move(*spec), tokenizer_config_json);
}

Result<Tokenizer> Tokenizer::create(TokenizerSpec spec, std::string_view tokenizer_config_json) {
  Tokenizer tokenizer(std::move(spec));
  const Result<TokenizerConfig> config = parse_tokenizer_config(tokenizer_config_json);
  if (!config)
    return Error{config.error().code, "tokenizer_config.json: " + config.error().message};
  if (Status status = tokenizer.resolve(*config); !status) return status.error();
  return tokenizer;
}

Result<Tokenizer> Tokenizer::load(const std::string& model_path) {
  const std::filesystem::path folder(model_path);
  const auto has = [&](const char* name) {
    std::error_code error;
    return std::filesystem::exists(folder / name, error);
  };
  const bool is_tiktoken = !has("tokenizer.json") && has("tiktoken.model");
  if (!is_tiktoken && !has("tokenizer.json")) {
    return Error{ErrorCode::kNotFound,
                 folder.string() + ": holds no tokenizer.json and no tiktoken.model"};
  }
  const Result<std::string> vocabulary =
      read_model_file(folder / (is_tiktoken ? "tiktoken.model" : "tokenizer.json"));
  if (!vocabulary) return vocabulary.error();
  std::string config_json;
  if (has("tokenizer_config.json")) {
    Result<std::string> read = read_model_file(folder / "tokenizer_config.json");
    if (!read) return read.error();
    if (read->empty()) {
      return invalid_argument((folder / "tokenizer_config.json").string() + " is empty");
    }
    config_json = std::move(*read);
  }
  Result<Tokenizer> tokenizer =
      is_tiktoken ? parse_tiktoken(*vocabulary, config_json) : parse(*vocabulary, config_json);
  if (!tokenizer) {
    return Error{tokenizer.error().code, folder.string() + ": " + tokenizer.error().message};
  }
  return tokenizer;
}

Status Tokenizer::resolve(const TokenizerConfig& config) {
  for (const auto& [key, content, id] : {std::tuple{"bos_token", &config.bos_token, &bos_id_},
                                         std::tuple{"eos_token", &config.eos_token, &eos_id_}}) {
    if (content->empty()) continue;
    const std::optional<int32_t> found = token_id(*content);
    if (!found) {
      return invalid_argument("tokenizer_config.json: " + std::string(key) + " " +
                              json::shown_text(*content) + " is not a token of the tokenizer");
    }
    *id = *found;
  }
  add_bos_token_ = config.add_bos_token;
  return {};
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  constexpr size_t kTypicalBytesPerToken = 3;
  EncodeState state;
  state.ids.reserve(text.size() / kTypicalBytesPerToken + 2);
  if (options.add_bos) {
    FATHOM_CHECK(bos_id_ >= 0, "add_bos without a BOS token");
    state.ids.push_back(bos_id_);
  }
  std::string cleaned;
  if (!has_all_bytes_) {
    cleaned = with_encodable_bytes(text);
    text = cleaned;
  }
  if (options.parse_special) {
    encode_between(exact_added_, text, state);
  } else {
    encode_plain(text, state);
  }
  return std::move(state.ids);
}

void Tokenizer::encode_between(const AddedTokenMatcher& matcher, std::string_view text,
                               EncodeState& state) const {
  const auto encode_stretch = [&](std::string_view stretch) {
    if (&matcher == &exact_added_) {
      encode_between(normalized_added_, stretch, state);
    } else {
      encode_plain(stretch, state);
    }
  };
  size_t begin = 0;
  while (const std::optional<AddedTokenMatch> match = matcher.find(text, begin)) {
    encode_stretch(text.substr(begin, match->begin - begin));
    state.ids.push_back(match->id);
    begin = match->end;
  }
  encode_stretch(text.substr(begin));
}

void Tokenizer::encode_plain(std::string_view text, EncodeState& state) const {
  const char* begin = text.data();
  const char* const text_end = begin + text.size();
  auto encode_to = [&](const char* end) {
    encode_piece({begin, static_cast<size_t>(end - begin)}, text_end, state);
    begin = end;
  };
  for_each_piece(pre_tokenizer_, text, encode_to);
}

void Tokenizer::merge_piece(std::string_view piece, EncodeState& state) const {
  if (!unmerged_tokens_.empty()) {
    const auto found = std::lower_bound(
        unmerged_tokens_.begin(), unmerged_tokens_.end(), piece,
        [this](int32_t id, std::string_view bytes) { return token_bytes(id) < bytes; });
    if (found != unmerged_tokens_.end() && token_bytes(*found) == piece) {
      state.ids.push_back(*found);
      return;
    }
  }
  merges_.encode(piece, state.scratch, state.ids);
}

inline void Tokenizer::encode_piece(std::string_view piece, const char* readable_end,
                                    EncodeState& state) const {
  if (piece.size() > PieceKey::kMaxBytes) {
    merge_piece(piece, state);
    return;
  }
  const PieceKey key = PieceKey::of(piece, readable_end);
  if (const PieceCache::Entry* hit = state.cache.find(instance_ ^ state.owner, key)) {
    if (hit->num_ids == 1) {
      state.ids.push_back(hit->ids[0]);
    } else {
      state.ids.insert(state.ids.end(), hit->ids.begin(), hit->ids.begin() + hit->num_ids);
    }
    return;
  }
  const size_t first = state.ids.size();
  merge_piece(piece, state);
  state.cache.insert(instance_ ^ state.owner, key, std::span(state.ids).subspan(first));
}

// Only bytes that no valid UTF-8 has can lack a token.
std::string Tokenizer::with_encodable_bytes(std::string_view text) const {
  std::string cleaned;
  cleaned.reserve(text.size());
  for (const char c : text) {
    if (merges_.has_byte(static_cast<uint8_t>(c))) {
      cleaned += c;
    } else {
      cleaned += kReplacementCharacter;
    }
  }
  return cleaned;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  Utf8Lossy utf8;
  for (const int32_t id : ids) {
    if (skip_special_tokens && is_special(id)) continue;
    utf8.append(token_bytes(id), text);
  }
  utf8.finish(text);
  return text;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto index = static_cast<size_t>(id);
  const size_t begin = index == 0 ? 0 : byte_ends_[index - 1];
  return std::string_view(bytes_).substr(begin, byte_ends_[index] - begin);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < vocab_size() && special_[static_cast<size_t>(id)];
}

bool Tokenizer::is_added(int32_t id) const {
  return id >= 0 && id < vocab_size() && added_[static_cast<size_t>(id)];
}

std::span<const int32_t> Tokenizer::ids_of(std::string_view content) const {
  if (content.empty()) return {};
  const auto text = [this](int32_t id) -> std::string_view {
    return texts_[static_cast<size_t>(id)];
  };
  const auto begin = std::ranges::lower_bound(ids_by_text_, content, {}, text);
  return {begin, std::ranges::upper_bound(begin, ids_by_text_.end(), content, {}, text)};
}

std::optional<int32_t> Tokenizer::token_id(std::string_view content) const {
  const std::span<const int32_t> ids = ids_of(content);
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

std::optional<int32_t> Tokenizer::added_token_id(std::string_view content) const {
  for (const int32_t id : ids_of(content)) {
    if (is_added(id)) return id;
  }
  return std::nullopt;
}

}  // namespace fathom::text
