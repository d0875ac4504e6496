#include "text/tiktoken_file.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "base/base64.h"
#include "base/json.h"
#include "text/added_token_json.h"
#include "text/byte_alphabet.h"

namespace fathom::text {
namespace {

constexpr int32_t kNumReserved = 256;
constexpr size_t kMaxTokenBytes = 512;  // cutting a token in two is tried at each of its bytes

using RanksByBytes = std::unordered_map<std::string_view, int32_t>;

Error in_ranks(const std::string& message) {
  return invalid_argument("tiktoken.model: " + message);
}

Error in_config(const std::string& message) {
  return invalid_argument("tokenizer_config.json: " + message);
}

struct Line {
  std::string bytes;
  int32_t rank = 0;
};

// "IHRoZQ== 262"
std::optional<Line> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == 0 || space == line.npos) return std::nullopt;
  std::optional<std::string> bytes = decode_base64(line.substr(0, space));
  const std::string_view digits = line.substr(space + 1);
  int32_t rank = -1;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  const bool is_number = read.ec == std::errc() && read.ptr == digits.data() + digits.size();
  if (!bytes || bytes->empty() || !is_number || rank < 0) return std::nullopt;
  return Line{.bytes = std::move(*bytes), .rank = rank};
}

// [rank] the bytes. The ranks must be 0, 1, 2, ... in any order: special tokens begin behind them.
Result<std::vector<std::string>> read_ranks(std::string_view text) {
  std::vector<std::string> tokens;
  tokens.resize(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  int32_t num_tokens = 0;
  for (size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string where = "line " + std::to_string(number) + " ";
    std::optional<Line> entry = parse_line(line);
    if (!entry) {
      return in_ranks(where + "is " + json::shown_text(line) +
                      ", must be a token in base64, a space and its rank");
    }
    if (entry->bytes.size() > kMaxTokenBytes) {
      return in_ranks(where + "has a token of " + std::to_string(entry->bytes.size()) +
                      " bytes, the limit is " + std::to_string(kMaxTokenBytes));
    }
    const auto index = static_cast<size_t>(entry->rank);
    if (index >= tokens.size() || !tokens[index].empty() || entry->rank >= kMaxVocabSize) {
      return in_ranks(where + "has the rank " + std::to_string(entry->rank) +
                      ", must be one of 0 to the number of tokens - 1, each once");
    }
    tokens[index] = std::move(entry->bytes);
    ++num_tokens;
  }
  tokens.resize(static_cast<size_t>(num_tokens));
  const auto gap = std::find(tokens.begin(), tokens.end(), std::string());
  if (gap == tokens.end() && num_tokens > 0) return tokens;
  return in_ranks("no token has the rank " + std::to_string(gap - tokens.begin()));
}

Result<RanksByBytes> index_tokens(const std::vector<std::string>& tokens) {
  RanksByBytes ranks;
  ranks.reserve(tokens.size());
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const auto [first, is_new] = ranks.emplace(tokens[rank], static_cast<int32_t>(rank));
    if (is_new) continue;
    return in_ranks("the ranks " + std::to_string(first->second) + " and " + std::to_string(rank) +
                    " have the same token");
  }
  return ranks;
}

Status read_byte_ranks(const RanksByBytes& ranks, TokenizerSpec& spec) {
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ranks.find(std::string(1, static_cast<char>(byte)));
    if (found == ranks.end()) return in_ranks("no token for byte " + std::to_string(byte));
    spec.byte_ids[static_cast<size_t>(byte)] = found->second;
  }
  return {};
}

// tiktoken merges any two neighbours that together are a token, the lowest rank first.
void add_merges(const std::vector<std::string>& tokens, const RanksByBytes& ranks,
                TokenizerSpec& spec) {
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ranks.find(token.substr(0, cut));
      if (left == ranks.end()) continue;
      const auto right = ranks.find(token.substr(cut));
      if (right == ranks.end()) continue;
      const auto id = static_cast<int32_t>(rank);
      spec.merges.push_back({left->second, right->second, id, id});
    }
  }
}

Result<json::Value> parse_config(std::string_view text) {
  if (text.empty()) {
    return in_config("is missing: it names the special tokens that belong to tiktoken.model");
  }
  Result<json::Value> root = json::parse(text);
  if (!root) return in_config(root.error().message);
  if (!root->is_object()) return in_config("must be a JSON object");
  const auto name = root->find("tokenizer_class");
  if (name != root->end() && json::is_text(*name, "TikTokenTokenizer")) return root;
  return in_config("tokenizer_class is " + (name == root->end() ? "missing" : json::shown(*name)) +
                   ", of tiktoken.model only that of Kimi and Moonlight is known: "
                   "\"TikTokenTokenizer\"");
}

// The listed special tokens, by id.
Result<std::vector<AddedToken>> read_special_tokens(const json::Value& config, int32_t first_id) {
  std::vector<AddedToken> tokens;
  const auto list = config.find("added_tokens_decoder");
  if (list == config.end() || list->is_null()) return tokens;
  if (!list->is_object()) return in_config("added_tokens_decoder must be an object");
  for (const auto& [key, value] : list->items()) {
    const std::string where = "added_tokens_decoder[" + json::shown_text(key) + "]";
    int32_t id = -1;
    const auto read = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_number = read.ec == std::errc() && read.ptr == key.data() + key.size();
    if (!is_number || id < first_id || id >= kMaxVocabSize) {
      return in_config(where + ": the id must be an integer from " + std::to_string(first_id) +
                       ", behind the tokens of tiktoken.model, to " +
                       std::to_string(kMaxVocabSize - 1));
    }
    Result<AddedToken> token = read_added_token(value, where);
    if (!token) return in_config(token.error().message);
    token->id = id;
    token->normalized = false;  // nothing is: there is no normalizer
    tokens.push_back(std::move(*token));
  }
  return tokens;
}

Status add_special_tokens(const json::Value& config, TokenizerSpec& spec) {
  const auto first_id = static_cast<int32_t>(spec.texts.size());
  Result<std::vector<AddedToken>> listed = read_special_tokens(config, first_id);
  if (!listed) return listed.error();
  std::unordered_map<int32_t, AddedToken> by_id;
  for (AddedToken& token : *listed) {
    const int32_t id = token.id;
    if (!by_id.emplace(id, std::move(token)).second) {
      return in_config("added_tokens_decoder has the id " + std::to_string(id) + " twice");
    }
  }
  for (int32_t id = first_id; id < first_id + kNumReserved; ++id) {
    by_id.try_emplace(
        id, AddedToken{.content = "<|reserved_token_" + std::to_string(id) + "|>", .id = id});
  }
  std::unordered_map<std::string, int32_t> ids;
  for (auto& [id, token] : by_id) {
    const auto [first, is_new] = ids.emplace(token.content, id);
    if (!is_new) {
      return in_config("added token " + json::shown_text(token.content) + " has two ids, " +
                       std::to_string(first->second) + " and " + std::to_string(id));
    }
    const auto index = static_cast<size_t>(id);
    if (index >= spec.texts.size()) spec.texts.resize(index + 1);
    spec.texts[index] = token.content;
    spec.added_tokens.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> parse_tiktoken(std::string_view ranks_text,
                                     std::string_view tokenizer_config_json) {
  const Result<json::Value> config = parse_config(tokenizer_config_json);
  if (!config) return config.error();
  const Result<std::vector<std::string>> tokens = read_ranks(ranks_text);
  if (!tokens) return tokens.error();
  const Result<RanksByBytes> ranks = index_tokens(*tokens);
  if (!ranks) return ranks.error();
  TokenizerSpec spec;
  spec.pre_tokenizer = PreTokenizerKind::kKimi;
  spec.whole_tokens_first = true;
  if (Status status = read_byte_ranks(*ranks, spec); !status) return status.error();
  add_merges(*tokens, *ranks, spec);
  for (const std::string& token : *tokens) {
    std::string spelling;
    for (const char byte : token) spelling += spelling_of_byte(static_cast<uint8_t>(byte));
    spec.texts.push_back(std::move(spelling));
  }
  if (Status status = add_special_tokens(*config, spec); !status) return status.error();
  return spec;
}

}  // namespace fathom::text
