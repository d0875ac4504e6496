#include "apps/bench_ops/on_reference.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/startup_error.h"
#include "cpu/reference/reference_backend.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

template <class T>
std::vector<float> floats(const Tensor& host) {
  const T* const in = host.as<T>();
  std::vector<float> out(static_cast<size_t>(host.num_elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      out[i] = static_cast<float>(in[i]);
    } else {
      out[i] = tensor::to_float(in[i]);
    }
  }
  return out;
}

// A contiguous tensor of the shape of another, of any rank.
Tensor same_shape(const Tensor& like, DType dtype, void* data) {
  switch (like.rank()) {
    case 1:
      return Tensor::contiguous(data, dtype, {like.dim(0)});
    case 2:
      return Tensor::contiguous(data, dtype, {like.dim(0), like.dim(1)});
    case 3:
      return Tensor::contiguous(data, dtype, {like.dim(0), like.dim(1), like.dim(2)});
    default:
      FATHOM_CHECK(like.rank() == 4, "rank " << like.rank());
      return Tensor::contiguous(data, dtype, {like.dim(0), like.dim(1), like.dim(2), like.dim(3)});
  }
}

}  // namespace

OnReference::OnReference(ops::Stream& benched)
    : benched_(benched), stream_(cpu::reference_backend().make_stream({})) {}

Tensor OnReference::empty(DType dtype, std::initializer_list<int64_t> shape) {
  const int64_t bytes = Tensor::contiguous(nullptr, dtype, shape).num_bytes();
  std::optional<ops::DeviceBuffer> buffer =
      ops::DeviceBuffer::allocate(stream_->backend(), std::max<int64_t>(bytes, 1));
  if (!buffer)
    throw StartupError("no host memory for the " + std::to_string(bytes) + " bytes of a check");
  buffers_.push_back(std::move(*buffer));
  return Tensor::contiguous(buffers_.back().data(), dtype, shape);
}

Tensor OnReference::copy(const Tensor& device) {
  if (device.is_null()) return device;
  const Tensor flat = empty(DType::kU8, {device.num_bytes()});
  copy_into(flat, device);
  return same_shape(device, device.dtype(), flat.data());
}

void OnReference::copy_into(const Tensor& to, const Tensor& device) {
  FATHOM_CHECK(to.num_bytes() == device.num_bytes(), to.describe()
                                                         << " from " << device.describe());
  download(device, static_cast<std::byte*>(to.data()));
  benched_.synchronize();
}

void OnReference::download(const Tensor& device, std::byte* to) {
  if (device.num_bytes() == 0) return;
  if (device.rank() == 1 || device.is_contiguous()) {
    benched_.backend().copy_to_host(to, device.data(), device.num_bytes(), benched_);
    return;
  }
  for (int64_t i = 0; i < device.dim(0); ++i)
    download(device[i], to + i * (device.num_bytes() / device.dim(0)));
}

Tensor OnReference::act(const Tensor& device) {
  const Tensor raw = copy(device);
  if (raw.is_null() || raw.dtype() == DType::kF32) return raw;
  const std::vector<float> converted = values_of(raw);
  return same_shape(raw, DType::kF32, upload(converted, {raw.num_elements()}).data());
}

ops::Activation OnReference::rows(const ops::Activation& device) {
  if (!device.is_quantised()) return act(device.values);
  return {copy(device.values), copy(device.scale)};
}

std::vector<float> OnReference::values(const Tensor& device) { return values_of(copy(device)); }

std::vector<float> OnReference::dequantised(const ops::Activation& device) {
  return dequantised_values_of({copy(device.values), copy(device.scale)});
}

std::vector<float> values_of(const Tensor& host) {
  switch (host.dtype()) {
    case DType::kF32:
      return floats<float>(host);
    case DType::kBf16:
      return floats<tensor::Bf16>(host);
    case DType::kF8E4M3:
      return floats<tensor::F8E4M3>(host);
    default:
      FATHOM_CHECK(host.dtype() == DType::kI32, "no values of " << host.describe());
      return floats<int32_t>(host);
  }
}

std::vector<float> dequantised_values_of(const ops::Activation& host) {
  std::vector<float> values = values_of(host.values);
  const std::vector<float> scales = values_of(host.scale);
  const auto dim = static_cast<size_t>(host.dim(1)),
             blocks = static_cast<size_t>(host.scale.dim(1));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] *= scales[i / dim * blocks + i % dim / static_cast<size_t>(ops::kScaleBlock)];
  return values;
}

double relative_error(const std::vector<float>& actual, const std::vector<float>& expected) {
  FATHOM_CHECK(actual.size() == expected.size(), actual.size()
                                                     << " values, expected " << expected.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double e = double{expected[i]}, d = double{actual[i]} - e;
    difference += d * d;
    norm += e * e;
  }
  if (difference == 0) return 0;
  return std::sqrt(difference / norm);
}

}  // namespace fathom::apps
