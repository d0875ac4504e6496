// Kernels of the CUDA backend begin while the one before still runs (src/cuda/runtime/launch.cuh): behind a slow one,
// the next two must wait for all of it, whatever they are.

#include <cmath>
#include <functional>

#include "ops/gather_rows.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/quantize_fp8.h"
#include "ops/rms_norm.h"
#include "ops/silu_mul.h"
#include "tests/ops/direct_product.h"

namespace fathom::ops_test {
namespace {

class OverlappedLaunchesTest : public DirectProductTest<1> {};
INSTANTIATE_TEST_SUITE_P(backends, OverlappedLaunchesTest, testing::ValuesIn(gpu_or_stand_in()),
                         backend_name);

TEST_P(OverlappedLaunchesTest, two_operators_behind_a_slow_one_read_what_it_wrote) {
  // A product that takes some hundred microseconds and ends on different multiprocessors at different times.
  constexpr int64_t kRows = 4096, kDim = 1024, kWide = 7168, kFew = 8, kExperts = 16, kChosen = 4;
  ref::Random random(41);
  const DeviceTensor x = upload(random.normal(act(), {kRows, kWide}));
  const DeviceTensor slow_weight = upload(random.normal(act(), {kDim, kWide}, 0.02));
  const DeviceTensor square = upload(random.normal(act(), {kDim, kDim}, 0.05));
  const DeviceTensor norm = upload(random.normal(act(), {kDim}));
  const DeviceTensor gate = upload(random.normal(act(), {kExperts, kDim}, 0.05));
  const DeviceTensor last_rows = upload<int32_t>({kFew}, {4095, 0, 4094, 1, 2048, 4090, 7, 3000});
  const HostTensor nothing(act(), {kRows, kDim}, std::nan(""));
  const DeviceTensor y = upload(nothing), z = upload(nothing), w = upload(nothing);
  const DeviceTensor q = empty(DType::kF8E4M3, {kRows, kDim});
  const DeviceTensor scale = empty(DType::kF32, {kRows, kDim / 128});
  const DeviceTensor ids = empty(DType::kI32, {kFew, kChosen});
  const DeviceTensor weights = empty(DType::kF32, {kFew, kChosen});
  const auto end = [&](const DeviceTensor& t) { return t.view().slice(0, kRows - kFew, kRows); };
  const auto multiply = [&](const Tensor& from, const Tensor& to) {
    ops::linear({.x = from, .weight = {.data = square.view(), .scale = {}}, .out = to}, stream());
  };
  // Each reads the last rows of one tensor and writes those of the next.
  struct Step {
    const char* name;
    std::function<void(const DeviceTensor& from, const DeviceTensor& to)> run;
  };
  const std::vector<Step> steps = {
      {"linear", [&](auto& from, auto& to) { multiply(end(from), end(to)); }},
      {"linear of a batch",
       [&](auto& from, auto& to) {
         multiply(from.view().slice(0, kRows - 64, kRows), to.view().slice(0, kRows - 64, kRows));
       }},
      {"rms_norm",
       [&](auto& from, auto& to) {
         ops::rms_norm({.x = end(from), .weight = norm.view(), .residual = {}, .out = end(to)},
                       stream());
       }},
      {"gather_rows",
       [&](auto& from, auto& to) {
         ops::gather_rows({.x = from.view(), .rows = last_rows.view(), .out = end(to)}, stream());
       }},
      {"quantize_fp8",
       [&](auto& from, auto&) {
         ops::quantize_fp8({.x = from.view(), .q = q.view(), .scale = scale.view()}, stream());
       }},
      {"moe_gate", [&](auto& from, auto&) {
         ops::MoeGateArgs args;
         args.kind = ops::GateKind::kSoftmaxGreedy;
         args.x = end(from);
         args.weight = gate.view();
         args.ids = ids.view();
         args.weights = weights.view();
         ops::moe_gate(args, stream());
       }}};
  const auto clear = [&](const DeviceTensor& t) {
    const std::vector<uint8_t> fill(static_cast<size_t>(t.view().num_bytes()),
                                    poison(t.view().dtype()));
    backend().copy_to_device(t.view().data(), fill.data(), t.view().num_bytes(), stream());
    stream().synchronize();
  };
  const auto run = [&](const Step& second, const Step& third, bool in_turn) {
    for (const DeviceTensor* t : {&y, &z, &w, &q, &scale, &ids, &weights}) clear(*t);
    ops::linear(
        {.x = x.view(), .weight = {.data = slow_weight.view(), .scale = {}}, .out = y.view()},
        stream());
    if (in_turn) stream().synchronize();
    second.run(y, z);
    if (in_turn) stream().synchronize();
    // The third reads what the slow one wrote, with only the second between them.
    third.run(y, w);
    std::vector<std::vector<uint8_t>> all;
    for (const DeviceTensor* t : {&z, &w, &q, &scale, &ids, &weights})
      all.push_back(bytes(t->view()));
    return all;
  };
  for (const Step& second : steps)
    for (const Step& third : steps) {
      const auto expected = run(second, third, true);
      for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(run(second, third, false) == expected)
            << second.name << ", then " << third.name << ", run " << i;
    }
}

}  // namespace
}  // namespace fathom::ops_test
