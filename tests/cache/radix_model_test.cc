// Random operations on the radix tree and its pools against a plain model of both. A divergence is printed
// as a short list of operations; paste it into `replayed` below.

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <random>

#include "tests/cache/radix_world.h"
#include "tests/sanitized.h"

namespace fathom::cache {
namespace {

using testing::describe_ops;
using testing::RadixOp;
using testing::RadixWorld;
using testing::RadixWorldConfig;

constexpr int64_t kNumOperations = kIsSanitized ? 100'000 : 1'200'000;
constexpr size_t kOpsPerWorld = 2'000;
constexpr int kIntegrityInterval = 16;
constexpr uint64_t kFirstSeed = 20250311;

uint64_t running_seed = 0;

// A failed check inside the tree aborts the process before the test can say which seed it was.
extern "C" void print_seed(int /*signal*/) {
  std::fprintf(stderr, "the radix model test aborted in the world of seed %llu\n",
               static_cast<unsigned long long>(running_seed));
}

RadixWorldConfig world_of(uint64_t seed) {
  static constexpr int kBlockTokens[] = {1, 2, 16, 64};
  std::mt19937_64 random(seed);
  RadixWorldConfig config{.num_groups = 1 + static_cast<int>(random() % 2),
                          .block_tokens = kBlockTokens[random() % 4],
                          .num_blocks = 4 + static_cast<int>(random() % 40)};
  if (random() % 4 == 0) config.hash_mask = random() % 4;  // blocks collide
  return config;
}

std::vector<RadixOp> ops_of(uint64_t seed) {
  std::mt19937_64 random(seed + 1);
  std::vector<RadixOp> ops(kOpsPerWorld);
  for (RadixOp& op : ops) {
    const uint64_t bits = random();
    op = {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8),
          static_cast<uint8_t>(bits >> 16), static_cast<uint8_t>(bits >> 24)};
  }
  return ops;
}

std::string problem_of(const RadixWorldConfig& config, std::span<const RadixOp> ops,
                       int integrity_interval) {
  return RadixWorld(config).run(ops, integrity_interval);
}

TEST(RadixModel, agrees_over_a_million_random_operations) {
  const auto previous = std::signal(SIGABRT, print_seed);
  int64_t num_operations = 0;
  testing::RadixWorldCounts total;
  for (running_seed = kFirstSeed; num_operations < kNumOperations; ++running_seed) {
    const RadixWorldConfig config = world_of(running_seed);
    const std::vector<RadixOp> ops = ops_of(running_seed);
    num_operations += static_cast<int64_t>(ops.size());
    RadixWorld world(config);
    const std::string problem = world.run(ops, kIntegrityInterval);
    total.hit_blocks += world.counts().hit_blocks;
    total.published_blocks += world.counts().published_blocks;
    total.evicted_blocks += world.counts().evicted_blocks;
    total.refused_leases += world.counts().refused_leases;
    if (problem.empty()) continue;
    const std::vector<RadixOp> few = testing::shrink_ops(
        ops, [&](std::span<const RadixOp> fewer) { return !problem_of(config, fewer, 1).empty(); });
    FAIL() << "seed " << running_seed << ": " << problem << "\n"
           << few.size() << " operations reproduce it with " << config.num_groups << " groups, "
           << config.num_blocks << " blocks of " << config.block_tokens << " tokens, hash mask "
           << config.hash_mask << ": " << problem_of(config, few, 1) << "\n"
           << describe_ops(few);
  }
  std::signal(SIGABRT, previous);
  // The worlds are neither empty nor always full.
  EXPECT_GT(total.hit_blocks, num_operations / 50);
  EXPECT_GT(total.published_blocks, num_operations / 50);
  EXPECT_GT(total.evicted_blocks, num_operations / 50);
  EXPECT_GT(total.refused_leases, num_operations / 50);
  std::printf(
      "%lld operations, seeds %llu to %llu; blocks: %lld hit, %lld published, %lld evicted\n",
      static_cast<long long>(num_operations), static_cast<unsigned long long>(kFirstSeed),
      static_cast<unsigned long long>(running_seed - 1), static_cast<long long>(total.hit_blocks),
      static_cast<long long>(total.published_blocks), static_cast<long long>(total.evicted_blocks));
}

TEST(RadixModel, replays_a_list_of_operations) {
  // Fills a tree, pins a prefix, evicts around it and lets two copies of a prefix meet.
  const std::vector<RadixOp> replayed = {
      {0, 4, 0, 0},   // match
      {2, 0, 4, 0},   // lease
      {4, 0, 1, 0},   // publish
      {0, 4, 0, 0},   // match
      {9, 3, 0, 0},   // evict
      {7, 0, 0, 0},   // end
      {11, 0, 0, 0},  // submit
      {9, 4, 0, 0},   // evict
      {12, 0, 0, 0},  // done
  };
  RadixWorld world({.num_groups = 2, .block_tokens = 2, .num_blocks = 8});
  EXPECT_EQ(world.run(replayed, 1), "");
  EXPECT_EQ(world.counts().published_blocks, 4);
  EXPECT_EQ(world.counts().hit_blocks, 4);
  EXPECT_EQ(world.counts().evicted_blocks, 0);  // the second sequence pins them all
}

TEST(RadixModel, shrinks_a_failing_list_to_what_fails) {
  const std::vector<RadixOp> ops = ops_of(1);
  const auto fails = [](std::span<const RadixOp> list) {
    const auto is = [](uint8_t kind) {
      return [kind](const RadixOp& op) { return op.kind == kind; };
    };
    const auto first = std::find_if(list.begin(), list.end(), is(77));
    return std::find_if(first, list.end(), is(99)) != list.end();
  };
  ASSERT_TRUE(fails(ops));
  const std::vector<RadixOp> few = testing::shrink_ops(ops, fails);
  ASSERT_EQ(few.size(), 2u) << describe_ops(few);
  EXPECT_EQ(few[0].kind, 77);
  EXPECT_EQ(few[1].kind, 99);
}

}  // namespace
}  // namespace fathom::cache
