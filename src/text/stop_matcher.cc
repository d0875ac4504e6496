#include "text/stop_matcher.h"

#include <utility>

namespace fathom::text {

StopStrings::StopStrings(std::vector<std::string> strings)
    : strings_(std::move(strings)), nodes_(1) {
  for (size_t i = 0; i < strings_.size(); ++i) {
    FATHOM_CHECK(!strings_[i].empty(), "stop string " << i << " is empty");
    insert(static_cast<int32_t>(i));
  }
  link_suffixes();
}

void StopStrings::insert(int32_t string_idx) {
  int32_t node = 0;
  for (const char c : strings_[static_cast<size_t>(string_idx)]) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t next_node = child(node, byte);
    if (next_node < 0) {
      next_node = static_cast<int32_t>(nodes_.size());
      const Node& parent = nodes_[static_cast<size_t>(node)];
      nodes_.push_back(
          {.next_sibling = parent.first_child, .depth = parent.depth + 1, .byte = byte});
      nodes_[static_cast<size_t>(node)].first_child = next_node;
    }
    node = next_node;
  }
  // Of equal strings the first one names the node.
  Node& end = nodes_[static_cast<size_t>(node)];
  if (end.string_idx < 0) end.string_idx = string_idx;
}

// Breadth first: a suffix is shorter than its prefix, so it is linked before it is needed.
void StopStrings::link_suffixes() {
  std::vector<int32_t> order{0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int32_t parent = order[i];
    for (int32_t node = nodes_[static_cast<size_t>(parent)].first_child; node >= 0;
         node = nodes_[static_cast<size_t>(node)].next_sibling) {
      order.push_back(node);
      Node& linked = nodes_[static_cast<size_t>(node)];
      if (parent == 0) continue;
      linked.suffix = next(nodes_[static_cast<size_t>(parent)].suffix, linked.byte);
      const int32_t shorter = nodes_[static_cast<size_t>(linked.suffix)].string_idx;
      if (linked.string_idx < 0) linked.string_idx = shorter;
    }
  }
}

int32_t StopStrings::child(int32_t node, unsigned char byte) const {
  int32_t found = nodes_[static_cast<size_t>(node)].first_child;
  while (found >= 0 && nodes_[static_cast<size_t>(found)].byte != byte) {
    found = nodes_[static_cast<size_t>(found)].next_sibling;
  }
  return found;
}

int32_t StopStrings::next(int32_t node, unsigned char byte) const {
  while (true) {
    const int32_t found = child(node, byte);
    if (found >= 0) return found;
    if (node == 0) return 0;
    node = nodes_[static_cast<size_t>(node)].suffix;
  }
}

bool StopMatcher::push(std::string_view text, std::string& out) {
  FATHOM_DCHECK(matched_ < 0, "push after a match");
  if (strings_ == nullptr) {
    out += text;
    return false;
  }
  const size_t num_held_before = held_.size();
  held_ += text;
  for (size_t i = 0; i < text.size(); ++i) {
    node_ = strings_->next(node_, static_cast<unsigned char>(text[i]));
    matched_ = strings_->nodes_[static_cast<size_t>(node_)].string_idx;
    if (matched_ < 0) continue;
    const size_t length = strings_->strings_[static_cast<size_t>(matched_)].size();
    out.append(held_, 0, num_held_before + i + 1 - length);
    held_.clear();
    return true;
  }
  const auto depth = static_cast<size_t>(strings_->nodes_[static_cast<size_t>(node_)].depth);
  out.append(held_, 0, held_.size() - depth);
  held_.erase(0, held_.size() - depth);
  return false;
}

void StopMatcher::finish(std::string& out) {
  out += held_;
  held_.clear();
  node_ = 0;
}

}  // namespace fathom::text
