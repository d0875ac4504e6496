// What a collective does, of the group of one and of ranks as threads, by which other tests run several ranks.

#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "comm/rank_context.h"
#include "cpu/reference/reference_backend.h"
#include "tensor/arena.h"
#include "tests/comm/thread_ranks.h"

namespace fathom::comm {
namespace {

using tensor::DType;
using tensor::Tensor;

using Collective = void (*)(Communicator&, const Tensor&, ops::Stream&);

struct Case {
  const char* name;
  Collective run;
  // Value of element (row, column) of rank `mine` of two afterwards; -1 = undefined. Before, it is value(mine, ...).
  float (*expected)(int mine, int row, int column);
};

constexpr int kRows = 4, kColumns = 6;

float value(int rank, int row, int column) {
  return static_cast<float>(100 * rank + 10 * row + column);
}
float sum(int row, int column) { return value(0, row, column) + value(1, row, column); }

const Case kCases[] = {
    {"all_reduce", [](Communicator& c, const Tensor& t, ops::Stream& s) { c.all_reduce(t, s); },
     [](int, int row, int column) { return sum(row, column); }},
    {"all_gather_rows",
     [](Communicator& c, const Tensor& t, ops::Stream& s) { c.all_gather(t, 0, s); },
     [](int, int row, int column) { return value(row / 2, row, column); }},
    {"all_gather_columns",
     [](Communicator& c, const Tensor& t, ops::Stream& s) { c.all_gather(t, 1, s); },
     [](int, int row, int column) { return value(column / 3, row, column); }},
    {"reduce_scatter_rows",
     [](Communicator& c, const Tensor& t, ops::Stream& s) { c.reduce_scatter(t, 0, s); },
     [](int mine, int row, int column) { return row / 2 == mine ? sum(row, column) : -1.0f; }},
    {"reduce_scatter_columns",
     [](Communicator& c, const Tensor& t, ops::Stream& s) { c.reduce_scatter(t, 1, s); },
     [](int mine, int row, int column) { return column / 3 == mine ? sum(row, column) : -1.0f; }},
    {"all_to_all_rows",
     [](Communicator& c, const Tensor& t, ops::Stream& s) { c.all_to_all(t, 0, s); },
     [](int mine, int row, int column) { return value(row / 2, mine * 2 + row % 2, column); }},
    {"all_to_all_columns",
     [](Communicator& c, const Tensor& t, ops::Stream& s) { c.all_to_all(t, 1, s); },
     [](int mine, int row, int column) { return value(column / 3, row, mine * 3 + column % 3); }}};

struct Rows {
  explicit Rows(int rank) {
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kColumns; ++column) at(row, column) = value(rank, row, column);
  }
  float& at(int row, int column) { return data[static_cast<size_t>(row * kColumns + column)]; }
  Tensor view() { return Tensor::contiguous(data.data(), DType::kF32, {kRows, kColumns}); }

  std::vector<float> data = std::vector<float>(kRows * kColumns);
};

std::unique_ptr<ops::Stream> make_stream() { return cpu::reference_backend().make_stream({}); }

class CollectiveTest : public testing::TestWithParam<Case> {};

TEST_P(CollectiveTest, is_nothing_in_a_group_of_one) {
  Rows rows(1);
  const std::vector<float> before = rows.data;
  for (const bool measures : {false, true}) {
    const auto stream = make_stream();
    if (measures) stream->begin_measuring();
    std::vector<ops::OperatorCall> calls;
    stream->record_operators(&calls);
    GetParam().run(alone(), rows.view(), *stream);
    EXPECT_TRUE(calls.empty());
    EXPECT_EQ(stream->scratch_bytes(), 0);
  }
  EXPECT_EQ(rows.data, before);
  // Nor does it look at memory: there is none here.
  tensor::Arena nowhere;
  GetParam().run(alone(), nowhere.allocate(DType::kF32, {3, 5}), *make_stream());
}

TEST_P(CollectiveTest, joins_two_ranks) {
  ThreadRanks ranks(2);
  std::vector<Rows> rows = {Rows(0), Rows(1)};
  const auto run = [&](int rank) {
    GetParam().run(ranks.of(rank), rows[static_cast<size_t>(rank)].view(), *make_stream());
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  for (int rank = 0; rank < 2; ++rank)
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kColumns; ++column) {
        const float expected = GetParam().expected(rank, row, column);
        if (expected >= 0) {
          EXPECT_EQ(rows[static_cast<size_t>(rank)].at(row, column), expected)
              << "rank " << rank << " row " << row << " column " << column;
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Collectives, CollectiveTest, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

TEST(Communicator, of_one_is_rank_0_of_1_and_waits_for_nobody) {
  alone().barrier();
  EXPECT_EQ(alone().rank(), 0);
  EXPECT_EQ(alone().size(), 1);
  const RankContext rank;
  EXPECT_EQ(rank.device, 0);
  for (const Communicator* group : {rank.tp, rank.dp, rank.ep}) EXPECT_EQ(group, &alone());
}

TEST(CommunicatorDeathTest, refuses_an_axis_that_a_tensor_does_not_have) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Rows rows(0);
  EXPECT_DEATH(alone().all_gather(rows.view(), 2, *make_stream()), "axis 2 of a tensor of rank 2");
  EXPECT_DEATH(alone().reduce_scatter(rows.view(), -1, *make_stream()), "axis -1 of a tensor");
  EXPECT_DEATH(alone().all_to_all(rows.view(), 2, *make_stream()), "axis 2 of a tensor");
}

}  // namespace
}  // namespace fathom::comm
