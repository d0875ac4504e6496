#pragma once
// NodeRanks: a group whose ranks are threads of several nodes and compute in host memory. On each node there is one
// NodeRanks, of the ranks that are there; nodes exchange what the others need through their links.
//
//   // Ranks 0 and 1 are on node 0, ranks 2 and 3 here on node 1.
//   comm::NodeRanks tp("tp", {.node = 1, .starts = {0, 2, 4}, .links = {&to_node_0, nullptr}, .channel = channel});
//   tp.of(2).all_reduce(t, stream);
//
// What a collective gives is to the bit what ThreadRanks of all ranks in one process give: a sum goes from node to
// node, each adds its ranks in their order, and the last one tells all. A collective takes memory for its messages: at
// most twice the tensor, and the tensor in f32.
//
// Nodes compare what their ranks are in, by name, number, type, shape and whose rows are where. Another collective, a
// link that fails and a node from which nothing comes within the deadline are failures of the group, as those of
// ThreadRanks are, which it is of the ranks of one node: see there. All nodes fail: who fails gives up its links.
//
// of(i) is for the thread of rank i, which is on this node. Links outlive the group.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/link.h"
#include "comm/thread_ranks.h"

namespace fathom::comm {

struct NodeRanksConfig {
  int node = 0;  // this one among those of the group
  std::vector<int>
      starts{};  // node n of the group has its ranks [starts[n], starts[n + 1]), at least one
  std::vector<Link*> links{};   // [node of the group]; null for this one
  uint32_t channel = 0;         // of each link, the group's own
  ThreadRanksConfig threads{};  // of the ranks of this node
};

// What makes a group over several nodes whose ranks do not compute in host memory. devices: of this node's ranks.
// Throws StartupError, also where a node stays away.
using MakeNodeGroup = std::function<std::unique_ptr<Group>(
    const std::string& name, const std::vector<int>& devices, NodeRanksConfig config)>;

class NodeRanks : public Group {
 public:
  // name: of the group, for messages.
  NodeRanks(std::string name, NodeRanksConfig config);

  Communicator& of(int rank) override;
  int size() const override { return config_.starts.back(); }

 private:
  using Tensor = tensor::Tensor;
  using Bytes = std::vector<std::byte>;
  using Tensors = std::vector<Tensor>;  // of this node's ranks, in their order
  using Starts = std::span<const int64_t>;

  class Member : public Communicator {
   public:
    Member(NodeRanks& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return group_.size(); }
    void all_reduce(const Tensor& t, ops::Stream& stream) override;
    void all_gather(const Tensor& whole, int axis, ops::Stream& stream) override;
    void all_gather_rows(const Tensor& whole, Starts starts, ops::Stream& stream) override;
    void reduce_scatter_rows(const Tensor& whole, Starts starts, ops::Stream& stream) override;
    void barrier() override;

   private:
    bool sends(const ops::Stream& stream) const;

    NodeRanks& group_;
    int rank_;
  };

  int num_nodes() const { return static_cast<int>(config_.links.size()); }
  bool is_last_node() const { return config_.node == num_nodes() - 1; }
  int first_rank_of(int node) const { return config_.starts[static_cast<size_t>(node)]; }
  int first_rank() const { return first_rank_of(config_.node); }
  int end_rank() const { return first_rank_of(config_.node + 1); }
  // By the member's thread: all of this node come, and then `exchange` runs once, which may throw what is the group's
  // failure.
  void together(int rank, const ThreadRanks::Call& call,
                const std::function<void(const Tensors& tensors)>& exchange);
  Bytes message(int64_t payload_bytes) const;
  void send(int node, Bytes message) {
    config_.links[static_cast<size_t>(node)]->send(config_.channel, std::move(message));
  }
  // What a node's ranks bring, behind what they are in.
  struct Payload {
    Bytes message;
    size_t begin = 0;
    const std::byte* data() const { return message.data() + begin; }
  };
  // REQUIRES of the node: the same call, and so many bytes; else it is the group's failure.
  Payload receive(int node, int64_t payload_bytes);
  Bytes receive_any(int node);
  // Throws what() as the failure of this node beside another one.
  [[noreturn]] void differ(int node, const std::string& other_call) const;
  std::string ranks_of(int node) const;

  // Rows of a tensor whose sum a node needs: those of its ranks, or all where there are no starts.
  struct Rows {
    int64_t begin = 0, end = 0;
  };
  static Rows rows_between(const Tensor& t, Starts starts, int first_rank, int end_rank);
  template <class T>
  void sum(const Tensors& tensors, Starts starts);
  // total: bytes of the whole sum, on the last node.
  void pass_on(const Tensors& tensors, Starts starts, const std::byte* total);
  void sum_of_type(const Tensors& tensors, Starts starts);
  // piece(t, rank): of a rank in tensor t.
  using PieceOf = std::function<Tensor(const Tensor& t, int rank)>;
  void gather(const Tensors& tensors, const PieceOf& piece);
  void gather_here(const Tensors& tensors, const PieceOf& piece) const;
  // Each node hears of all others that they have come.
  void meet_nodes();

  const NodeRanksConfig config_;
  ThreadRanks local_;
  std::deque<Member> members_;  // of this node
  std::string call_;            // what all are in, while rank 0's thread exchanges
};

}  // namespace fathom::comm
