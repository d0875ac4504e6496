// The scratch of a stream: grown, measured without running, or sealed, and then never more.

#include "ops/stream.h"

#include <gmock/gmock.h>

#include "base/clock.h"
#include "base/startup_error.h"
#include "ops/boundary.h"
#include "ops/linear.h"
#include "ops/silu_mul.h"
#include "tensor/arena.h"
#include "tests/ops/device.h"

namespace fathom::ops_test {
namespace {

class StreamTest : public OpsTest {
 protected:
  std::unique_ptr<ops::Stream> fresh() const { return backend().make_stream(GetParam().stream); }
};
INSTANTIATE_TEST_SUITE_P(backends, StreamTest, testing::ValuesIn(tested_backends()), backend_name);

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 256 == 0; }

// A linear whose tensors lie nowhere: only its shapes can be looked at.
void linear_of_shapes(int64_t tokens, DType act, ops::Stream& stream) {
  tensor::Arena nowhere;
  ops::linear({.x = nowhere.allocate(act, {tokens, 256}),
               .weight = {.data = nowhere.allocate(DType::kF8E4M3, {300, 256}),
                          .scale = nowhere.allocate(DType::kF32, {3, 2})},
               .out = nowhere.allocate(act, {tokens, 300})},
              stream);
}

TEST_P(StreamTest, scratch_is_aligned_grows_and_reports_its_size) {
  const std::unique_ptr<ops::Stream> stream = fresh();
  EXPECT_EQ(&stream->backend(), &backend());
  EXPECT_EQ(stream->scratch_bytes(), 0);
  for (const int64_t bytes : {1000, 10, 1 << 20, 5000}) {
    EXPECT_TRUE(stream->begin_operator({.op = "test"}, bytes));
    ASSERT_NE(stream->scratch(), nullptr);
    EXPECT_TRUE(is_aligned(stream->scratch()));
    const std::vector<char> ones(static_cast<size_t>(bytes), 1);
    backend().copy_to_device(stream->scratch(), ones.data(), bytes, *stream);
    stream->synchronize();
  }
  EXPECT_EQ(stream->scratch_bytes(), 1 << 20);
}

TEST_P(StreamTest, calls_are_recorded_in_order_with_the_type_they_were_chosen_by) {
  const std::unique_ptr<ops::Stream> stream = fresh();
  stream->begin_measuring();
  linear_of_shapes(7, act(), *stream);
  std::vector<ops::OperatorCall> calls;
  stream->record_operators(&calls);
  linear_of_shapes(7, act(), *stream);
  tensor::Arena nowhere;
  ops::silu_mul(
      {.gate_up = nowhere.allocate(act(), {5, 2, 4}), .out = nowhere.allocate(act(), {5, 4})},
      *stream);
  stream->record_operators(nullptr);
  linear_of_shapes(7, act(), *stream);
  EXPECT_THAT(calls,
              testing::ElementsAre(ops::OperatorCall{.op = "linear", .dtype = DType::kF8E4M3},
                                   ops::OperatorCall{.op = "silu_mul", .dtype = act()}));
}

TEST_P(StreamTest, measuring_runs_nothing_and_sealing_gives_what_was_measured) {
  const std::unique_ptr<ops::Stream> stream = fresh();
  stream->begin_measuring();
  linear_of_shapes(70, act(), *stream);
  const int64_t measured = stream->scratch_bytes();
  EXPECT_GE(measured, 1);
  linear_of_shapes(7, act(), *stream);
  tensor::Arena nowhere;
  ops::silu_mul(
      {.gate_up = nowhere.allocate(act(), {5, 2, 4}), .out = nowhere.allocate(act(), {5, 4})},
      *stream);
  EXPECT_EQ(stream->scratch_bytes(), measured);
  stream->seal_scratch();
  EXPECT_EQ(stream->scratch_bytes(), measured);
  EXPECT_TRUE(stream->begin_operator({.op = "test"}, measured));
  const void* const first = stream->scratch();
  EXPECT_TRUE(is_aligned(first));
  EXPECT_TRUE(stream->begin_operator({.op = "test"}, 1));
  EXPECT_EQ(stream->scratch(), first);
}

TEST_P(StreamTest, a_stream_that_needs_no_scratch_can_be_sealed) {
  const std::unique_ptr<ops::Stream> stream = fresh();
  stream->begin_measuring();
  stream->seal_scratch();
  EXPECT_TRUE(stream->begin_operator({.op = "test"}, 0));
  EXPECT_EQ(stream->scratch_bytes(), 0);
}

TEST_P(StreamTest, an_impossible_size_is_a_start_up_error_that_says_what_to_change) {
  const std::unique_ptr<ops::Stream> stream = fresh();
  stream->begin_measuring();
  EXPECT_FALSE(stream->begin_operator({.op = "test"}, int64_t{1} << 50));
  std::string message;
  try {
    stream->seal_scratch();
  } catch (const StartupError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, testing::HasSubstr("needs 1125899906842624 bytes"));
  EXPECT_THAT(message, testing::HasSubstr("lower the number of running requests"));
}

TEST_P(StreamTest, an_event_can_be_recorded_again_and_tells_the_time_since_another) {
  const std::unique_ptr<ops::Stream> stream = fresh();
  const std::vector<char> ones(1 << 20, 1);
  stream->begin_operator({.op = "test"}, 1 << 20);
  const std::unique_ptr<ops::Event> first = stream->make_event(), second = stream->make_event();
  const Stopwatch watch;
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    first->record();
    backend().copy_to_device(stream->scratch(), ones.data(), 1 << 20, *stream);
    second->record();
    second->wait();
    EXPECT_GT(second->seconds_since(*first), 0) << "a copy lies between them";
    EXPECT_EQ(second->seconds_since(*second), 0);
    sum += second->seconds_since(*first);
  }
  // Two clocks, each of which rounds.
  EXPECT_LE(sum, watch.seconds() + 1e-5);
  const std::unique_ptr<ops::Event> third = stream->record();
  third->wait();
  EXPECT_GE(third->seconds_since(*first), second->seconds_since(*first));
}

class StreamDeathTest : public StreamTest {};
INSTANTIATE_TEST_SUITE_P(backends, StreamDeathTest, testing::ValuesIn(tested_backends()),
                         backend_name);

TEST_P(StreamDeathTest, more_than_was_planned_names_operator_and_bytes) {
  const std::unique_ptr<ops::Stream> stream = fresh();
  stream->begin_measuring();
  stream->begin_operator({.op = "small"}, 100);
  stream->seal_scratch();
  EXPECT_DEATH(linear_of_shapes(70, act(), *stream),
               "linear needs [0-9]+ bytes of scratch, planned are 100");
}

TEST_P(StreamDeathTest, an_operator_that_does_not_say_what_it_needs_gets_none) {
  struct Args {};
  const ops::Operator<Args> silent = {
      .run = [](const Args&, ops::Stream& stream) { stream.scratch(); }};
  const std::unique_ptr<ops::Stream> stream = fresh();
  stream->begin_operator({.op = "other"}, 100);
  EXPECT_DEATH(ops::dispatch("silent", DType::kF32, silent, Args{}, *stream),
               "silent takes scratch without saying how much it needs");
}

}  // namespace
}  // namespace fathom::ops_test
