// What a collective does in the group of one, which is nothing.

#include "comm/communicator.h"

#include <gtest/gtest.h>

#include "comm/rank_context.h"
#include "cpu/reference/reference_backend.h"
#include "tensor/arena.h"

namespace fathom::comm {
namespace {

using tensor::DType;
using tensor::Tensor;

using Collective = void (*)(Communicator&, const Tensor&, ops::Stream&);

struct Case {
  const char* name;
  Collective run;
};

const Case kCases[] = {
    {"all_reduce", [](Communicator& c, const Tensor& t, ops::Stream& s) { c.all_reduce(t, s); }},
    {"all_gather_rows",
     [](Communicator& c, const Tensor& t, ops::Stream& s) { c.all_gather(t, 0, s); }},
    {"all_gather_columns",
     [](Communicator& c, const Tensor& t, ops::Stream& s) { c.all_gather(t, 1, s); }}};

std::unique_ptr<ops::Stream> reference_stream() { return cpu::reference_backend().make_stream({}); }

class CollectiveTest : public testing::TestWithParam<Case> {};

TEST_P(CollectiveTest, is_nothing_in_a_group_of_one) {
  std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<float> before = values;
  for (const bool measures : {false, true}) {
    const auto stream = reference_stream();
    if (measures) stream->begin_measuring();
    std::vector<ops::OperatorCall> calls;
    stream->record_operators(&calls);
    GetParam().run(alone(), Tensor::contiguous(values.data(), DType::kF32, {2, 3}), *stream);
    EXPECT_TRUE(calls.empty());
    EXPECT_EQ(stream->scratch_bytes(), 0);
  }
  EXPECT_EQ(values, before);
  // Nor does it look at memory: there is none here.
  tensor::Arena nowhere;
  GetParam().run(alone(), nowhere.allocate(DType::kF32, {3, 5}), *reference_stream());
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
  std::vector<float> values(6);
  const Tensor rows = Tensor::contiguous(values.data(), DType::kF32, {2, 3});
  EXPECT_DEATH(alone().all_gather(rows, 2, *reference_stream()), "axis 2 of a tensor of rank 2");
  EXPECT_DEATH(alone().all_gather(rows, -1, *reference_stream()), "axis -1 of a tensor");
}

}  // namespace
}  // namespace fathom::comm
