#pragma once
// OnReference: copies of a case's operands for the reference backend, and results as numbers, so that a cut of a
// call can be computed again in plain float32 and compared.
//
//   OnReference on_reference(*stream);                              // of the backend that is benched
//   const Tensor out = on_reference.empty(DType::kF32, {2, 512});
//   ops::linear({.x = on_reference.rows(x), .weight = on_reference.weight(w), .out = out},
//               on_reference.stream());
//   const double error = relative_error(on_reference.values(device_out), values_of(out));
//
// Owns the copies. Not synchronised.

#include <algorithm>
#include <memory>
#include <vector>

#include "ops/device_buffer.h"
#include "ops/linear.h"

namespace fathom::apps {

class OnReference {
 public:
  explicit OnReference(ops::Stream& benched);

  ops::Stream& stream() { return *stream_; }
  // Not initialised.
  tensor::Tensor empty(tensor::DType dtype, std::initializer_list<int64_t> shape);
  // The same bytes, contiguous. Null stays null.
  tensor::Tensor copy(const tensor::Tensor& device);
  // Overwrites a contiguous tensor of the reference with a device tensor of as many bytes.
  void copy_into(const tensor::Tensor& to, const tensor::Tensor& device);
  template <class T>
  tensor::Tensor upload(const std::vector<T>& values, std::initializer_list<int64_t> shape) {
    const tensor::Tensor tensor = empty(tensor::DTypeOf<T>::value, shape);
    std::copy(values.begin(), values.end(), tensor.as<T>());
    return tensor;
  }
  // act -> f32; quantised rows as they are.
  ops::Activation rows(const ops::Activation& device);
  // Plain rows of any rank.
  tensor::Tensor act(const tensor::Tensor& device);
  ops::Weight weight(const ops::Weight& device) {
    return {.data = copy(device.data), .scale = copy(device.scale)};
  }
  // Downloaded as floats.
  std::vector<float> values(const tensor::Tensor& device);
  std::vector<float> dequantised(const ops::Activation& device);

 private:
  void download(const tensor::Tensor& device, std::byte* to);

  ops::Stream& benched_;
  std::unique_ptr<ops::Stream> stream_;
  std::vector<ops::DeviceBuffer> buffers_;
};

// Of a contiguous tensor in host memory.
std::vector<float> values_of(const tensor::Tensor& host);
std::vector<float> dequantised_values_of(const ops::Activation& host);

// |actual - expected| / |expected|, both Euclidean norms; NaN where either has one.
double relative_error(const std::vector<float>& actual, const std::vector<float>& expected);

}  // namespace fathom::apps
