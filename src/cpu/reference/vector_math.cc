#include "cpu/reference/vector_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fathom::cpu::reference {
namespace {

using tensor::Bf16, tensor::DType, tensor::F8E4M3;

// Sixteen float32 values in four vector registers, which every x86-64 has (gcc and clang).
typedef float Quad __attribute__((vector_size(16)));
constexpr int64_t kLanes = 16;
struct Lanes {
  Quad quads[4] = {};
};

Lanes load(const float* from) {
  Lanes lanes;
  for (int i = 0; i < 4; ++i) std::memcpy(&lanes.quads[i], from + 4 * i, sizeof(Quad));
  return lanes;
}

// Elements past n count as zero.
Lanes load_tail(const float* from, int64_t n) {
  float padded[kLanes] = {};
  std::copy_n(from, n, padded);
  return load(padded);
}

void add(Lanes& acc, const Lanes& a) {
  for (int i = 0; i < 4; ++i) acc.quads[i] += a.quads[i];
}

void add_product(Lanes& acc, const Lanes& a, const Lanes& b) {
  for (int i = 0; i < 4; ++i) acc.quads[i] += a.quads[i] * b.quads[i];
}

float sum_pairwise(const Lanes& lanes) {
  float v[kLanes];
  std::memcpy(v, &lanes, sizeof(v));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) v[i] += v[i + width];
  }
  return v[0];
}

template <class T>
const float* convert(const void* from, int64_t n, float* to) {
  const T* values = static_cast<const T*>(from);
  for (int64_t i = 0; i < n; ++i) to[i] = tensor::to_float(values[i]);
  return to;
}

}  // namespace

float dot(const float* a, const float* b, int64_t n) {
  Lanes acc;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) add_product(acc, load(a + i), load(b + i));
  if (i < n) add_product(acc, load_tail(a + i, n - i), load_tail(b + i, n - i));
  return sum_pairwise(acc);
}

float sum(const float* a, int64_t n) {
  Lanes acc;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) add(acc, load(a + i));
  if (i < n) add(acc, load_tail(a + i, n - i));
  return sum_pairwise(acc);
}

void add_scaled(float* acc, float factor, const float* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) acc[i] += factor * a[i];
}

float inverse_rms(const float* v, int64_t n, float eps) {
  return 1.0f / std::sqrt(dot(v, v, n) / static_cast<float>(n) + eps);
}

float silu(float v) { return v / (1.0f + std::exp(-v)); }

namespace {

template <class Pair>
const float* unpack(const void* pairs, int64_t n, float* to) {
  const auto* from = static_cast<const Pair*>(pairs);
  for (int64_t i = 0; i < n; ++i)
    to[i] = static_cast<float>(i % 2 == 0 ? from[i / 2].even() : from[i / 2].odd());
  return to;
}

}  // namespace

const float* as_floats(const void* from, DType dtype, int64_t n, float* to) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(from);
    case DType::kBf16:
      return convert<Bf16>(from, n, to);
    case DType::kF8E4M3:
      return convert<F8E4M3>(from, n, to);
    case DType::kI4x2:
      return unpack<tensor::I4x2>(from, n, to);
    case DType::kU4x2:
      return unpack<tensor::U4x2>(from, n, to);
    default:
      FATHOM_CHECK(false, "no float values in " << tensor::dtype_name(dtype));
  }
}

void store_floats(const float* from, void* to, DType dtype, int64_t n) {
  if (dtype == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  FATHOM_CHECK(dtype == DType::kBf16, "cannot store " << tensor::dtype_name(dtype));
  Bf16* values = static_cast<Bf16*>(to);
  for (int64_t i = 0; i < n; ++i) values[i] = tensor::from_float<Bf16>(from[i]);
}

const void* element(const void* data, DType dtype, int64_t i) {
  return static_cast<const char*>(data) + i * tensor::dtype_bytes(dtype);
}

void* element(void* data, DType dtype, int64_t i) {
  return static_cast<char*>(data) + i * tensor::dtype_bytes(dtype);
}

float log_sum_exp(const float* logits, int64_t n) {
  const float max = *std::max_element(logits, logits + n);
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(std::exp(logits[i] - max));
  return max + static_cast<float>(std::log(total));
}

void softmax(float* values, int64_t n) {
  const float max = *std::max_element(values, values + n);
  for (int64_t i = 0; i < n; ++i) values[i] = std::exp(values[i] - max);
  const float total = sum(values, n);
  for (int64_t i = 0; i < n; ++i) values[i] /= total;
}

}  // namespace fathom::cpu::reference
