#include "cache/radix_tree.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fathom::cache {
// A root has no tokens and no blocks and is in no list.
struct RadixTree::Node {
  Node* parent = nullptr;
  uint64_t hash = 0;                     // of the salt and all keys from the root to here
  uint64_t name = 0;                     // for the listener, where there is one
  std::string salt;                      // of a root
  std::vector<int32_t> tokens;           // its key: the block's, and the lookahead
  std::vector<BlockPool::Lease> blocks;  // one block per KV group
  int num_children = 0;
  int num_pins = 0;
  // The last one submitted when it was unpinned: none after it reads the blocks.
  int64_t last_step = -1;
  Node *older = nullptr, *newer = nullptr;  // in Owner::unpinned
  Owner* owner = nullptr;
};

struct RadixTree::Owner {
  Owner() { unpinned.older = unpinned.newer = &unpinned; }

  std::string name;
  int num_roots = 0, num_blocks = 0;
  // Circular list of its nodes without pins, the first to evict first. Descendants of a node come before it: a path is
  // pinned and unpinned as a whole, and its nodes enter the list from the end of the path up.
  Node unpinned;
  bool has_unpinned() const { return unpinned.newer != &unpinned; }
};

RadixTree::Pin::Pin(Pin&& other) noexcept
    : tree_(std::exchange(other.tree_, nullptr)), path_(std::exchange(other.path_, {})) {}

RadixTree::Pin& RadixTree::Pin::operator=(Pin&& other) noexcept {
  if (this == &other) return *this;
  if (tree_ != nullptr) tree_->unpin(path_);
  tree_ = std::exchange(other.tree_, nullptr);
  path_ = std::exchange(other.path_, {});
  return *this;
}

RadixTree::Pin::~Pin() {
  if (tree_ != nullptr) tree_->unpin(path_);
}

int RadixTree::Pin::num_tokens() const {
  return tree_ == nullptr ? 0 : num_blocks() * tree_->config_.block_tokens;
}

std::vector<int32_t> RadixTree::Pin::block_ids(int kv_group) const {
  std::vector<int32_t> ids;
  ids.reserve(path_.size());
  for (const Node* node : path_)
    ids.push_back(node->blocks.at(static_cast<size_t>(kv_group)).ids().front());
  return ids;
}

RadixTree::RadixTree(std::vector<BlockPool*> pools, const RadixTreeConfig& config)
    : config_(config),
      pools_(std::move(pools)),
      hash_(config.index != nullptr ? config.index->hash()
                                    : BlockHash({.block_tokens = config.block_tokens,
                                                 .lookahead_tokens = config.lookahead_tokens,
                                                 .mask = config.hash_mask})),
      names_(config.block_tokens) {
  FATHOM_CHECK(config.block_tokens >= 1 && config.lookahead_tokens >= 0 && !pools_.empty(),
               config.block_tokens << " tokens in a block, lookahead of " << config.lookahead_tokens
                                   << ", " << pools_.size() << " KV groups");
}

RadixTree::~RadixTree() { FATHOM_CHECK(num_pins_ == 0, num_pins_ << " pins outlive their tree"); }

const RadixTree::Node* RadixTree::root_of(std::string_view salt) const {
  const auto found = roots_.find(salt);
  return found == roots_.end() ? nullptr : found->second.get();
}

RadixTree::Node* RadixTree::child_of(const Node& parent, std::span<const int32_t> tokens) const {
  const auto [begin, end] = nodes_.equal_range(hash_.of_block(parent.hash, tokens));
  for (auto entry = begin; entry != end; ++entry) {
    Node& node = *entry->second;
    if (node.parent == &parent &&
        std::equal(tokens.begin(), tokens.end(), node.tokens.begin(), node.tokens.end()))
      return &node;
  }
  return nullptr;
}

std::vector<RadixTree::Node*> RadixTree::find_path(std::string_view salt,
                                                   std::span<const int32_t> tokens,
                                                   int64_t max_blocks) const {
  std::vector<Node*> path;
  const Node* parent = root_of(salt);
  while (parent != nullptr && static_cast<int64_t>(path.size()) < max_blocks) {
    Node* const node = child_of(*parent, hash_.key(tokens, path.size()));
    if (node != nullptr) path.push_back(node);
    parent = node;
  }
  return path;
}

RadixTree::Pin RadixTree::match(std::string_view salt, std::span<const int32_t> tokens,
                                int64_t max_tokens) {
  Pin pin;
  pin.tree_ = this;
  pin.path_ = find_path(salt, tokens, hash_.num_whole_blocks(tokens, max_tokens));
  for (Node* node : pin.path_) pin_node(*node);
  if (!pin.path_.empty()) ++num_pins_;
  return pin;
}

int64_t RadixTree::match_length(std::string_view salt, std::span<const int32_t> tokens,
                                int64_t max_tokens) const {
  return std::ssize(find_path(salt, tokens, hash_.num_whole_blocks(tokens, max_tokens))) *
         config_.block_tokens;
}

int RadixTree::publish(Pin& pin, std::string_view salt, std::span<const int32_t> tokens,
                       std::vector<BlockPool::Lease>& leases) {
  FATHOM_CHECK(pin.tree_ == nullptr || pin.tree_ == this, "a pin of another tree");
  FATHOM_CHECK(leases.size() == pools_.size(),
               leases.size() << " leases for " << pools_.size() << " KV groups");
  const size_t num_known = pin.path_.size();
  const auto num_whole = static_cast<size_t>(hash_.num_whole_blocks(tokens, std::ssize(tokens)));
  if (num_whole <= num_known) return 0;
  const Node* const found_root = root_of(salt);
  FATHOM_CHECK(num_known == 0 || pin.path_.front()->parent == found_root, "a pin of another salt");
  const Node* const last = num_known == 0 ? found_root : pin.path_.back();
  // Below a new node everything is new, so only the first block can be there already.
  if (last != nullptr && child_of(*last, hash_.key(tokens, num_known)) != nullptr) return 0;

  std::vector<std::vector<BlockPool::Lease>> entering;  // [KV group][block]
  for (BlockPool::Lease& lease : leases)
    entering.push_back(lease.take_front(static_cast<int>(num_whole - num_known)).split());
  Node* parent = num_known == 0 ? &root_for(salt) : pin.path_.back();
  if (num_known == 0) ++num_pins_;
  for (size_t i = num_known; i < num_whole; ++i) {
    std::vector<BlockPool::Lease> blocks;
    for (std::vector<BlockPool::Lease>& group : entering)
      blocks.push_back(std::move(group[i - num_known]));
    parent = &add_node(*parent, hash_.key(tokens, i), std::move(blocks));
    pin.path_.push_back(parent);
  }
  pin.tree_ = this;
  if (config_.listener != nullptr) tell_stored(pin.path_, num_known, salt, tokens);
  return static_cast<int>(num_whole - num_known);
}

void RadixTree::tell_stored(const std::vector<Node*>& path, size_t first, std::string_view salt,
                            std::span<const int32_t> tokens) {
  const auto block_tokens = static_cast<size_t>(config_.block_tokens);
  std::vector<uint64_t> names;
  names.reserve(path.size() - first);
  for (size_t i = first; i < path.size(); ++i) {
    const uint64_t before = i == 0 ? names_.of_salt(salt) : path[i - 1]->name;
    path[i]->name = names_.of_block(before, tokens.subspan(i * block_tokens, block_tokens));
    names.push_back(path[i]->name);
  }
  config_.listener->stored(
      config_.index_place,
      {.salt = salt,
       .parent = first == 0 ? 0 : path[first - 1]->name,
       .names = names,
       .tokens = tokens.subspan(first * block_tokens, names.size() * block_tokens),
       .block_tokens = config_.block_tokens});
}

RadixTree::Owner& RadixTree::owner_of_salt(std::string_view salt) {
  const std::string_view name = salt.substr(0, salt.find('\n'));
  const auto found = owners_.find(name);
  if (found != owners_.end()) return *found->second;
  auto owner = std::make_unique<Owner>();
  owner->name = name;
  return *owners_.emplace(name, std::move(owner)).first->second;
}

RadixTree::Node& RadixTree::root_for(std::string_view salt) {
  const auto found = roots_.find(salt);
  if (found != roots_.end()) return *found->second;
  auto root = std::make_unique<Node>();
  root->salt = salt;
  root->hash = hash_.of_salt(salt);
  root->owner = &owner_of_salt(salt);
  ++root->owner->num_roots;
  return *roots_.emplace(salt, std::move(root)).first->second;
}

// The node belongs to a pin from the start.
RadixTree::Node& RadixTree::add_node(Node& parent, std::span<const int32_t> tokens,
                                     std::vector<BlockPool::Lease> blocks) {
  auto node = std::make_unique<Node>();
  node->parent = &parent;
  node->hash = hash_.of_block(parent.hash, tokens);
  node->tokens.assign(tokens.begin(), tokens.end());
  node->blocks = std::move(blocks);
  node->num_pins = 1;
  node->owner = parent.owner;
  ++node->owner->num_blocks;
  ++num_pinned_;
  ++parent.num_children;
  const uint64_t hash = node->hash;
  if (config_.index != nullptr) config_.index->add(hash, config_.index_place);
  return *nodes_.emplace(hash, std::move(node))->second;
}

void RadixTree::remove_leaf(Node& node) {
  FATHOM_CHECK(
      node.num_pins == 0 && node.num_children == 0,
      "evicting a node with " << node.num_pins << " pins and " << node.num_children << " children");
  unlink(node);
  Owner* const owner = node.owner;
  --owner->num_blocks;
  for (BlockPool::Lease& block : node.blocks) block.release_as_of(node.last_step);
  Node* const parent = node.parent;
  --parent->num_children;
  if (config_.index != nullptr) config_.index->remove(node.hash, config_.index_place);
  if (config_.listener != nullptr) config_.listener->removed(config_.index_place, node.name);
  const auto [begin, end] = nodes_.equal_range(node.hash);
  nodes_.erase(
      std::find_if(begin, end, [&](const auto& entry) { return entry.second.get() == &node; }));
  if (parent->parent != nullptr || parent->num_children > 0) return;
  roots_.erase(roots_.find(parent->salt));
  if (--owner->num_roots == 0) owners_.erase(owners_.find(owner->name));
}

int RadixTree::evict(int num_blocks) {
  // A heap of those that can give some: who holds the most is first, of equals whose name is.
  std::vector<Owner*> owners;
  for (const auto& [name, owner] : owners_)
    if (owner->has_unpinned()) owners.push_back(owner.get());
  const auto gives_after = [](const Owner* a, const Owner* b) {
    return a->num_blocks != b->num_blocks ? a->num_blocks < b->num_blocks : a->name > b->name;
  };
  std::make_heap(owners.begin(), owners.end(), gives_after);
  int num_evicted = 0;
  for (; num_evicted < num_blocks && !owners.empty(); ++num_evicted) {
    std::pop_heap(owners.begin(), owners.end(), gives_after);
    Owner& owner = *owners.back();
    const bool ends = owner.num_blocks == 1;  // then its last block takes it along
    remove_leaf(*owner.unpinned.newer);
    if (ends || !owner.has_unpinned())
      owners.pop_back();
    else
      std::push_heap(owners.begin(), owners.end(), gives_after);
  }
  num_evicted_ += num_evicted;
  return num_evicted;
}

void RadixTree::clear() {
  evict(num_blocks());
  if (config_.listener != nullptr && nodes_.empty()) config_.listener->cleared(config_.index_place);
}

void RadixTree::pin_node(Node& node) {
  if (++node.num_pins > 1) return;
  unlink(node);
  ++num_pinned_;
}

void RadixTree::unpin(const std::vector<Node*>& path) {
  if (path.empty()) return;
  --num_pins_;
  for (auto node = path.rbegin(); node != path.rend(); ++node) {
    if (--(*node)->num_pins > 0) continue;
    (*node)->last_step = pools_.front()->last_submitted();
    link_as_newest(**node);
    --num_pinned_;
  }
}

void RadixTree::link_as_newest(Node& node) {
  node.newer = &node.owner->unpinned;
  node.older = node.newer->older;
  node.older->newer = node.newer->older = &node;
}

void RadixTree::unlink(Node& node) {
  node.older->newer = node.newer;
  node.newer->older = node.older;
  node.older = node.newer = nullptr;
}

std::string RadixTree::check_integrity() const {
  if (std::string problem = check_nodes(); !problem.empty()) return problem;
  if (std::string problem = check_children(); !problem.empty()) return problem;
  return check_order();
}

std::string RadixTree::check_some(uint64_t part) const {
  constexpr size_t kBuckets = 2048;
  const size_t num_buckets = nodes_.bucket_count();
  const size_t begin = part % ((num_buckets + kBuckets - 1) / kBuckets) * kBuckets;
  for (size_t bucket = begin; bucket < std::min(begin + kBuckets, num_buckets); ++bucket)
    for (auto entry = nodes_.begin(bucket); entry != nodes_.end(bucket); ++entry)
      if (std::string problem = check_node(*entry->second); !problem.empty()) return problem;
  return "";
}

std::string RadixTree::check_node(const Node& node) const {
  if (node.parent == nullptr || node.num_children < 0 || node.num_pins < 0)
    return "a node without a parent or with a negative count";
  if (static_cast<int>(node.tokens.size()) != config_.block_tokens + config_.lookahead_tokens)
    return "a node of " + std::to_string(node.tokens.size()) + " tokens";
  if (child_of(*node.parent, node.tokens) != &node)
    return "a node is not found by its tokens, or twice";
  if (node.num_pins > node.parent->num_pins && node.parent->parent != nullptr)
    return "a node has more pins than its parent";
  if (node.newer != nullptr && (node.newer->older != &node || node.older->newer != &node))
    return "the LRU list is broken";
  if ((node.newer == nullptr) != (node.num_pins > 0))
    return "a node with " + std::to_string(node.num_pins) + " pins " +
           (node.newer == nullptr ? "cannot be evicted" : "can be evicted");
  if (node.blocks.size() != pools_.size()) return "a node without a block in every KV group";
  for (size_t group = 0; group < pools_.size(); ++group) {
    const std::vector<int32_t>& ids = node.blocks[group].ids();
    if (ids.size() != 1 || !pools_[group]->is_owned(ids.front()))
      return "a node does not own one block of KV group " + std::to_string(group);
  }
  return "";
}

std::string RadixTree::check_nodes() const {
  std::vector<std::vector<int32_t>> ids(pools_.size());
  int num_pinned = 0;
  for (const auto& [hash, node] : nodes_) {
    if (hash != node->hash) return "a node is filed under another hash";
    if (std::string problem = check_node(*node); !problem.empty()) return problem;
    num_pinned += node->num_pins > 0 ? 1 : 0;
    for (size_t group = 0; group < ids.size(); ++group)
      ids[group].push_back(node->blocks[group].ids().front());
  }
  if (num_pinned != num_pinned_)
    return std::to_string(num_pinned) + " nodes have pins, counted " + std::to_string(num_pinned_);
  for (std::vector<int32_t>& group : ids) {
    std::sort(group.begin(), group.end());
    if (std::adjacent_find(group.begin(), group.end()) != group.end())
      return "two nodes own the same block";
  }
  return "";
}

std::string RadixTree::check_children() const {
  struct Children {
    int count = 0, pins = 0;
  };
  std::unordered_map<const Node*, Children> children;  // of nodes that have some
  for (const auto& [hash, node] : nodes_) {
    ++children[node->parent].count;
    children[node->parent].pins += node->num_pins;
  }
  size_t num_parents = 0;
  int64_t num_paths = 0;  // every pin starts at a root
  for (const auto& [salt, root] : roots_) {
    if (root->salt != salt || root->num_children == 0)
      return "an empty root or one of another salt";
    if (children[root.get()].count != root->num_children) return "a root's children are miscounted";
    num_paths += children[root.get()].pins;
    ++num_parents;
  }
  if (num_paths != num_pins_)
    return std::to_string(num_paths) + " pins on nodes, counted " + std::to_string(num_pins_);
  for (const auto& [hash, node] : nodes_) {
    const auto found = children.find(node.get());
    const Children below = found == children.end() ? Children{} : found->second;
    if (below.count != node->num_children || below.pins > node->num_pins)
      return "a node's children or their pins are miscounted";
    num_parents += below.count > 0 ? 1 : 0;
  }
  return children.size() == num_parents ? ""
                                        : "a node hangs below something that is not in the tree";
}

std::string RadixTree::check_order_of(const Owner& owner, int& num_listed) {
  std::unordered_map<const Node*, int> num_seen_children;
  int num_left = owner.num_blocks;
  for (const Node* node = owner.unpinned.newer; node != &owner.unpinned; node = node->newer) {
    if (node->newer == nullptr || node->newer->older != node) return "the LRU list is broken";
    if (node->owner != &owner) return "a node is in the LRU list of another owner";
    if (node->num_pins > 0) return "a pinned node is in the LRU list";
    if (num_seen_children[node] != node->num_children)
      return "a node would be evicted before its children";
    ++num_seen_children[node->parent];
    if (--num_left < 0) return "the LRU list does not end";
    ++num_listed;
  }
  return "";
}

std::string RadixTree::check_order() const {
  int num_listed = 0, num_owned = 0;
  for (const auto& [name, owner] : owners_) {
    if (std::string problem = check_order_of(*owner, num_listed); !problem.empty()) return problem;
    num_owned += owner->num_blocks;
  }
  if (num_owned != num_blocks())
    return "owners have " + std::to_string(num_owned) + " of " + std::to_string(num_blocks()) +
           " nodes";
  if (num_listed != num_blocks() - num_pinned_)
    return std::to_string(num_listed) + " nodes can be evicted, " +
           std::to_string(num_blocks() - num_pinned_) + " have no pins";
  return "";
}

}  // namespace fathom::cache
