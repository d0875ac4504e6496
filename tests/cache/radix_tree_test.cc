#include "cache/radix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <set>
#include <string>

#include "tests/cpu_time.h"

namespace fathom::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

using Tokens = std::vector<int32_t>;
using Leases = std::vector<BlockPool::Lease>;

constexpr int kBlockTokens = 4;
constexpr int kNumBlocks = 16;

// Token i of a prompt is 100 * family + i.
Tokens prompt(int num_tokens, int family = 0) {
  Tokens tokens(static_cast<size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), 100 * family);
  return tokens;
}

class RadixTreeTest : public ::testing::Test {
 protected:
  ~RadixTreeTest() override { EXPECT_EQ(tree_.check_integrity(), ""); }

  Leases lease(int num_blocks) {
    Leases leases;
    leases.push_back(pool_.lease(num_blocks).value());
    return leases;
  }

  // A sequence of these tokens runs alone and ends; returns its blocks that the tree kept.
  Tokens remember(const Tokens& tokens, const std::string& salt = "") {
    RadixTree::Pin pin = tree_.match(salt, tokens, std::ssize(tokens));
    Leases leases = lease(static_cast<int>(tokens.size()) / kBlockTokens - pin.num_blocks());
    tree_.publish(pin, salt, tokens, leases);
    EXPECT_EQ(tree_.check_integrity(), "");
    return pin.block_ids(0);
  }

  BlockPool pool_{{.num_blocks = kNumBlocks}};
  RadixTree tree_{{&pool_}, {.block_tokens = kBlockTokens}};
};

// Keeps the names that it hears, in order; removed ones are negated.
struct Heard : BlockListener {
  void stored(int cache, const StoredBlocks& blocks) override {
    events += "+" + std::to_string(blocks.names.size()) + "@" + std::to_string(cache) + " ";
    parents.push_back(blocks.parent);
    names.insert(names.end(), blocks.names.begin(), blocks.names.end());
    tokens.assign(blocks.tokens.begin(), blocks.tokens.end());
  }
  void removed(int /*cache*/, uint64_t name) override {
    events += "- ";
    gone.push_back(name);
  }
  void cleared(int /*cache*/) override { events += "clear "; }

  std::string events;
  std::vector<uint64_t> parents, names, gone;
  Tokens tokens;
};

TEST(RadixTreeListener, hears_names_that_every_tree_gives_to_the_same_prefix) {
  Heard heard[2];
  for (int i = 0; i < 2; ++i) {
    BlockPool pool({.num_blocks = kNumBlocks});
    RadixTree tree({&pool}, {.block_tokens = kBlockTokens,
                             .lookahead_tokens = i,  // no part of a name
                             .index_place = i,
                             .listener = &heard[i]});
    const auto remember = [&](const Tokens& tokens, const std::string& salt) {
      RadixTree::Pin pin = tree.match(salt, tokens, std::ssize(tokens));
      Leases leases;
      leases.push_back(pool.lease(3).value());
      tree.publish(pin, salt, tokens, leases);
    };
    remember(prompt(9), "key\nsalt");
    EXPECT_THAT(heard[i].tokens, ElementsAreArray(prompt(8)));
    remember(prompt(13), "key\nsalt");
    EXPECT_THAT(heard[i].tokens, ElementsAre(8, 9, 10, 11));
    remember(prompt(9), "other\nsalt");
    tree.clear();
  }
  EXPECT_EQ(heard[0].events, "+2@0 +1@0 +2@0 - - - - - clear ");
  EXPECT_EQ(heard[1].events, "+2@1 +1@1 +2@1 - - - - - clear ");
  EXPECT_EQ(heard[0].names, heard[1].names);
  EXPECT_THAT(heard[0].parents, ElementsAre(0, heard[0].names[1], 0));
  const std::set<uint64_t> names(heard[0].names.begin(), heard[0].names.end());
  EXPECT_EQ(names.size(), 5u);  // the salt is part of them
  EXPECT_EQ(std::set<uint64_t>(heard[0].gone.begin(), heard[0].gone.end()), names);
  // Of earlier versions too: an index outlives an update.
  EXPECT_EQ(heard[0].names[0], 10851772069256387283u);
}

TEST(RadixTreeLookahead, finds_a_block_only_with_the_tokens_behind_it) {
  BlockPool pool({.num_blocks = kNumBlocks});
  RadixTree tree({&pool}, {.block_tokens = kBlockTokens, .lookahead_tokens = 1});
  const auto publish = [&](const Tokens& tokens) {
    RadixTree::Pin pin = tree.match("", tokens, std::ssize(tokens));
    Leases leases;
    leases.push_back(
        pool.lease(static_cast<int>(tokens.size()) / kBlockTokens - pin.num_blocks()).value());
    return tree.publish(pin, "", tokens, leases);
  };
  // The token behind the second block is not known.
  EXPECT_EQ(publish(prompt(8)), 1);
  EXPECT_EQ(publish(prompt(9)), 1);
  EXPECT_EQ(tree.match_length("", prompt(4)), 0);
  EXPECT_EQ(tree.match_length("", prompt(5)), 4);
  EXPECT_EQ(tree.match_length("", prompt(8)), 4);
  EXPECT_EQ(tree.match_length("", prompt(9)), 8);
  EXPECT_EQ(tree.match_length("", prompt(9), 7), 4);
  Tokens other = prompt(9);
  other[8] = 77;
  EXPECT_EQ(tree.match_length("", other), 4);
  // The same block before another token is another entry with rows of its own.
  EXPECT_EQ(publish(other), 1);
  EXPECT_EQ(tree.num_blocks(), 3);
  EXPECT_NE(tree.match("", other, 8).block_ids(0).at(1),
            tree.match("", prompt(9), 8).block_ids(0).at(1));
  EXPECT_EQ(tree.check_integrity(), "");
  tree.clear();
  EXPECT_EQ(pool.num_free(), kNumBlocks);
}

TEST_F(RadixTreeTest, an_empty_tree_matches_nothing) {
  EXPECT_EQ(tree_.match_length("", prompt(8)), 0);
  const RadixTree::Pin pin = tree_.match("", prompt(8), 8);
  EXPECT_EQ(pin.num_tokens(), 0);
  EXPECT_THAT(pin.block_ids(0), IsEmpty());
  EXPECT_EQ(RadixTree::Pin().num_tokens(), 0);
}

TEST_F(RadixTreeTest, hits_are_whole_blocks_at_every_edge) {
  const Tokens ids = remember(prompt(12));
  ASSERT_THAT(ids, ::testing::SizeIs(3));
  for (const int length : {0, 1, 3, 4, 5, 7, 8, 9, 11, 12, 13, 40}) {
    const int64_t hit = std::min(length, 12) / kBlockTokens * kBlockTokens;
    EXPECT_EQ(tree_.match_length("", prompt(length)), hit) << length;
    const RadixTree::Pin pin = tree_.match("", prompt(length), length);
    EXPECT_EQ(pin.num_tokens(), hit) << length;
    EXPECT_THAT(pin.block_ids(0), ElementsAreArray(ids.begin(), ids.begin() + hit / 4)) << length;
  }
}

TEST_F(RadixTreeTest, a_full_hit_leaves_what_max_tokens_leaves) {
  remember(prompt(12));
  const Tokens tokens = prompt(12);
  EXPECT_EQ(tree_.match("", tokens, 12).num_tokens(), 12);
  EXPECT_EQ(tree_.match("", tokens, 11).num_tokens(), 8);
  EXPECT_EQ(tree_.match("", tokens, 3).num_tokens(), 0);
  EXPECT_EQ(tree_.match("", tokens, 0).num_tokens(), 0);
  EXPECT_EQ(tree_.match("", tokens, -1).num_tokens(), 0);
  EXPECT_EQ(tree_.match("", tokens, 1000).num_tokens(), 12);
}

TEST_F(RadixTreeTest, a_difference_inside_a_block_ends_the_hit_before_it) {
  remember(prompt(12));
  for (size_t i = 0; i < 12; ++i) {
    Tokens other = prompt(12);
    other[i] = -1;
    EXPECT_EQ(tree_.match_length("", other), static_cast<int64_t>(i) / 4 * 4) << i;
  }
}

TEST_F(RadixTreeTest, takes_whole_blocks_and_leaves_the_rest_in_the_lease) {
  RadixTree::Pin pin;
  Leases leases = lease(3);
  const Tokens ids = leases[0].ids();
  EXPECT_EQ(tree_.publish(pin, "", prompt(3), leases), 0);
  EXPECT_EQ(tree_.publish(pin, "", prompt(9), leases), 2);
  EXPECT_THAT(leases[0].ids(), ElementsAre(ids[2]));
  EXPECT_THAT(pin.block_ids(0), ElementsAre(ids[0], ids[1]));
  EXPECT_EQ(tree_.publish(pin, "", prompt(11), leases), 0);
  EXPECT_EQ(tree_.publish(pin, "", prompt(12), leases), 1);
  EXPECT_THAT(leases[0].ids(), IsEmpty());
  EXPECT_EQ(pin.num_tokens(), 12);
  EXPECT_EQ(tree_.num_blocks(), 3);
  EXPECT_EQ(pool_.num_owned(), 3);
}

TEST_F(RadixTreeTest, a_second_copy_stays_with_its_sequence) {
  RadixTree::Pin first, second;
  Leases first_leases = lease(3), second_leases = lease(3);
  const Tokens second_ids = second_leases[0].ids();
  EXPECT_EQ(tree_.publish(first, "", prompt(8), first_leases), 2);
  EXPECT_EQ(tree_.publish(second, "", prompt(12), second_leases), 0);
  EXPECT_EQ(second_leases[0].ids(), second_ids);
  EXPECT_EQ(second.num_blocks(), 0);
  EXPECT_EQ(tree_.num_blocks(), 2);

  // Once the first copy is gone, the second one enters.
  first = {};
  EXPECT_EQ(tree_.evict(2), 2);
  EXPECT_EQ(tree_.publish(second, "", prompt(12), second_leases), 3);
  EXPECT_EQ(second.block_ids(0), second_ids);
}

TEST_F(RadixTreeTest, salts_never_meet) {
  const Tokens red = remember(prompt(8), "red"), blue = remember(prompt(8), "blue");
  remember(prompt(8), "");
  EXPECT_EQ(tree_.num_blocks(), 6);
  EXPECT_EQ(tree_.match("red", prompt(8), 8).block_ids(0), red);
  EXPECT_EQ(tree_.match("blue", prompt(8), 8).block_ids(0), blue);
  EXPECT_EQ(tree_.match_length("green", prompt(8)), 0);
  EXPECT_EQ(tree_.match_length("re", prompt(8)), 0);
}

TEST_F(RadixTreeTest, evicts_from_the_leaves_up_least_recently_used_first) {
  remember(prompt(8, 1));
  remember(prompt(4, 2));
  remember(prompt(8, 3));
  tree_.match("", prompt(8, 1), 8);  // used again
  EXPECT_EQ(tree_.evict(1), 1);
  EXPECT_EQ(tree_.match_length("", prompt(4, 2)), 0);
  EXPECT_EQ(tree_.evict(1), 1);
  EXPECT_EQ(tree_.match_length("", prompt(8, 3)), 4);
  EXPECT_EQ(tree_.evict(1), 1);
  EXPECT_EQ(tree_.match_length("", prompt(8, 3)), 0);
  EXPECT_EQ(tree_.match_length("", prompt(8, 1)), 8);
  EXPECT_EQ(tree_.evict(100), 2);
  EXPECT_EQ(tree_.evict(1), 0);
  EXPECT_EQ(tree_.num_evicted_blocks(), 5);
  EXPECT_EQ(pool_.num_free(), kNumBlocks);
}

TEST_F(RadixTreeTest, whoever_holds_the_most_makes_room) {
  remember(prompt(16, 1), "bob\n");
  for (int family = 2; family < 5; ++family) {
    remember(prompt(16, family), "alice\n" + std::to_string(family % 2));
  }
  const auto length_of = [&](const std::string& salt, int family) {
    return tree_.match_length(salt, prompt(16, family));
  };
  EXPECT_EQ(tree_.evict(6), 6);
  EXPECT_EQ(length_of("bob\n", 1), 16);
  EXPECT_EQ(length_of("alice\n0", 2), 0);  // the one that alice used least recently
  EXPECT_EQ(length_of("alice\n1", 3), 8);
  EXPECT_EQ(length_of("alice\n0", 4), 16);
  // What alice has in use cannot be evicted, so it is bob's turn.
  const RadixTree::Pin pin = tree_.match("alice\n0", prompt(16, 4), 16);
  EXPECT_EQ(tree_.evict(4), 4);
  EXPECT_EQ(length_of("alice\n1", 3), 0);
  EXPECT_EQ(length_of("bob\n", 1), 8);
}

TEST_F(RadixTreeTest, asking_for_a_length_is_no_use) {
  remember(prompt(4, 1));
  remember(prompt(4, 2));
  tree_.match_length("", prompt(4, 1));
  tree_.evict(1);
  EXPECT_EQ(tree_.match_length("", prompt(4, 1)), 0);
  EXPECT_EQ(tree_.match_length("", prompt(4, 2)), 4);
}

TEST_F(RadixTreeTest, a_pin_protects_its_path_and_not_what_hangs_below) {
  remember(prompt(16));
  RadixTree::Pin pin = tree_.match("", prompt(8), 8);
  EXPECT_EQ(tree_.num_pinned_blocks(), 2);
  EXPECT_EQ(tree_.evict(100), 2);
  EXPECT_EQ(tree_.match_length("", prompt(16)), 8);
  RadixTree::Pin longer = tree_.match("", prompt(4), 4);
  pin = std::move(longer);  // unpins the second block
  EXPECT_EQ(tree_.num_pinned_blocks(), 1);
  EXPECT_EQ(tree_.evict(100), 1);
  tree_.clear();
  EXPECT_EQ(tree_.num_blocks(), 1);
  pin = {};
  EXPECT_EQ(tree_.num_pinned_blocks(), 0);
  tree_.clear();
  EXPECT_EQ(tree_.num_blocks(), 0);
  EXPECT_EQ(pool_.num_free(), kNumBlocks);
}

TEST_F(RadixTreeTest, two_pins_of_one_path_must_both_go) {
  remember(prompt(8));
  RadixTree::Pin first = tree_.match("", prompt(8), 8), second = tree_.match("", prompt(8), 8);
  first = {};
  EXPECT_EQ(tree_.evict(2), 0);
  second = {};
  EXPECT_EQ(tree_.evict(2), 2);
}

TEST_F(RadixTreeTest, what_a_sequence_published_is_pinned_by_it) {
  RadixTree::Pin pin;
  Leases leases = lease(2);
  tree_.publish(pin, "", prompt(8), leases);
  EXPECT_EQ(tree_.evict(2), 0);
  pin = {};
  EXPECT_EQ(tree_.evict(2), 2);
}

TEST_F(RadixTreeTest, evicted_blocks_are_fenced_while_a_step_that_may_read_them_is_in_flight) {
  remember(prompt(64));
  EXPECT_EQ(pool_.num_free(), 0);
  RadixTree::Pin pin = tree_.match("", prompt(64), 64);
  pool_.step_submitted(0);
  pin = {};
  EXPECT_EQ(tree_.evict(3), 3);
  EXPECT_EQ(pool_.num_fenced(), 3);
  EXPECT_FALSE(pool_.lease(1));
  pool_.step_submitted(1);
  tree_.clear();
  pool_.step_done(0);
  EXPECT_EQ(pool_.num_free(), 3);
  pool_.step_done(1);
  EXPECT_EQ(pool_.num_free(), kNumBlocks);
}

TEST_F(RadixTreeTest, blocks_that_no_step_in_flight_can_read_are_free_once_evicted) {
  remember(prompt(64));
  pool_.step_submitted(0);
  EXPECT_EQ(tree_.evict(3), 3);
  EXPECT_EQ(pool_.num_free(), 3);
  EXPECT_TRUE(pool_.lease(3));
}

TEST_F(RadixTreeTest, the_destructor_gives_everything_back) {
  {
    RadixTree other({&pool_}, {.block_tokens = kBlockTokens});
    RadixTree::Pin pin;
    Leases leases = lease(3);
    other.publish(pin, "", prompt(12), leases);
  }
  EXPECT_EQ(pool_.num_free(), kNumBlocks);
}

TEST_F(RadixTreeTest, colliding_hashes_change_nothing) {
  RadixTree tree({&pool_}, {.block_tokens = 2, .hash_mask = 0});
  std::vector<Tokens> all_ids;
  for (int family = 0; family < 4; ++family) {
    RadixTree::Pin pin;
    Leases leases = lease(4);
    all_ids.push_back(leases[0].ids());
    EXPECT_EQ(tree.publish(pin, "", prompt(8, family), leases), 4);
  }
  EXPECT_EQ(tree.check_integrity(), "");
  for (int family = 0; family < 4; ++family)
    EXPECT_EQ(tree.match("", prompt(8, family), 8).block_ids(0),
              all_ids[static_cast<size_t>(family)]);
  EXPECT_EQ(tree.match_length("", prompt(8, 5)), 0);
  tree.clear();
  EXPECT_EQ(tree.check_integrity(), "");
}

TEST(RadixTreeGroups, every_kv_group_has_a_block_of_every_node) {
  BlockPool latent({.num_blocks = 4}), index({.num_blocks = 8});
  RadixTree tree({&latent, &index}, {.block_tokens = kBlockTokens});
  BlockPool::Lease other = index.lease(3).value();
  Leases leases;
  leases.push_back(latent.lease(2).value());
  leases.push_back(index.lease(2).value());
  const Tokens latent_ids = leases[0].ids(), index_ids = leases[1].ids();
  EXPECT_NE(latent_ids, index_ids);
  RadixTree::Pin pin;
  EXPECT_EQ(tree.publish(pin, "", prompt(8), leases), 2);
  EXPECT_EQ(pin.block_ids(0), latent_ids);
  EXPECT_EQ(pin.block_ids(1), index_ids);
  EXPECT_EQ(tree.check_integrity(), "");
  pin = {};
  EXPECT_EQ(tree.evict(1), 1);
  EXPECT_EQ(latent.num_owned(), 1);
  EXPECT_EQ(index.num_owned(), 4);
}

// Of a tree with this many owners, each of which has so many blocks below a salt of its own.
double seconds_to_clear(int num_owners, int blocks_each) {
  const int num_blocks = num_owners * blocks_each;
  BlockPool pool({.num_blocks = num_blocks});
  RadixTree tree({&pool}, {.block_tokens = kBlockTokens});
  for (int owner = 0; owner < num_owners; ++owner) {
    RadixTree::Pin pin;
    Leases leases;
    leases.push_back(pool.lease(blocks_each).value());
    tree.publish(pin, std::to_string(owner) + '\n', prompt(blocks_each * kBlockTokens), leases);
  }
  const CpuStopwatch watch;
  tree.clear();
  const double seconds = watch.seconds();
  EXPECT_EQ(pool.num_free(), num_blocks);
  return seconds;
}

TEST(RadixTreeOwners,
     a_block_of_one_among_thousands_is_given_up_as_quickly_as_one_of_a_lone_owner) {
  constexpr int kOwners = 16'000;
  EXPECT_LT(seconds_to_clear(kOwners, 1), 100 * seconds_to_clear(1, kOwners) + 0.05);
}

TEST(RadixTreeParts, looking_at_a_part_costs_a_part) {
  constexpr int kManyBlocks = 50'000;
  BlockPool pool({.num_blocks = kManyBlocks});
  RadixTree tree({&pool}, {.block_tokens = kBlockTokens});
  Leases leases;
  leases.push_back(pool.lease(kManyBlocks).value());
  RadixTree::Pin pin;
  tree.publish(pin, "", prompt(kManyBlocks * kBlockTokens), leases);
  const auto seconds_of = [](const auto& check) {
    const CpuStopwatch watch;
    EXPECT_EQ(check(), "");
    return watch.seconds();
  };
  const double whole = seconds_of([&] { return tree.check_integrity(); });
  for (const uint64_t part : {0U, 1U, 7U, 1000U})
    EXPECT_LT(seconds_of([&] { return tree.check_some(part); }), whole / 4);
}

using RadixTreeDeath = RadixTreeTest;

TEST_F(RadixTreeDeath, misuse_aborts) {
  RadixTree::Pin pin;
  Leases leases = lease(2);
  EXPECT_DEATH(tree_.publish(pin, "", prompt(12), leases), "3 blocks to take from a lease of 2");
  Leases no_groups;
  EXPECT_DEATH(tree_.publish(pin, "", prompt(8), no_groups), "0 leases for 1 KV groups");
  tree_.publish(pin, "red", prompt(4), leases);
  EXPECT_DEATH(tree_.publish(pin, "blue", prompt(8), leases), "a pin of another salt");
  EXPECT_DEATH(
      {
        RadixTree other({&pool_}, {.block_tokens = kBlockTokens});
        RadixTree::Pin* leaked = new RadixTree::Pin();
        Leases more = lease(1);
        other.publish(*leaked, "", prompt(4), more);
      },
      "1 pins outlive their tree");
}

}  // namespace
}  // namespace fathom::cache
