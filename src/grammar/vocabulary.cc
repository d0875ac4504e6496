#include "grammar/vocabulary.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fathom::grammar {

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
  tree_ = TokenTree(texts(0));
  long_tree_ = TokenTree(texts(kMaxShortTokenBytes));
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

std::vector<TokenTree::Text> Vocabulary::texts(size_t more_bytes_than) const {
  std::vector<TokenTree::Text> found;
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view bytes = text_bytes(id);
    if (bytes.size() > more_bytes_than) found.push_back({bytes, id});
  }
  return found;
}

TokenTree::TokenTree(std::vector<Text> texts) {
  std::stable_sort(texts.begin(), texts.end(),
                   [](const Text& a, const Text& b) { return a.bytes < b.bytes; });
  nodes_.push_back(Node{});
  std::vector<int32_t> path = {0};  // the nodes from the root to the last token's node
  const auto close_to = [&](size_t depth) {
    while (path.size() > depth + 1) {
      nodes_[static_cast<size_t>(path.back())].subtree_end = static_cast<int32_t>(nodes_.size());
      path.pop_back();
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
    ++nodes_[static_cast<size_t>(path.back())].num_tokens;
    previous = bytes;
  }
  close_to(0);
  nodes_[0].subtree_end = static_cast<int32_t>(nodes_.size());
}

}  // namespace fathom::grammar
