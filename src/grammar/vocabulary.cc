#include "grammar/vocabulary.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fathom::grammar {

Vocabulary::Vocabulary(std::span<const VocabularyToken> tokens, std::vector<int32_t> eos_ids)
    : eos_ids_(std::move(eos_ids)) {
  FATHOM_CHECK(!eos_ids_.empty(), "a vocabulary needs an end-of-sequence token");
  std::vector<int32_t> text_ids;
  bytes_begin_.reserve(tokens.size() + 1);
  for (size_t id = 0; id < tokens.size(); ++id) {
    bytes_begin_.push_back(static_cast<int64_t>(bytes_.size()));
    const bool is_text = !tokens[id].is_special && !tokens[id].bytes.empty() &&
                         !is_eos(static_cast<int32_t>(id)) && tokens[id].bytes.size() < 65536;
    if (!is_text) continue;
    bytes_.insert(bytes_.end(), tokens[id].bytes.begin(), tokens[id].bytes.end());
    text_ids.push_back(static_cast<int32_t>(id));
  }
  bytes_begin_.push_back(static_cast<int64_t>(bytes_.size()));
  for (const int32_t id : eos_ids_) {
    FATHOM_CHECK(id >= 0 && id < size(), "end-of-sequence token " << id << " of " << size());
  }
  build_tree(std::move(text_ids));
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

void Vocabulary::build_tree(std::vector<int32_t> text_ids) {
  std::stable_sort(text_ids.begin(), text_ids.end(),
                   [this](int32_t a, int32_t b) { return text_bytes(a) < text_bytes(b); });
  nodes_.push_back(Node{});
  std::vector<int32_t> path = {0};  // the nodes from the root to the last token's node
  const auto close_to = [&](size_t depth) {
    while (path.size() > depth + 1) {
      nodes_[static_cast<size_t>(path.back())].subtree_end = static_cast<int32_t>(nodes_.size());
      path.pop_back();
    }
  };
  std::string_view previous;
  for (const int32_t id : text_ids) {
    const std::string_view text = text_bytes(id);
    const auto [mismatch, unused] =
        std::mismatch(text.begin(), text.end(), previous.begin(), previous.end());
    close_to(static_cast<size_t>(mismatch - text.begin()));
    while (path.size() <= text.size()) {
      const size_t depth = path.size();
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(text[depth - 1]),
                        .depth = static_cast<uint16_t>(depth),
                        .first_token = static_cast<int32_t>(node_tokens_.size())});
    }
    node_tokens_.push_back(id);
    ++nodes_[static_cast<size_t>(path.back())].num_tokens;
    previous = text;
  }
  close_to(0);
  nodes_[0].subtree_end = static_cast<int32_t>(nodes_.size());
}

}  // namespace fathom::grammar
