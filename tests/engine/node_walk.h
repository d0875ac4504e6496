#pragma once
// The ranks of the demo model on nodes that are threads of one process.
//
//   Nodes nodes({.tp = 2, .dp = 2}, /*num_nodes=*/2, start);
//   run_on(nodes.head(), way);
//   nodes.end();                          // all of them; the test fails where one says that another failed

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cpu/fast/fast_backend.h"
#include "runner/ranks/rank_group.h"
#include "tests/comm/node_mesh.h"

namespace fathom::engine::testing {

class Nodes {
 public:
  // By the thread of each node: from the RankGroup to its start().
  using Start = std::function<void(runner::RankGroup& ranks, int node)>;

  // start: returns when every node has, or throws what it threw on node 0.
  Nodes(const runner::RankSizes& sizes, int num_nodes, Start start,
        std::chrono::milliseconds standstill = std::chrono::seconds(5))
      : sizes_(sizes),
        standstill_(standstill),
        mesh_(num_nodes),
        why_(static_cast<size_t>(num_nodes)) {
    for (int node = 1; node < num_nodes; ++node)
      followers_.emplace_back([this, node, start] {
        const std::unique_ptr<runner::RankGroup> ranks = make(node);
        start(*ranks, node);
        std::string why = ranks->follow();
        if (on_failure && !why.empty()) on_failure(node, why);
        why_[static_cast<size_t>(node)] = std::move(why);
      });
    head_ = make(0);
    start(*head_, 0);
  }
  ~Nodes() { end(); }

  runner::RankGroup& head() { return *head_; }
  comm::NodeMesh& mesh() { return mesh_; }
  // By the thread of a node whose follow() says why it ended; its ranks may wait for ever.
  std::function<void(int node, const std::string& why)> on_failure{};

  void end() {
    head_.reset();
    for (std::thread& follower : followers_) follower.join();
    followers_.clear();
    for (const std::string& why : why_) EXPECT_EQ(why, "");
  }

 private:
  std::unique_ptr<runner::RankGroup> make(int node) {
    return std::make_unique<runner::RankGroup>(
        sizes_, cpu::fast_backend(), comm::MakeGroup(), standstill_,
        runner::NodePlace{.node = node, .links = mesh_.links(node)});
  }

  const runner::RankSizes sizes_;
  const std::chrono::milliseconds standstill_;
  comm::NodeMesh mesh_;
  std::vector<std::string> why_;  // [node]
  std::unique_ptr<runner::RankGroup> head_;
  std::vector<std::thread> followers_;
};

}  // namespace fathom::engine::testing
