// The demo model on ranks of several nodes, which are threads here: in float32 the greedy tokens of one rank, whatever
// else the engine does and however lanes and nodes cut the ranks. They take the cache that the poorest can have, end
// together, and a node that fails or samples something else is named on all of them. The sizes are a few of those that
// tools/ranks_walk.sh runs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <tuple>

#include "base/failpoint.h"
#include "base/startup_error.h"
#include "tests/engine/node_walk.h"
#include "tests/engine/rank_walk.h"
#include "tests/engine/sim_scenario.h"

namespace fathom::engine {
namespace {

using runner::RankGroup;
using runner::RankSizes;
using testing::config_for;
using ::testing::HasSubstr;
using testing::kRankFloat32;
using testing::make_ready;
using testing::Nodes;
using testing::options_for;
using testing::rank_config;
using testing::rank_requests;
using testing::RankWay;

constexpr int kNodeTokens = 6;

struct NodeSizes {
  RankSizes ranks{};
  int num_nodes = 2;
  size_t first_way = 0, every = 1;  // of those that there are
};

// Captured steps are every runner's.
std::vector<RankWay> node_ways() {
  std::vector<RankWay> ways = testing::rank_ways();
  std::erase_if(ways, [](const RankWay& way) { return !way.graph_batch_sizes.empty(); });
  return ways;
}

class NodesOf : public ::testing::TestWithParam<NodeSizes> {};

TEST_P(NodesOf, give_the_tokens_and_log_probabilities_of_one_rank) {
  const auto [sizes, num_nodes, first_way, every] = GetParam();
  const std::vector<RankWay> ways = node_ways();
  for (size_t i = first_way; i < ways.size(); i += every) {
    RankWay way = ways[i];
    SCOPED_TRACE(way.name);
    if (!way.max_total_tokens) way.num_tokens = kNodeTokens;
    if (sizes.dp > 2) way.num_growing = sizes.dp + 2;
    const auto start = [&](RankGroup& ranks, int) {
      make_ready(ranks, options_for(way), config_for(GetParam().ranks, way));
    };
    const testing::RankOutcome alone = run_on(*testing::ranks_for({}, way), way);
    Nodes nodes(sizes, num_nodes, start);
    const testing::RankOutcome together = run_on(nodes.head(), way);
    nodes.end();
    expect_same_outcome(alone, together);
    expect_way_taken(together, way);
    if (::testing::Test::HasFailure()) return;
  }
}

std::string node_sizes_name(const ::testing::TestParamInfo<NodeSizes>& info) {
  const RankSizes& sizes = info.param.ranks;
  return "tp" + std::to_string(sizes.tp) + "_dp" + std::to_string(sizes.dp) + "_ep" +
         std::to_string(sizes.ep) + "_on_" + std::to_string(info.param.num_nodes);
}

// A lane over both nodes; ranks of every group over four. Each in half of the ways.
INSTANTIATE_TEST_SUITE_P(Sizes, NodesOf,
                         ::testing::Values(NodeSizes{{.tp = 2}, 2, 0, 2},
                                           NodeSizes{{.tp = 2, .dp = 2, .ep = 4}, 4, 1, 2}),
                         node_sizes_name);

INSTANTIATE_TEST_SUITE_P(
    DISABLED_MoreSizes, NodesOf,
    ::testing::Values(NodeSizes{{.tp = 4}, 2}, NodeSizes{{.tp = 4, .ep = 4}, 4},
                      NodeSizes{{.tp = 8, .ep = 8}, 2}, NodeSizes{{.dp = 2}, 2},
                      NodeSizes{{.dp = 4, .ep = 4}, 4}, NodeSizes{{.tp = 2, .dp = 2}, 2},
                      NodeSizes{{.tp = 2, .dp = 4, .ep = 8}, 2},
                      NodeSizes{{.tp = 4, .dp = 2, .ep = 8}, 4}),
    node_sizes_name);

// The least that any node has, of all of them.
TEST(NodesStart, with_the_cache_that_all_can_have) {
  std::vector<int> blocks(2);
  Nodes nodes({.tp = 2}, 2, [&](RankGroup& ranks, int node) {
    runner::RunnerConfig config = rank_config();
    config.max_total_tokens = node == 0 ? 64 * 40 : 64 * 30;
    make_ready(ranks, kRankFloat32, config);
    blocks[static_cast<size_t>(node)] = ranks.plan().num_blocks;
  });
  EXPECT_EQ(nodes.head().runner().info().kv_groups.at(0).num_blocks, 30);
  nodes.end();
  EXPECT_EQ(blocks, (std::vector<int>{30, 30}));
}

TEST(NodesStart, not_where_nodes_would_have_other_numbers_of_ranks) {
  comm::NodeMesh mesh(3);
  try {
    RankGroup ranks({.tp = 4}, cpu::fast_backend(), {}, std::chrono::seconds(1),
                    {.node = 0, .links = mesh.links(0)});
    FAIL() << "four ranks on three nodes";
  } catch (const StartupError& error) {
    EXPECT_STREQ(error.what(), "4 ranks on 3 nodes: each must have as many, at least one");
  }
}

// What the others say whose start waits for a node that has given up.
std::string start_without(int num_nodes, const std::string& why) {
  comm::NodeMesh mesh(num_nodes);
  std::thread other([&] { mesh.link(1, 0).fail(why); });
  std::string error;
  try {
    RankGroup ranks({.tp = 2}, cpu::fast_backend(), {}, std::chrono::milliseconds(200),
                    {.node = 0, .links = mesh.links(0)});
    make_ready(ranks, kRankFloat32, rank_config());
  } catch (const StartupError& startup) {
    error = startup.what();
  }
  other.join();
  return error;
}

TEST(NodesStart, is_an_error_where_another_node_gives_up) {
  EXPECT_EQ(start_without(2, "weights larger than memory"), "node 1: weights larger than memory");
}

class NodesFailing : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { disarm_failpoints(); }

  static void start_plain(RankGroup& ranks, int) { make_ready(ranks, kRankFloat32, rank_config()); }

  // The errors of all requests, where `harm` is done before the sixth step. They go on for longer than a node needs to
  // hear of it.
  static std::vector<std::string> errors_after(Nodes& nodes, const std::function<void()>& harm) {
    StepLoop loop(nodes.head().runner(), {});
    testing::Recorder recorder(loop);
    for (core::Request& request : rank_requests()) {
      request.sampling.max_new_tokens = 200;
      EXPECT_TRUE(loop.add(request));
    }
    for (int step = 0; recorder.step(); ++step)
      if (step == 5) harm();
    std::vector<std::string> errors;
    for (const auto& [id, output] : recorder.finished) errors.push_back(output.error);
    EXPECT_EQ(errors.size(), rank_requests().size());
    return errors;
  }

  // For ranks that wait for ever: prints what requests and the other nodes end with, and how many milliseconds after
  // the harm, and ends the process with status 7.
  [[noreturn]] static void print_ends(const RankSizes& sizes, int num_nodes,
                                      const std::function<void(Nodes& nodes)>& harm) {
    using Clock = std::chrono::steady_clock;
    std::promise<std::string> followed;
    Nodes nodes(sizes, num_nodes, start_plain, std::chrono::milliseconds(500));
    nodes.on_failure = [&](int node, const std::string& why) {
      if (node == num_nodes - 1) followed.set_value(why);
      while (true) std::this_thread::sleep_for(std::chrono::hours(1));
    };
    Clock::time_point start;
    const std::vector<std::string> errors = errors_after(nodes, [&] {
      start = Clock::now();
      harm(nodes);
    });
    const std::string why = followed.get_future().get();
    const std::chrono::duration<double> took = Clock::now() - start;
    const auto alike = std::count(errors.begin(), errors.end(), errors.at(0));
    std::fprintf(stderr, "%d of %d: %s\nfollower: %s\n%s\n", static_cast<int>(alike),
                 static_cast<int>(errors.size()), errors.at(0).c_str(), why.c_str(),
                 took.count() < 1 ? "within a second" : "late");
    std::_Exit(7);
  }
};

const ::testing::ExitedWithCode kEndsPrinted(7);

// Of ranks of one lane on one node, and of a lane over two nodes.
TEST_F(NodesFailing, to_agree_name_the_ranks_and_end_together) {
  for (const auto& [sizes, num_nodes, names] :
       {std::tuple(RankSizes{.tp = 2, .dp = 2}, 2, "rank 3 sampled token 0, rank 2 token "),
        std::tuple(RankSizes{.tp = 4}, 2, "rank 3 sampled token 0, rank 2 token "),
        std::tuple(RankSizes{.tp = 4}, 4, "rank 3 sampled token 0, rank 0 token ")}) {
    Nodes nodes(sizes, num_nodes, start_plain);
    for (const std::string& error :
         errors_after(nodes, [] { arm_failpoint("model_runner.token.3", 1); })) {
      EXPECT_THAT(error, HasSubstr(names));
      EXPECT_THAT(error, HasSubstr("the ranks of the model no longer agree"));
    }
    nodes.end();
    disarm_failpoints();
  }
}

TEST_F(NodesFailing, by_a_link_end_requests_and_nodes_within_a_second) {
  EXPECT_EXIT(print_ends({.tp = 2}, 2, [](Nodes& nodes) { nodes.mesh().link(1, 0).fail("gone"); }),
              kEndsPrinted,
              "8 of 8: node 1: gone in step [5-8]: the ranks of the model cannot go on, start the "
              "server again\nfollower: gone\nwithin a second");
}

// Between two nodes without a planner: node 3 hears of it through the others.
TEST_F(NodesFailing, by_a_link_between_others_end_all_nodes_within_a_second) {
  EXPECT_EXIT(
      print_ends({.tp = 2, .dp = 2, .ep = 4}, 4,
                 [](Nodes& nodes) { nodes.mesh().link(1, 2).fail("gone"); }),
      kEndsPrinted,
      "8 of 8: node [12]: (node 1: )?gone in step .*\nfollower: node .*gone\nwithin a second");
}

TEST_F(NodesFailing, by_a_rank_that_stands_still_name_it_on_all_nodes) {
  EXPECT_EXIT(
      print_ends({.tp = 4}, 2, [](Nodes&) { arm_failpoint("model_runner.stands_still.3", 1); }),
      kEndsPrinted,
      "8 of 8: node 1: rank 2 of 4 in tp has waited [0-9]+ ms in all_reduce .* for rank 3 of 4 in "
      "tp, which stands still .*\nfollower: rank 2 of 4 in tp has waited");
}

}  // namespace
}  // namespace fathom::engine
