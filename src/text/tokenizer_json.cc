#include "text/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/json.h"
#include "text/added_token_json.h"
#include "text/byte_alphabet.h"
#include "text/pieces/json_fields.h"

namespace fathom::text {
namespace {

using IdsByText = std::unordered_map<std::string_view, int32_t>;

Status check_vocab_id(const std::string& text, const json::Value& id) {
  if (text.empty()) return invalid_argument("model.vocab has an empty token");
  const bool in_range = id.is_number_integer() && id >= 0 && id < kMaxVocabSize;
  if (in_range) return {};
  return invalid_argument("model.vocab: id of " + json::shown_text(text) + " is " +
                          json::dump(id).substr(0, 40) + ", must be an integer from 0 to " +
                          std::to_string(kMaxVocabSize - 1));
}

// Fills spec.texts; the map's keys point into `vocab`.
Result<IdsByText> read_vocab(const json::Value& vocab, TokenizerSpec& spec) {
  IdsByText ids;
  ids.reserve(vocab.size());
  for (const auto& [text, id] : vocab.items()) {
    if (Status status = check_vocab_id(text, id); !status) return status.error();
    const auto index = id.get<size_t>();
    if (index >= spec.texts.size()) spec.texts.resize(index + 1);
    if (!spec.texts[index].empty()) {
      return invalid_argument("model.vocab: " + json::shown_text(spec.texts[index]) + " and " +
                              json::shown_text(text) + " have the same id " +
                              std::to_string(index));
    }
    spec.texts[index] = text;
  }
  for (size_t id = 0; id < spec.texts.size(); ++id) {
    if (!spec.texts[id].empty()) ids.emplace(spec.texts[id], static_cast<int32_t>(id));
  }
  return ids;
}

Status read_byte_ids(const IdsByText& ids, TokenizerSpec& spec) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = spelling_of_byte(static_cast<uint8_t>(byte));
    const auto found = ids.find(spelling);
    spec.byte_ids[static_cast<size_t>(byte)] = found == ids.end() ? -1 : found->second;
    const bool in_utf8 = byte < 0xc0 || (byte >= 0xc2 && byte <= 0xf4);
    if (found == ids.end() && in_utf8) {
      return invalid_argument("model.vocab has no token for byte " + std::to_string(byte) + " (" +
                              json::shown_text(spelling) + ")");
    }
  }
  return {};
}

struct MergePair {
  std::string_view left;
  std::string_view right;
};

// Both published forms: "left right" and ["left", "right"].
Result<MergePair> read_merge_pair(const json::Value& merge, size_t rank) {
  if (merge.is_string()) {
    const std::string_view line = merge.get_ref<const std::string&>();
    const size_t space = line.find(' ');
    if (space != std::string_view::npos && line.find(' ', space + 1) == std::string_view::npos) {
      return MergePair{line.substr(0, space), line.substr(space + 1)};
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return MergePair{merge[0].get_ref<const std::string&>(),
                     merge[1].get_ref<const std::string&>()};
  }
  return invalid_argument("model.merges[" + std::to_string(rank) +
                          "] must be two tokens: \"left right\" or [\"left\", \"right\"]");
}

Status read_merges(const json::Value& merges, const IdsByText& ids, TokenizerSpec& spec) {
  std::unordered_set<uint64_t> pairs;
  pairs.reserve(merges.size());
  spec.merges.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string where = "model.merges[" + std::to_string(rank) + "]: ";
    const Result<MergePair> pair = read_merge_pair(merges[rank], rank);
    if (!pair) return pair.error();
    const std::string merged = std::string(pair->left) + std::string(pair->right);
    const auto left = ids.find(pair->left), right = ids.find(pair->right), whole = ids.find(merged);
    for (const auto& [found, text] : {std::pair{left, pair->left}, std::pair{right, pair->right},
                                      std::pair{whole, std::string_view(merged)}}) {
      if (found == ids.end())
        return invalid_argument(where + json::shown_text(text) + " is not in model.vocab");
    }
    const uint64_t key =
        uint64_t{static_cast<uint32_t>(left->second)} << 32 | static_cast<uint32_t>(right->second);
    if (!pairs.insert(key).second) {
      return invalid_argument(where + json::shown_text(pair->left) + " and " +
                              json::shown_text(pair->right) + " are merged by an earlier line");
    }
    spec.merges.push_back({left->second, right->second, whole->second, static_cast<int32_t>(rank)});
  }
  return {};
}

// The options of BPE that must be absent: each would change the ids.
Status check_model_options(const json::Value& model) {
  for (const auto& [key, value] : model.items()) {
    if (key == "type" || key == "vocab" || key == "merges") continue;
    bool neutral = false;
    if (key == "dropout") neutral = value.is_null() || value == 0;
    if (key == "unk_token") neutral = value.is_null();
    if (key == "continuing_subword_prefix" || key == "end_of_word_suffix") {
      neutral = value.is_null() || json::is_text(value, "");
    }
    if (key == "fuse_unk") neutral = value.is_boolean();  // concerns unk_token, which is null
    if (key == "byte_fallback" || key == "ignore_merges") neutral = value == false;
    if (!neutral) {
      return invalid_argument("model." + json::shown_text(key) + " = " +
                              json::shown_text(json::dump(value)) + " is not supported");
    }
  }
  return {};
}

Status read_model(const json::Value& root, TokenizerSpec& spec, IdsByText& ids) {
  const auto model = root.find("model");
  if (model == root.end() || !model->is_object()) return invalid_argument("no object \"model\"");
  if (type_name(*model) != "\"BPE\"") {
    return invalid_argument("model type is " + type_name(*model) + ", only \"BPE\" is supported");
  }
  if (Status status = check_model_options(*model); !status) return status;
  const auto vocab = model->find("vocab"), merges = model->find("merges");
  if (vocab == model->end() || !vocab->is_object())
    return invalid_argument("no object model.vocab");
  if (merges == model->end() || !merges->is_array())
    return invalid_argument("no list model.merges");
  Result<IdsByText> read = read_vocab(*vocab, spec);
  if (!read) return read.error();
  ids = std::move(*read);
  if (Status status = read_byte_ids(ids, spec); !status) return status;
  return read_merges(*merges, ids, spec);
}

Result<AddedToken> read_listed_token(const json::Value& value, const std::string& where) {
  Result<AddedToken> token = read_added_token(value, where);
  if (!token) return token;
  const auto id = value.find("id");
  if (id == value.end() || !id->is_number_integer() || *id < 0 || *id >= kMaxVocabSize) {
    return invalid_argument(where + " " + json::shown_text(token->content) +
                            ": id must be an integer from 0 to " +
                            std::to_string(kMaxVocabSize - 1));
  }
  token->id = id->get<int32_t>();
  return token;
}

// An added token is either also in the vocabulary, under the same id, or has an id of its own.
Status place_added_token(const AddedToken& token, const IdsByText& ids, TokenizerSpec& spec) {
  const auto in_vocab = ids.find(token.content);
  const auto index = static_cast<size_t>(token.id);
  if (in_vocab != ids.end()) {
    if (in_vocab->second == token.id) return {};
    return invalid_argument("added token " + json::shown_text(token.content) + " has id " +
                            std::to_string(token.id) + ", in model.vocab it has " +
                            std::to_string(in_vocab->second));
  }
  if (index < spec.texts.size() && !spec.texts[index].empty()) {
    return invalid_argument("added token " + json::shown_text(token.content) + " has id " +
                            std::to_string(token.id) + ", which is that of " +
                            json::shown_text(spec.texts[index]));
  }
  return {};
}

Status read_added_tokens(const json::Value& root, const IdsByText& ids, TokenizerSpec& spec) {
  const auto list = root.find("added_tokens");
  if (list == root.end() || list->is_null()) return {};
  if (!list->is_array()) return invalid_argument("\"added_tokens\" must be a list");
  std::unordered_map<std::string, int32_t> contents;
  std::unordered_map<int32_t, std::string> owners;
  for (size_t i = 0; i < list->size(); ++i) {
    Result<AddedToken> token =
        read_listed_token((*list)[i], "added_tokens[" + std::to_string(i) + "]");
    if (!token) return token.error();
    if (Status status = place_added_token(*token, ids, spec); !status) return status;
    if (!contents.emplace(token->content, token->id).second) {
      return invalid_argument("added token " + json::shown_text(token->content) +
                              " is listed twice");
    }
    const auto [owner, is_new] = owners.emplace(token->id, token->content);
    if (!is_new) {
      return invalid_argument("added tokens " + json::shown_text(owner->second) + " and " +
                              json::shown_text(token->content) + " have the same id " +
                              std::to_string(token->id));
    }
    spec.added_tokens.push_back(std::move(*token));
  }
  return {};
}

void add_texts(TokenizerSpec& spec) {
  for (const AddedToken& token : spec.added_tokens) {
    const auto index = static_cast<size_t>(token.id);
    if (index >= spec.texts.size()) spec.texts.resize(index + 1);
    spec.texts[index] = token.content;
  }
}

// Everything around the model: what is there must not change text or ids.
Status check_surroundings(const json::Value& root) {
  // What a training run left for its batches: nothing here pads, and nothing cuts a prompt.
  for (const char* key : {"truncation", "padding"}) {
    const auto value = root.find(key);
    if (value != root.end() && !value->is_null() && !value->is_object()) {
      return invalid_argument("\"" + std::string(key) + "\" must be an object or null");
    }
  }
  const auto normalizer = root.find("normalizer");
  if (normalizer != root.end() && !normalizer->is_null()) {
    const bool empty = type_name(*normalizer) == "\"Sequence\"" &&
                       normalizer->value("normalizers", json::Value()) == json::Value::array();
    if (!empty) {
      return invalid_argument("normalizer " + type_name(*normalizer) +
                              " is not supported, must be null or an empty Sequence");
    }
  }
  const auto post = root.find("post_processor");
  if (post != root.end() && !post->is_null() && type_name(*post) != "\"ByteLevel\"") {
    return invalid_argument("post_processor " + type_name(*post) +
                            " is not supported, must be null or ByteLevel");
  }
  const auto decoder = root.find("decoder");
  if (decoder == root.end() || type_name(*decoder) != "\"ByteLevel\"") {
    return invalid_argument("decoder must be ByteLevel, is " +
                            (decoder == root.end() ? "missing" : type_name(*decoder)));
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> parse_tokenizer_json(std::string_view text) {
  const Result<json::Value> root = json::parse(text);
  if (!root) return root.error();
  if (!root->is_object()) return invalid_argument("must be a JSON object");
  constexpr std::array<std::string_view, 9> kKnown = {
      "version",       "truncation",     "padding", "added_tokens", "normalizer",
      "pre_tokenizer", "post_processor", "decoder", "model"};
  for (const auto& [key, value] : root->items()) {
    if (std::find(kKnown.begin(), kKnown.end(), key) == kKnown.end()) {
      return invalid_argument("key " + json::shown_text(key) + " is not known");
    }
  }
  if (Status status = check_surroundings(*root); !status) return status.error();
  const auto pre_tokenizer = root->find("pre_tokenizer");
  if (pre_tokenizer == root->end()) return invalid_argument("no \"pre_tokenizer\"");
  const Result<PreTokenizerKind> kind = pre_tokenizer_kind(*pre_tokenizer);
  if (!kind) return kind.error();
  TokenizerSpec spec;
  spec.pre_tokenizer = *kind;
  IdsByText ids;
  if (Status status = read_model(*root, spec, ids); !status) return status.error();
  if (Status status = read_added_tokens(*root, ids, spec); !status) return status.error();
  add_texts(spec);
  return spec;
}

}  // namespace fathom::text
