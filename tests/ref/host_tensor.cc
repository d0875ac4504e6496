#include "tests/ref/host_tensor.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace fathom::ref {

using tensor::DType;

namespace {

int64_t count(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

double round_to(DType dtype, double value) {
  const auto v = static_cast<float>(value);
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(v);
    case DType::kBf16:
      return static_cast<double>(tensor::to_float(tensor::from_float<tensor::Bf16>(v)));
    case DType::kF16:
      return static_cast<double>(tensor::to_float(tensor::from_float<tensor::F16>(v)));
    case DType::kF8E4M3:
      return static_cast<double>(tensor::to_float(tensor::from_float<tensor::F8E4M3>(v)));
    default:
      return value;
  }
}

uint64_t seed_of_run() {
  static const uint64_t seed = [] {
    const char* const text = std::getenv("FATHOM_OPS_SEED");
    // Spread over all bits, so that neighbouring runs share no test's seed.
    return text == nullptr ? 0 : std::strtoull(text, nullptr, 10) * 0x9e3779b97f4a7c15;
  }();
  return seed;
}

HostTensor::HostTensor(DType type, std::vector<int64_t> dims, double value)
    : dtype(type), shape(std::move(dims)), values(static_cast<size_t>(count(shape)), value) {}

HostTensor HostTensor::rows(int64_t begin, int64_t end) const {
  HostTensor out;
  out.dtype = dtype;
  out.shape = shape;
  out.shape[0] = end - begin;
  const int64_t row = shape[0] == 0 ? 0 : static_cast<int64_t>(values.size()) / shape[0];
  out.values.assign(values.begin() + begin * row, values.begin() + end * row);
  return out;
}

HostTensor HostTensor::columns(int64_t begin, int64_t end) const {
  HostTensor out = *this;
  out.shape.back() = end - begin;
  out.values.clear();
  const int64_t width = shape.back();
  for (int64_t at_row = 0; at_row < static_cast<int64_t>(values.size()); at_row += width) {
    out.values.insert(out.values.end(), values.begin() + at_row + begin,
                      values.begin() + at_row + end);
  }
  return out;
}

HostTensor HostTensor::reshaped(std::vector<int64_t> dims) const {
  HostTensor out = *this;
  out.shape = std::move(dims);
  FATHOM_CHECK(count(out.shape) == count(shape), count(out.shape) << " from " << count(shape));
  return out;
}

HostTensor HostTensor::operator[](int64_t i) const {
  HostTensor out = rows(i, i + 1);
  out.shape.erase(out.shape.begin());
  return out;
}

HostTensor Random::normal(DType dtype, std::vector<int64_t> shape, double deviation) {
  HostTensor out(dtype, std::move(shape));
  std::normal_distribution<double> distribution(0.0, deviation);
  for (double& v : out.values) v = round_to(dtype, distribution(engine_));
  return out;
}

HostTensor Random::uniform(DType dtype, std::vector<int64_t> shape, double low, double high) {
  HostTensor out(dtype, std::move(shape));
  std::uniform_real_distribution<double> distribution(low, high);
  for (double& v : out.values) v = round_to(dtype, distribution(engine_));
  return out;
}

HostTensor Random::integers(DType dtype, std::vector<int64_t> shape, int64_t low, int64_t high) {
  HostTensor out(dtype, std::move(shape));
  std::uniform_int_distribution<int64_t> distribution(low, high - 1);
  for (double& v : out.values) v = static_cast<double>(distribution(engine_));
  return out;
}

std::vector<int32_t> Random::permutation(int n) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), engine_);
  return order;
}

}  // namespace fathom::ref
