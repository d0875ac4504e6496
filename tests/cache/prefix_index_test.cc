#include "cache/prefix_index.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "cache/radix_tree.h"

namespace fathom::cache {
namespace {

constexpr int kIndexBlockTokens = 4;

std::vector<int32_t> tokens_from(int first, int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

// Trees with pools of their own, looked up in one index.
class PrefixIndexTest : public ::testing::Test {
 protected:
  void make_trees(int count, int lookahead_tokens = 0) {
    index_ = std::make_unique<PrefixIndex>(
        BlockHashConfig{.block_tokens = kIndexBlockTokens, .lookahead_tokens = lookahead_tokens});
    for (int i = 0; i < count; ++i) {
      pools_.push_back(std::make_unique<BlockPool>(BlockPoolConfig{.num_blocks = 16}));
      trees_.push_back(
          std::make_unique<RadixTree>(std::vector<BlockPool*>{pools_.back().get()},
                                      RadixTreeConfig{.block_tokens = kIndexBlockTokens,
                                                      .lookahead_tokens = lookahead_tokens,
                                                      .index = index_.get(),
                                                      .index_place = i}));
    }
  }
  void publish(size_t tree, const std::vector<int32_t>& tokens, const char* salt = "") {
    std::vector<BlockPool::Lease> leases;
    leases.push_back(
        pools_[tree]->lease(static_cast<int>(tokens.size()) / kIndexBlockTokens).value());
    RadixTree::Pin pin = trees_[tree]->match(salt, tokens, std::ssize(tokens));
    trees_[tree]->publish(pin, salt, tokens, leases);
  }
  std::vector<int32_t> find(const std::vector<int32_t>& tokens, int64_t max_tokens,
                            const char* salt = "") const {
    std::vector<int32_t> num_blocks(trees_.size(), -1);
    index_->find(salt, tokens, max_tokens, num_blocks);
    return num_blocks;
  }
  // What the trees themselves say.
  std::vector<int32_t> walked(const std::vector<int32_t>& tokens, int64_t max_tokens) const {
    std::vector<int32_t> num_blocks;
    for (const auto& tree : trees_)
      num_blocks.push_back(static_cast<int32_t>(tree->match_length("", tokens, max_tokens)) /
                           kIndexBlockTokens);
    return num_blocks;
  }

  std::unique_ptr<PrefixIndex> index_;
  std::vector<std::unique_ptr<BlockPool>> pools_;
  std::vector<std::unique_ptr<RadixTree>> trees_;
};

TEST_F(PrefixIndexTest, says_how_much_of_a_prefix_each_cache_has) {
  make_trees(4);
  const std::vector<int32_t> text = tokens_from(0, 20);
  publish(0, tokens_from(0, 8));
  publish(1, text);
  publish(2, tokens_from(100, 8));
  EXPECT_EQ(find(text, 20), (std::vector<int32_t>{2, 5, 0, 0}));
  EXPECT_EQ(find(text, 19), (std::vector<int32_t>{2, 4, 0, 0}));
  EXPECT_EQ(find(tokens_from(0, 7), 7), (std::vector<int32_t>{1, 1, 0, 0}));
  EXPECT_EQ(find(text, 20, "salt"), (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_EQ(find(text, 20), walked(text, 20));
  EXPECT_EQ(index_->num_entries(), 2 + 5 + 2);
}

TEST_F(PrefixIndexTest, forgets_what_a_cache_evicts_and_keeps_what_others_have) {
  make_trees(2);
  const std::vector<int32_t> text = tokens_from(0, 12);
  publish(0, text);
  publish(1, text);
  trees_[0]->evict(1);
  EXPECT_EQ(find(text, 12), (std::vector<int32_t>{2, 3}));
  trees_[0]->clear();
  EXPECT_EQ(find(text, 12), (std::vector<int32_t>{0, 3}));
  trees_[1]->clear();
  EXPECT_EQ(index_->num_entries(), 0);
}

// A block is known with the token behind it, or not at all.
TEST_F(PrefixIndexTest, looks_behind_blocks_as_the_trees_do) {
  make_trees(1, /*lookahead_tokens=*/1);
  publish(0, tokens_from(0, 9));
  std::vector<int32_t> other = tokens_from(0, 9);
  other[8] = 77;
  EXPECT_EQ(find(tokens_from(0, 9), 9), std::vector<int32_t>{2});
  EXPECT_EQ(find(other, 9), std::vector<int32_t>{1});
  EXPECT_EQ(find(tokens_from(0, 8), 8), std::vector<int32_t>{1});
}

TEST_F(PrefixIndexTest, has_room_for_sixty_four_caches) {
  make_trees(PrefixIndex::kMaxCaches);
  publish(63, tokens_from(0, 8));
  publish(0, tokens_from(0, 4));
  const std::vector<int32_t> found = find(tokens_from(0, 8), 8);
  EXPECT_EQ(found.front(), 1);
  EXPECT_EQ(found.back(), 2);
  EXPECT_EQ(found[1], 0);
}

}  // namespace
}  // namespace fathom::cache
