#pragma once
// HostTensor: values on the host as double, each exactly representable in the dtype that it will have on
// the device, so that an oracle computes from the very numbers the operator reads.
//
//   ref::Random random(7);
//   ref::HostTensor x = random.normal(DType::kF32, {69, 7168});
//   double v = x.at(3, 5);
//
// Owns its values. Not synchronised.

#include <cstdint>
#include <random>
#include <vector>

#include "tensor/dtype.h"

namespace fathom::ref {

// The nearest value that `dtype` can hold. Integers pass.
double round_to(tensor::DType dtype, double value);

struct HostTensor {
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  std::vector<double> values;

  HostTensor() = default;
  HostTensor(tensor::DType type, std::vector<int64_t> dims, double value = 0);

  int64_t dim(size_t axis) const { return shape[axis]; }
  double& at(int64_t i) { return values[static_cast<size_t>(i)]; }
  double at(int64_t i) const { return values[static_cast<size_t>(i)]; }
  double& at(int64_t i, int64_t j) { return at(i * shape[1] + j); }
  double at(int64_t i, int64_t j) const { return at(i * shape[1] + j); }
  double& at(int64_t i, int64_t j, int64_t k) { return at((i * shape[1] + j) * shape[2] + k); }
  double at(int64_t i, int64_t j, int64_t k) const { return at((i * shape[1] + j) * shape[2] + k); }
  // Rows [begin, end) of axis 0.
  HostTensor rows(int64_t begin, int64_t end) const;
  // Elements [begin, end) of the last axis.
  HostTensor columns(int64_t begin, int64_t end) const;
  HostTensor reshaped(std::vector<int64_t> dims) const;
  // Element i of axis 0.
  HostTensor operator[](int64_t i) const;
};

// Other values for the whole run with FATHOM_OPS_SEED in the environment, a number; without it always the same. A
// failure comes again with the same number.
uint64_t seed_of_run();

// Seeded generator; the seed belongs into the test's SCOPED_TRACE or name.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed ^ seed_of_run()) {}
  HostTensor normal(tensor::DType dtype, std::vector<int64_t> shape, double deviation = 1.0);
  HostTensor uniform(tensor::DType dtype, std::vector<int64_t> shape, double low, double high);
  // Integers in [low, high).
  HostTensor integers(tensor::DType dtype, std::vector<int64_t> shape, int64_t low, int64_t high);
  std::vector<int32_t> permutation(int n);
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace fathom::ref
