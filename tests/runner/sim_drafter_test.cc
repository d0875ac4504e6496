#include "runner/sim/drafter.h"

#include <gtest/gtest.h>

#include <set>

namespace fathom::runner {
namespace {

constexpr int kVocabSize = 50;

int32_t target(uint64_t hash, int32_t position) {
  return static_cast<int32_t>((hash + static_cast<uint64_t>(position)) % kVocabSize);
}

SimDrafter drafter(const DrafterInfo& shape, double agreement) {
  return SimDrafter({.shape = shape, .agreement = agreement}, kVocabSize);
}

TEST(SimDrafter, proposes_a_chain_of_the_length_asked_for) {
  const SimDrafter three = drafter({.num_steps = 3, .top_k = 1, .num_draft_tokens = 4}, 1);
  for (const int num_drafts : {0, 1, 2, 3, 9}) {
    const std::vector<core::Draft> drafts = three.propose(num_drafts, 7, 10, target);
    ASSERT_EQ(drafts.size(), static_cast<size_t>(std::min(num_drafts, 3)));
    for (size_t i = 0; i < drafts.size(); ++i)
      EXPECT_EQ(drafts[i].parent, static_cast<int32_t>(i) - 1);
    if (!drafts.empty()) {
      EXPECT_EQ(drafts[0].token, target(7, 11));
    }
  }
}

TEST(SimDrafter, agrees_as_often_as_it_is_told) {
  for (const double agreement : {0.0, 0.3, 0.7, 0.94, 1.0}) {
    const SimDrafter one = drafter({.num_steps = 1, .top_k = 1, .num_draft_tokens = 2}, agreement);
    int num_agreed = 0;
    for (uint64_t hash = 0; hash < 4000; ++hash)
      num_agreed += one.propose(1, hash * 977, 3, target).at(0).token == target(hash * 977, 4);
    EXPECT_NEAR(num_agreed / 4000.0, agreement, 0.03);
  }
}

TEST(SimDrafter, proposes_a_tree_whose_first_nodes_are_trees_too) {
  const SimDrafter wide = drafter({.num_steps = 4, .top_k = 3, .num_draft_tokens = 12}, 0.7);
  int num_branching = 0, num_deep = 0;
  for (uint64_t hash = 0; hash < 200; ++hash) {
    const std::vector<core::Draft> drafts = wide.propose(11, hash * 31, 5, target);
    ASSERT_EQ(drafts.size(), 11u);
    std::set<std::pair<int32_t, int32_t>> seen;
    std::vector<int> depth;
    for (size_t i = 0; i < drafts.size(); ++i) {
      EXPECT_LT(drafts[i].parent, static_cast<int32_t>(i));
      EXPECT_TRUE(seen.emplace(drafts[i].parent, drafts[i].token).second) << "siblings alike";
      depth.push_back(drafts[i].parent < 0 ? 1 : depth[static_cast<size_t>(drafts[i].parent)] + 1);
      EXPECT_LE(depth.back(), 4);
      num_branching += drafts[i].parent < static_cast<int32_t>(i) - 1;
    }
    num_deep += *std::max_element(depth.begin(), depth.end()) == 4;
    const std::vector<core::Draft> fewer = wide.propose(11, hash * 31, 5, target);
    EXPECT_EQ(drafts, fewer) << "the same seed, the same drafts";
  }
  EXPECT_GT(num_branching, 200);
  EXPECT_GT(num_deep, 50);
}

TEST(SimDrafterDeathTest, refuses_shapes_that_make_no_sense) {
  EXPECT_DEATH(drafter({.num_steps = 3, .top_k = 1, .num_draft_tokens = 3}, 1),
               "a drafter of 3 steps, top 1, 3 draft tokens");
  EXPECT_DEATH(drafter({.num_steps = 3, .top_k = 2, .num_draft_tokens = 65}, 1), "65 draft tokens");
  EXPECT_DEATH(drafter({.num_steps = 3, .top_k = 50, .num_draft_tokens = 9}, 1), "top 50");
}

}  // namespace
}  // namespace fathom::runner
