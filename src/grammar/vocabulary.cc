#include "grammar/vocabulary.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/token_mask.h"
#include "grammar/expressions/code_points.h"

namespace fathom::grammar {
namespace {

// From so many nodes on it is worth knowing what characters a subtree holds.
constexpr int32_t kLargeSubtree = 8;

}  // namespace

Vocabulary::Vocabulary(std::span<const VocabularyToken> tokens, std::vector<int32_t> eos_ids)
    : eos_ids_(std::move(eos_ids)) {
  FATHOM_CHECK(!eos_ids_.empty(), "a vocabulary needs an end-of-sequence token");
  bytes_begin_.reserve(tokens.size() + 1);
  for (size_t id = 0; id < tokens.size(); ++id) {
    bytes_begin_.push_back(static_cast<int64_t>(bytes_.size()));
    const bool is_text = !tokens[id].is_special && !tokens[id].bytes.empty() &&
                         !is_eos(static_cast<int32_t>(id)) && tokens[id].bytes.size() < 65536;
    if (!is_text) continue;
    bytes_.insert(bytes_.end(), tokens[id].bytes.begin(), tokens[id].bytes.end());
  }
  bytes_begin_.push_back(static_cast<int64_t>(bytes_.size()));
  for (const int32_t id : eos_ids_) {
    FATHOM_CHECK(id >= 0 && id < size(), "end-of-sequence token " << id << " of " << size());
  }
  sort_tokens();
}

void Vocabulary::sort_tokens() {
  const auto num_words = static_cast<size_t>(num_mask_words(size()));
  plain_words_.assign(num_words * (kMaxPlainCharacters + 1), 0);
  const std::span<uint64_t> words = plain_words_;
  std::vector<TokenTree::Text> all, unplain;
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view bytes = text_bytes(id);
    if (bytes.empty()) continue;
    all.push_back({bytes, id});
    if (bytes.size() > kShortTokenBytes) long_tokens_.push_back(id);
    const uint8_t length = plain_characters(bytes);
    if (length == kNotPlain) unplain.push_back({bytes, id});
    for (size_t most = length; most <= kMaxPlainCharacters; ++most) {
      allow_token(words.subspan(most * num_words, num_words), id);
    }
  }
  tree_ = TokenTree(std::move(all));
  unplain_tree_ = TokenTree(std::move(unplain));
  make_plain_tails();
}

void Vocabulary::make_plain_tails() {
  std::vector<TokenTree::Text> tails;
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view bytes = text_bytes(id);
    if (!bytes.empty() && plain_characters(bytes) != kNotPlain) tails.push_back({bytes, id});
  }
  for (int skipped = 1; skipped < kMaxPlainCharacters; ++skipped) {
    for (auto& [bytes, id] : tails) take_utf8(bytes);
    std::erase_if(tails, [](const TokenTree::Text& tail) { return tail.bytes.empty(); });
    plain_tails_.emplace_back(tails);
  }
}

bool Vocabulary::is_eos(int32_t token) const {
  return std::find(eos_ids_.begin(), eos_ids_.end(), token) != eos_ids_.end();
}

std::string_view Vocabulary::text_bytes(int32_t token) const {
  if (token < 0 || token >= size()) return {};
  const auto idx = static_cast<size_t>(token);
  return {bytes_.data() + bytes_begin_[idx],
          static_cast<size_t>(bytes_begin_[idx + 1] - bytes_begin_[idx])};
}

std::vector<CodePointRange> plain_character_ranges() {
  return complement({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x2028, 0x2029}});
}

uint8_t plain_characters(std::string_view bytes) {
  int count = 0;
  while (!bytes.empty()) {
    const std::optional<char32_t> c = take_utf8(bytes);
    if (!c || *c <= 0x1F || *c == '"' || *c == '\\' || *c == 0x2028 || *c == 0x2029)
      return kNotPlain;
    if (++count > kMaxPlainCharacters) return kNotPlain;
  }
  return static_cast<uint8_t>(count);
}

TokenTree::TokenTree(std::vector<Text> texts) {
  std::stable_sort(texts.begin(), texts.end(),
                   [](const Text& a, const Text& b) { return a.bytes < b.bytes; });
  nodes_.push_back(Node{});
  std::vector<int32_t> path = {0};  // the nodes from the root to the last token's node
  const auto close_to = [&](size_t depth) {
    while (path.size() > depth + 1) {
      Node& node = nodes_[static_cast<size_t>(path.back())];
      node.subtree_end = static_cast<int32_t>(nodes_.size());
      path.pop_back();
      uint8_t& most_above = nodes_[static_cast<size_t>(path.back())].most_plain;
      most_above = std::max(most_above, node.most_plain);
    }
  };
  std::string_view previous;
  for (const auto& [bytes, id] : texts) {
    const auto [mismatch, unused] =
        std::mismatch(bytes.begin(), bytes.end(), previous.begin(), previous.end());
    close_to(static_cast<size_t>(mismatch - bytes.begin()));
    while (path.size() <= bytes.size()) {
      const size_t depth = path.size();
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(bytes[depth - 1]),
                        .depth = static_cast<uint16_t>(depth),
                        .first_token = static_cast<int32_t>(node_tokens_.size())});
    }
    node_tokens_.push_back(id);
    Node& node = nodes_[static_cast<size_t>(path.back())];
    ++node.num_tokens;
    node.most_plain = plain_characters(bytes);
    previous = bytes;
  }
  close_to(0);
  nodes_[0].subtree_end = static_cast<int32_t>(nodes_.size());
  find_texts_below();
}

void TokenTree::find_texts_below() {
  struct Below : TextsBelow {
    CharPlace at;
    bool is_broken = false;
  };
  std::vector<Below> below(nodes_.size());
  std::vector<size_t> parents(nodes_.size(), 0), path = {0};
  for (size_t i = 1; i < nodes_.size(); ++i) {
    path.resize(nodes_[i].depth);
    parents[i] = path.back();
    below[i].at = below[parents[i]].at.next(nodes_[i].byte);
    path.push_back(i);
  }
  // Descendants come behind their ancestors.
  for (size_t i = nodes_.size() - 1; i > 0; --i) {
    const Below& from = below[i];
    Below& to = below[parents[i]];
    const bool begins_character = to.at.num_left == 0;
    to.is_broken = to.is_broken || from.is_broken || from.at.is_broken;
    to.characters |= from.characters;
    if (begins_character) to.characters.add(nodes_[i].byte);
    to.most_characters =
        std::max(to.most_characters, from.most_characters + (begins_character ? 1 : 0));
    const bool is_large = nodes_[i].subtree_end - static_cast<int32_t>(i) >= kLargeSubtree;
    if (!is_large || from.is_broken || from.at.is_broken || from.at.num_left > 0) continue;
    nodes_[i].texts_below = static_cast<int32_t>(texts_below_.size());
    texts_below_.push_back(from);
  }
}

}  // namespace fathom::grammar
