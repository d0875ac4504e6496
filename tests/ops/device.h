#pragma once
// Fixture of the operator suite: memory and a stream of the backend under test, host values in and out, and
// the comparison with an oracle.
//
//   class LinearTest : public OpsTest {};
//   TEST_P(LinearTest, multiplies) {
//     DeviceTensor x = upload(host_x), y = empty(act(), {69, 512});
//     ops::linear({.x = x.view(), ...}, stream());
//     expect_close(download(y.view()), ref::linear(host_x, host_w), {.f32 = {...}, .bf16 = {...}});
//   }
//   INSTANTIATE_TEST_SUITE_P(backends, LinearTest, testing::ValuesIn(tested_backends()), backend_name);
//
// DeviceTensor owns its memory and must not outlive the fixture.

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "tensor/tensor.h"
#include "tests/ops/backends.h"
#include "tests/ref/host_tensor.h"

namespace fathom::ops_test {

using ref::HostTensor;
using tensor::DType;
using tensor::Tensor;

// A byte that makes what nobody wrote stand out: NaN in floats; in integers a number that no answer is, and not the -1
// that operators write for padding.
constexpr uint8_t poison(DType dtype) {
  switch (dtype) {
    case DType::kI32:
    case DType::kI64:
    case DType::kU64:
    case DType::kU8:
      return 0x7f;
    default:
      return 0xff;
  }
}

class DeviceTensor {
 public:
  // Filled with poison(dtype).
  DeviceTensor(const ops::Backend& backend, ops::Stream& stream, DType dtype,
               std::vector<int64_t> shape);
  DeviceTensor(DeviceTensor&& other) noexcept;
  DeviceTensor& operator=(DeviceTensor&&) = delete;
  ~DeviceTensor();
  const Tensor& view() const { return view_; }

 private:
  const ops::Backend* backend_;
  Tensor view_;
};

// Allowed difference: |actual - expected| <= abs + rel * |expected|, and 1 - cosine of the whole. Of the elements, the
// share `rare` may be off by up to kRareFactor times as much, and a single one always where there is such a share.
struct Bound {
  double abs = 0, rel = 0, one_minus_cosine = 0, rare = 0;
};
inline constexpr double kRareFactor = 4;
// What may stand in rows that are nobody's: a step's padding computes with whatever is there.
inline constexpr double kGarbage[] = {std::numeric_limits<double>::quiet_NaN(),
                                      std::numeric_limits<double>::infinity(), -1e30};

// The bound for each act dtype.
struct Bounds {
  Bound f32, bf16;
};

class OpsTest : public testing::TestWithParam<TestedBackend> {
 protected:
  const ops::Backend& backend() const { return *tested_.backend; }
  ops::Stream& stream() { return *stream_; }
  DType act() const { return backend().act; }

  // From now on another backend. REQUIRES: no DeviceTensor is left.
  void run_on(const TestedBackend& tested);

  DeviceTensor empty(DType dtype, std::vector<int64_t> shape);
  DeviceTensor upload(const HostTensor& host);
  template <class T>
  DeviceTensor upload(std::vector<int64_t> shape, const std::vector<T>& values) {
    DeviceTensor out = empty(tensor::DTypeOf<T>::value, std::move(shape));
    copy_in(out.view(), values.data(), values.size() * sizeof(T));
    return out;
  }
  // Strided views are read row by row.
  HostTensor download(const Tensor& view);
  template <class T>
  std::vector<T> download_as(const Tensor& view) {
    std::vector<T> values(static_cast<size_t>(view.num_elements()));
    copy_out(values.data(), view, values.size() * sizeof(T));
    return values;
  }
  // The elements as they lie in memory, for comparisons bit by bit.
  std::vector<uint8_t> bytes(const Tensor& view);
  void expect_close(const HostTensor& actual, const HostTensor& expected, const Bounds& bounds);

 private:
  void copy_in(const Tensor& view, const void* from, size_t bytes);
  void copy_out(void* to, const Tensor& view, size_t bytes);

  TestedBackend tested_ = GetParam();
  std::unique_ptr<ops::Stream> stream_ = backend().make_stream(tested_.stream);
};

std::string backend_name(const testing::TestParamInfo<TestedBackend>& info);

}  // namespace fathom::ops_test
