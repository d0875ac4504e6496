#include "cache/block_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace fathom::cache {
namespace {

TEST(BlockPool, hands_out_distinct_blocks_and_takes_them_back) {
  BlockPool pool({.num_blocks = 4});
  {
    Result<BlockPool::Lease> a = pool.lease(3);
    ASSERT_TRUE(a);
    EXPECT_EQ(a->ids(), (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(pool.num_free(), 1);
    EXPECT_EQ(pool.num_owned(), 3);
  }
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_EQ(pool.check_integrity(), "");
}

TEST(BlockPool, refuses_all_or_nothing_and_says_what_is_missing) {
  BlockPool pool({.num_blocks = 4});
  Result<BlockPool::Lease> a = pool.lease(3);
  Result<BlockPool::Lease> b = pool.lease(2);
  ASSERT_FALSE(b);
  EXPECT_EQ(b.error().code, ErrorCode::kResourceEmpty);
  EXPECT_EQ(b.error().message, "2 blocks wanted, 1 of 4 free");
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_TRUE(pool.lease(0));
}

TEST(BlockPool, moves_and_merges_leases_without_losing_blocks) {
  BlockPool pool({.num_blocks = 6});
  BlockPool::Lease a = *pool.lease(2);
  BlockPool::Lease b = std::move(a);
  EXPECT_TRUE(a.ids().empty());
  b.merge(*pool.lease(1));
  EXPECT_EQ(b.ids(), (std::vector<int32_t>{0, 1, 2}));
  BlockPool::Lease empty;
  empty.merge(std::move(b));
  EXPECT_EQ(empty.ids().size(), 3u);
  empty = *pool.lease(2);
  EXPECT_EQ(pool.num_free(), 4);
  empty.merge(BlockPool::Lease());
  EXPECT_EQ(pool.num_owned(), 2);
  empty = BlockPool::Lease();
  EXPECT_EQ(pool.num_free(), 6);
}

TEST(BlockPool, fences_blocks_until_the_last_submitted_step_is_done) {
  BlockPool pool({.num_blocks = 2});
  BlockPool::Lease lease = *pool.lease(1);
  pool.step_submitted(5);
  pool.step_submitted(6);
  lease = {};
  EXPECT_EQ(pool.num_fenced(), 1);
  EXPECT_FALSE(pool.lease(2));
  pool.step_done(5);
  EXPECT_EQ(pool.num_fenced(), 1);
  pool.step_submitted(7);
  pool.step_done(6);
  EXPECT_EQ(pool.num_fenced(), 0);
  EXPECT_TRUE(pool.lease(2));
}

TEST(BlockPool, frees_at_once_when_no_step_is_in_flight) {
  BlockPool pool({.num_blocks = 1});
  pool.step_submitted(1);
  pool.step_done(1);
  { const BlockPool::Lease lease = *pool.lease(1); }
  EXPECT_EQ(pool.num_fenced(), 0);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPool, a_lease_gives_up_blocks_from_its_front) {
  BlockPool pool({.num_blocks = 5});
  BlockPool::Lease lease = *pool.lease(5);
  const std::vector<int32_t> ids = lease.ids();
  {
    const BlockPool::Lease front = lease.take_front(2);
    EXPECT_EQ(front.ids(), std::vector<int32_t>(ids.begin(), ids.begin() + 2));
    EXPECT_EQ(lease.ids(), std::vector<int32_t>(ids.begin() + 2, ids.end()));
    EXPECT_EQ(pool.num_owned(), 5);
  }
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_TRUE(pool.is_owned(ids[2]));
  EXPECT_FALSE(pool.is_owned(ids[0]));
  EXPECT_FALSE(pool.is_owned(5));
  std::vector<BlockPool::Lease> each = lease.split();
  ASSERT_EQ(each.size(), 3u);
  EXPECT_TRUE(lease.ids().empty());
  EXPECT_EQ(each[1].ids(), std::vector<int32_t>{ids[3]});
  each.erase(each.begin());
  EXPECT_EQ(pool.num_owned(), 2);
  EXPECT_TRUE(BlockPool::Lease().take_front(0).ids().empty());
  EXPECT_DEATH(each[0].take_front(2), "2 blocks to take from a lease of 1");
}

TEST(BlockPool, aborts_on_steps_out_of_order) {
  BlockPool pool({.num_blocks = 1});
  pool.step_submitted(3);
  EXPECT_DEATH(pool.step_submitted(3), "step 3 after 3");
  EXPECT_DEATH(pool.step_done(4), "step 4 done");
  pool.step_done(3);
  EXPECT_DEATH(pool.step_done(3), "step 3 done");
}

// The pool again, as sets: what every operation means, without lists to keep in step.
struct PlainModel {
  std::set<int32_t> free;
  std::multimap<int64_t, int32_t> fenced;
  std::map<int, std::vector<int32_t>> leases;
  int64_t submitted = -1, done = -1;

  void end_lease(int id) {
    for (int32_t block : leases.at(id)) {
      if (submitted > done) {
        fenced.emplace(submitted, block);
      } else {
        free.insert(block);
      }
    }
    leases.erase(id);
  }
  void finish(int64_t step) {
    done = step;
    while (!fenced.empty() && fenced.begin()->first <= step) {
      free.insert(fenced.begin()->second);
      fenced.erase(fenced.begin());
    }
  }
};

TEST(BlockPool, agrees_with_a_plain_model_over_a_million_random_operations) {
  constexpr uint64_t kSeed = 20240607;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  constexpr int kBlocks = 37;
  std::mt19937_64 random(kSeed);
  BlockPool pool({.num_blocks = kBlocks});
  PlainModel model;
  for (int32_t block = 0; block < kBlocks; ++block) model.free.insert(block);
  std::map<int, BlockPool::Lease> leases;
  int next_id = 0;
  int64_t next_step = 0;
  const auto any_lease = [&] {
    return std::next(leases.begin(), static_cast<int64_t>(random() % leases.size()));
  };

  for (int op = 0; op < 1'000'000; ++op) {
    switch (random() % 6) {
      case 0:
      case 1: {
        const int wanted = static_cast<int>(random() % 6);
        Result<BlockPool::Lease> lease = pool.lease(wanted);
        ASSERT_EQ(lease.has_value(), wanted <= static_cast<int>(model.free.size()));
        if (!lease) break;
        ASSERT_EQ(lease->ids().size(), static_cast<size_t>(wanted));
        for (int32_t block : lease->ids()) ASSERT_EQ(model.free.erase(block), 1u) << block;
        model.leases[next_id] = lease->ids();
        leases.emplace(next_id++, std::move(*lease));
        break;
      }
      case 2: {
        if (leases.empty()) break;
        const auto it = any_lease();
        model.end_lease(it->first);
        leases.erase(it);
        break;
      }
      case 3: {
        if (leases.size() < 2) break;
        const auto into = any_lease(), from = any_lease();
        if (into == from) break;
        into->second.merge(std::move(from->second));
        auto& target = model.leases[into->first];
        const auto& source = model.leases[from->first];
        target.insert(target.end(), source.begin(), source.end());
        ASSERT_EQ(into->second.ids(), target);
        model.leases.erase(from->first);
        leases.erase(from);
        break;
      }
      case 4:
        if (next_step - model.done > 2) break;
        pool.step_submitted(next_step);
        model.submitted = next_step++;
        break;
      default:
        if (model.done == model.submitted) break;
        pool.step_done(model.done + 1);
        model.finish(model.done + 1);
    }
    ASSERT_EQ(pool.num_free(), static_cast<int>(model.free.size())) << "operation " << op;
    ASSERT_EQ(pool.num_fenced(), static_cast<int>(model.fenced.size())) << "operation " << op;
    ASSERT_EQ(pool.check_integrity(), "") << "operation " << op;
  }
  leases.clear();
  if (model.submitted > model.done) pool.step_done(model.submitted);
  EXPECT_EQ(pool.num_free(), kBlocks);
}

}  // namespace
}  // namespace fathom::cache
