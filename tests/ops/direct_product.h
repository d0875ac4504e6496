#pragma once
// Tests that call a product of the CUDA backend directly, so that no other kernel can take its place. Rows repeat, so
// that few rows of an oracle cover all tiles, and equal rows must have equal bits wherever they lie.
//
//   class MyProductTest : public DirectProductTest<37> {};      // every 37th row is the same
//   INSTANTIATE_TEST_SUITE_P(backends, MyProductTest, testing::ValuesIn(gpu_or_stand_in()), backend_name);

#include <algorithm>
#include <vector>

#include "cuda/backend.h"
#include "tests/ops/device.h"
#include "tests/ref/oracle.h"

namespace fathom::ops_test {

// The stand-in's tests are skipped.
inline std::vector<TestedBackend> gpu_or_stand_in() {
  if (!cuda::find_gpu().usable) return {reference_backend()};
  return {{.name = "cuda", .backend = &cuda::backend(), .stream = {}}};
}

template <int64_t kPeriodOfRows>
class DirectProductTest : public OpsTest {
 protected:
  static constexpr int64_t kPeriod = kPeriodOfRows;
  // Of results in bf16, or in float32 that bf16 rows made.
  static constexpr Bounds kBounds{.f32 = {.abs = 1e-5, .rel = 1e-5, .one_minus_cosine = 1e-10},
                                  .bf16 = {.abs = 2e-2, .rel = 1e-2, .one_minus_cosine = 1e-4}};

  void SetUp() override {
    if (!cuda::find_gpu().usable) GTEST_SKIP() << "no GPU; to run it: a Hopper GPU";
  }

  struct DeviceWeight {
    DeviceTensor data, scale;
    bool has_scale;
    ops::Weight view() const {
      return {.data = data.view(), .scale = has_scale ? scale.view() : Tensor()};
    }
  };
  DeviceWeight upload_weight(const ref::HostWeight& weight) {
    const bool has_scale = !weight.scale.shape.empty();
    return {.data = upload(weight.data),
            .scale = upload(has_scale ? weight.scale : HostTensor(DType::kF32, {1})),
            .has_scale = has_scale};
  }
  struct DeviceRows {
    DeviceTensor values, scale;
    ops::Activation view() const { return {values.view(), scale.view()}; }
  };
  DeviceRows upload_quantised(const HostTensor& x) {
    const ref::Quantized rows = ref::quantize_fp8(x);
    return {.values = upload(rows.q), .scale = upload(rows.scale)};
  }

  // Row t of the result is row t % kPeriod of `rows`.
  static HostTensor repeated(const HostTensor& rows, int64_t count) {
    HostTensor out(rows.dtype, {count, rows.dim(1)});
    for (int64_t t = 0; t < count; ++t)
      for (int64_t i = 0; i < rows.dim(1); ++i) out.at(t, i) = rows.at(t % kPeriod, i);
    return out;
  }
  void expect_repeated(const Tensor& actual, const HostTensor& expected, const Bounds& bounds) {
    const HostTensor values = download(actual);
    const int64_t period = std::min(kPeriod, values.dim(0));
    expect_close(values.rows(0, period), expected.rows(0, period), bounds);
    for (int64_t t = kPeriod; t < values.dim(0); ++t)
      for (int64_t i = 0; i < values.dim(1); ++i)
        ASSERT_EQ(values.at(t, i), values.at(t % kPeriod, i)) << "row " << t << " column " << i;
  }
};

}  // namespace fathom::ops_test
