#pragma once
// Vocabulary: the bytes of every token, arranged so that masks are computed for common prefixes once. Made
// once per tokenizer, shared by all grammars.
//
//   std::vector<VocabularyToken> tokens;       // index = token id
//   for (int id = 0; id < tokenizer.vocab_size(); ++id)
//     tokens.push_back({.bytes = tokenizer.token_bytes(id), .is_special = is_marker(id)});
//   auto vocabulary = std::make_shared<const Vocabulary>(tokens, std::vector<int32_t>{eos_id});
//
// Immutable, thread-safe. Owns its bytes.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/expressions/expression.h"
#include "grammar/first_bytes.h"

namespace fathom::grammar {

struct VocabularyToken {
  std::string_view bytes;   // empty: the id has no text and is never allowed as text
  bool is_special = false;  // not text: allowed only where the grammar names the id
};

// Plain text: whole characters that JSON strings hold as they are (no control characters,
// line ends, quotes or backslashes).
// Almost all tokens are plain. A text that takes any plain character for a while takes them all at once, and
// only the few others are looked at one by one.
constexpr int kMaxPlainCharacters = 32;
constexpr uint8_t kNotPlain = 255;  // not plain text, or more characters than that
// Characters in the text, or kNotPlain.
uint8_t plain_characters(std::string_view bytes);
// What may stand in plain text.
std::vector<CodePointRange> plain_character_ranges();

// Tokens of at most so many bytes are short.
constexpr int kShortTokenBytes = 32;

// The bytes of some tokens as a tree in preorder; node 0 is the root and stands for no bytes.
class TokenTree {
 public:
  struct Node {
    uint8_t byte = 0;  // the last byte of the prefix
    // Characters of the longest token from here on; kNotPlain: not all are plain.
    uint8_t most_plain = 0;
    uint16_t depth = 0;       // bytes in the prefix
    int32_t subtree_end = 0;  // the first node behind this one's descendants
    int32_t first_token = 0;  // tokens whose text is exactly the prefix: node_tokens()
    int32_t num_tokens = 0;
    int32_t texts_below = -1;  // texts_below()
  };
  struct Text {
    std::string_view bytes;
    int32_t id;
  };
  // REQUIRES: no text is empty or longer than 65,535 bytes.
  explicit TokenTree(std::vector<Text> texts);

  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> node_tokens(const Node& node) const {
    return {node_tokens_.data() + node.first_token, static_cast<size_t>(node.num_tokens)};
  }
  // Those of the node and of all its descendants.
  std::span<const int32_t> tokens_from(const Node& node) const {
    const auto end = static_cast<size_t>(node.subtree_end);
    const auto last =
        end < nodes_.size() ? static_cast<size_t>(nodes_[end].first_token) : node_tokens_.size();
    return std::span(node_tokens_)
        .subspan(static_cast<size_t>(node.first_token),
                 last - static_cast<size_t>(node.first_token));
  }
  // What all texts hold behind the node's prefix. Null where that is not known: for small subtrees, within a character,
  // and where not all is UTF-8 (the end of a text may lack the rest of a character).
  struct TextsBelow {
    FirstBytes characters{};
    int most_characters = 0;  // of one text
  };
  const TextsBelow* texts_below(const Node& node) const {
    return node.texts_below < 0 ? nullptr : &texts_below_[static_cast<size_t>(node.texts_below)];
  }

 private:
  void find_texts_below();

  std::vector<Node> nodes_;
  std::vector<int32_t> node_tokens_;
  std::vector<TextsBelow> texts_below_;
};

class Vocabulary {
 public:
  // REQUIRES: eos_ids is not empty and its ids are below tokens.size().
  Vocabulary(std::span<const VocabularyToken> tokens, std::vector<int32_t> eos_ids);

  int size() const { return static_cast<int>(bytes_begin_.size()) - 1; }
  std::span<const int32_t> eos_ids() const { return eos_ids_; }
  bool is_eos(int32_t token) const;
  // Empty for special tokens: they are not text.
  std::string_view text_bytes(int32_t token) const;

  const TokenTree& tree() const { return tree_; }                  // of all text tokens
  const TokenTree& unplain_tree() const { return unplain_tree_; }  // of those that are not plain
  // The rest of each plain token of more than `skipped` characters, behind so many.
  // REQUIRES: 0 < skipped < kMaxPlainCharacters.
  const TokenTree& plain_tails(int skipped) const {
    return plain_tails_[static_cast<size_t>(skipped) - 1];
  }
  // The text tokens that are not short.
  std::span<const int32_t> long_tokens() const { return long_tokens_; }
  // A bit for every plain token of at most so many characters. REQUIRES: 0 <= most <= kMaxPlainCharacters.
  std::span<const uint64_t> plain_tokens(int most) const {
    const size_t num_words = plain_words_.size() / (kMaxPlainCharacters + 1);
    return {plain_words_.data() + static_cast<size_t>(most) * num_words, num_words};
  }

 private:
  void sort_tokens();
  void make_plain_tails();

  std::vector<char> bytes_;           // of all text tokens, one after the other
  std::vector<int64_t> bytes_begin_;  // [size + 1]
  std::vector<int32_t> eos_ids_;
  std::vector<uint64_t> plain_words_;  // [kMaxPlainCharacters + 1, words of a mask]
  std::vector<int32_t> long_tokens_;
  TokenTree tree_{{}}, unplain_tree_{{}};
  std::vector<TokenTree> plain_tails_;  // [kMaxPlainCharacters - 1]
};

}  // namespace fathom::grammar
