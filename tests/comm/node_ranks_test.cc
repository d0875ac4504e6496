// Ranks spread over nodes: every collective gives the bits that ranks of one process give, whatever the type, the shape
// and where the ranks are, and ends by name where a node stays away or brings another one.

#include "comm/node_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include "cpu/reference/reference_backend.h"
#include "tests/comm/node_mesh.h"

namespace fathom::comm {
namespace {

using std::chrono::milliseconds;
using tensor::Bf16;
using tensor::DType;
using tensor::F8E4M3;
using tensor::Tensor;
using ::testing::HasSubstr;

std::unique_ptr<ops::Stream> node_stream() { return cpu::reference_backend().make_stream({}); }

// All nodes' parts of one group.
class NodeGroup {
 public:
  explicit NodeGroup(std::vector<int> starts, ThreadRanksConfig threads = {})
      : starts_(std::move(starts)), mesh_(static_cast<int>(starts_.size()) - 1) {
    for (int node = 0; node + 1 < std::ssize(starts_); ++node)
      parts_.push_back(
          std::make_unique<NodeRanks>("tp", NodeRanksConfig{.node = node,
                                                            .starts = starts_,
                                                            .links = mesh_.links(node),
                                                            .channel = Link::kFirstGroup,
                                                            .threads = threads}));
  }
  Communicator& of(int rank) {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), rank);
    return parts_[static_cast<size_t>(after - starts_.begin() - 1)]->of(rank);
  }
  int size() const { return starts_.back(); }
  NodeMesh& mesh() { return mesh_; }

 private:
  std::vector<int> starts_;
  NodeMesh mesh_;
  std::vector<std::unique_ptr<NodeRanks>> parts_;
};

// Large and small numbers of both signs, so that another order of sums gives other bits.
float node_value(int rank, int64_t i) {
  return std::ldexp(1.0f + static_cast<float>(i % 7) / 8,
                    static_cast<int>((rank * 11 + i) % 40) - 20) *
         ((rank + i) % 3 == 0 ? -1.0f : 1.0f);
}

template <class T>
T node_element(int rank, int64_t i) {
  if constexpr (std::is_same_v<T, int32_t>)
    return static_cast<int32_t>(rank * 1000 + i);
  else
    return tensor::from_float<T>(node_value(rank, i));
}

constexpr int64_t kNodeRows = 6, kNodeColumns = 10, kNodeGap = 3;

// A rank's strided tensor [6, 2, 8 or so] after a collective, gaps included.
template <class T>
using Memory = std::vector<T>;
using NodeCollective = std::function<void(Communicator&, const Tensor&, ops::Stream&)>;

template <class T, class Group>
std::vector<Memory<T>> run_collective(Group& group, int64_t columns,
                                      const NodeCollective& collective) {
  const int size = group.size();
  std::vector<Memory<T>> memory(static_cast<size_t>(size));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      Memory<T>& own = memory[static_cast<size_t>(rank)];
      for (int64_t i = 0; i < kNodeRows * 2 * (columns + kNodeGap); ++i)
        own.push_back(node_element<T>(rank, i));
      const Tensor t = Tensor::contiguous(own.data(), tensor::DTypeOf<T>::value,
                                          {kNodeRows, 2, columns + kNodeGap})
                           .slice(2, 0, columns);
      const auto stream = node_stream();
      for (int round = 0; round < 2; ++round) collective(group.of(rank), t, *stream);
      group.of(rank).barrier();
    });
  for (std::thread& rank : ranks) rank.join();
  return memory;
}

template <class T>
void expect_bits_of_threads(const std::vector<int>& starts, int64_t columns,
                            const NodeCollective& collective) {
  NodeGroup nodes(starts);
  ThreadRanks threads("tp", starts.back());
  const auto expected = run_collective<T>(threads, columns, collective);
  const auto got = run_collective<T>(nodes, columns, collective);
  for (size_t rank = 0; rank < expected.size(); ++rank)
    ASSERT_EQ(
        std::memcmp(expected[rank].data(), got[rank].data(), expected[rank].size() * sizeof(T)), 0)
        << "rank " << rank;
}

class NodeRanksOf : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  int size() const { return GetParam().back(); }
  // Rows of each rank: some have none.
  std::vector<int64_t> row_starts() const {
    std::vector<int64_t> starts = {0};
    for (int rank = 1; rank < size(); ++rank)
      starts.push_back(std::min<int64_t>(kNodeRows, starts.back() + rank % 3));
    starts.push_back(kNodeRows);
    return starts;
  }
};

TEST_P(NodeRanksOf, sum_to_the_bits_of_threads) {
  const NodeCollective sum = [](Communicator& rank, const Tensor& t, ops::Stream& stream) {
    rank.all_reduce(t, stream);
  };
  for (const int64_t columns : {int64_t{1}, kNodeColumns}) {
    expect_bits_of_threads<float>(GetParam(), columns, sum);
    expect_bits_of_threads<Bf16>(GetParam(), columns, sum);
    expect_bits_of_threads<int32_t>(GetParam(), columns, sum);
  }
}

TEST_P(NodeRanksOf, sum_the_rows_of_each_to_the_bits_of_threads) {
  const std::vector<int64_t> starts = row_starts();
  const NodeCollective sum = [&](Communicator& rank, const Tensor& t, ops::Stream& stream) {
    rank.reduce_scatter_rows(t, starts, stream);
  };
  expect_bits_of_threads<float>(GetParam(), kNodeColumns, sum);
  expect_bits_of_threads<Bf16>(GetParam(), kNodeColumns, sum);
}

TEST_P(NodeRanksOf, gather_pieces_and_rows_as_threads_do) {
  const std::vector<int64_t> starts = row_starts();
  const NodeCollective pieces = [](Communicator& rank, const Tensor& t, ops::Stream& stream) {
    rank.all_gather(t, 2, stream);
  };
  const NodeCollective rows = [&](Communicator& rank, const Tensor& t, ops::Stream& stream) {
    rank.all_gather_rows(t, starts, stream);
  };
  expect_bits_of_threads<float>(GetParam(), 3 * size(), pieces);
  expect_bits_of_threads<F8E4M3>(GetParam(), 3 * size(), pieces);
  expect_bits_of_threads<Bf16>(GetParam(), kNodeColumns, rows);
  expect_bits_of_threads<float>(GetParam(), kNodeColumns, rows);
}

TEST_P(NodeRanksOf, send_nothing_when_they_measure) {
  NodeGroup nodes(GetParam());
  const auto stream = node_stream();
  stream->begin_measuring();
  std::vector<float> data(static_cast<size_t>(size()));
  nodes.of(0).all_reduce(Tensor::contiguous(data.data(), DType::kF32, {size()}), *stream);
}

INSTANTIATE_TEST_SUITE_P(Spreads, NodeRanksOf,
                         ::testing::Values(std::vector<int>{0, 1, 2}, std::vector<int>{0, 2, 4},
                                           std::vector<int>{0, 1, 3, 4, 8}),
                         [](const auto& info) {
                           return "of_" + std::to_string(info.param.back()) + "_on_" +
                                  std::to_string(info.param.size() - 1);
                         });

// What is told of a failure by the thread of a rank, which then waits for ever: such tests end in a process of theirs.
class NodeRanksFailing : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // Two nodes of two ranks each; prints the first failure and ends with status 7.
  [[noreturn]] static void print_failure(
      const std::function<void(NodeGroup& nodes, int rank)>& of_rank) {
    std::promise<std::string> failure;
    std::atomic<bool> told = false;
    NodeGroup nodes({0, 2, 4}, {.standstill = milliseconds(400),
                                .deadline = milliseconds(1200),
                                .on_failure = [&](const std::string& why) {
                                  if (!told.exchange(true)) failure.set_value(why);
                                }});
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < nodes.size(); ++rank)
      ranks.emplace_back([&, rank] { of_rank(nodes, rank); });
    std::fprintf(stderr, "%s\n", failure.get_future().get().c_str());
    std::_Exit(7);
  }
  static void sum(NodeGroup& nodes, int rank, int64_t elements) {
    std::vector<float> data(static_cast<size_t>(elements));
    nodes.of(rank).all_reduce(Tensor::contiguous(data.data(), DType::kF32, {elements}),
                              *node_stream());
  }
};

const ::testing::ExitedWithCode kFailurePrinted(7);

TEST_F(NodeRanksFailing, by_another_shape_names_what_both_nodes_are_in) {
  EXPECT_EXIT(
      print_failure([](NodeGroup& nodes, int rank) { sum(nodes, rank, rank < 2 ? 8 : 9); }),
      kFailurePrinted,
      "rank [02] of 4 in tp is in all_reduce \\(number 1\\) of f32\\[[89]\\] along axis 0, ranks "
      "[02] to [13] in all_reduce \\(number 1\\) of f32\\[[89]\\]");
}

TEST_F(NodeRanksFailing, by_another_shape_of_one_rank_names_both_by_their_numbers_in_the_group) {
  EXPECT_EXIT(print_failure([](NodeGroup& nodes, int rank) { sum(nodes, rank, rank < 3 ? 8 : 9); }),
              kFailurePrinted, "rank [23] of 4 in tp is in all_reduce .*, rank [23] of 4 in tp in");
}

TEST_F(NodeRanksFailing, by_a_link_says_what_happened_to_it) {
  EXPECT_EXIT(print_failure([](NodeGroup& nodes, int rank) {
                if (rank == 3) nodes.mesh().link(1, 0).fail("node 1 was killed");
                if (rank < 2) sum(nodes, rank, 8);
              }),
              kFailurePrinted, "node 1: node 1 was killed");
}

// The other ranks of its node do not take the rank that waits for one that stands still.
TEST_F(NodeRanksFailing, by_a_node_that_never_comes_names_its_ranks) {
  EXPECT_EXIT(
      print_failure([](NodeGroup& nodes, int rank) {
        if (rank < 2) sum(nodes, rank, 8);
      }),
      kFailurePrinted,
      "rank 0 of 4 in tp has waited 1200 ms in all_reduce \\(number 1\\) of f32\\[8\\] along "
      "axis 0 for ranks 2 to 3");
}

TEST_F(NodeRanksFailing, by_what_is_no_collective_is_named) {
  for (const size_t bytes : {0U, 3U, 5U, 200U}) {
    EXPECT_EXIT(print_failure([&](NodeGroup& nodes, int rank) {
                  if (rank == 2)
                    nodes.mesh().link(1, 0).send(Link::kFirstGroup,
                                                 std::vector<std::byte>(bytes, std::byte(1)));
                  if (rank < 2) sum(nodes, rank, 8);
                }),
                kFailurePrinted, "ranks 2 to 3 sent what is no collective");
  }
}

}  // namespace
}  // namespace fathom::comm
