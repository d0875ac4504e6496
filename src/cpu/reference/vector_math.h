#pragma once
// Sums in one fixed order: sixteen interleaved partial sums in float32 (element i goes to sum i %
// 16), then added pairwise. The order depends on the length only, so a row's bits do not depend on
// other rows, and sixteen short sums lose far less than one long one.
//
//   float y = dot(x, w, n);
//
// Pure functions, thread-safe.

#include <cstdint>

#include "tensor/tensor.h"

namespace fathom::cpu::reference {

float dot(const float* a, const float* b, int64_t n);
float sum(const float* a, int64_t n);
// log(sum(exp(logits))): the sum in double, because it has as many terms as the vocabulary. REQUIRES: n > 0.
float log_sum_exp(const float* logits, int64_t n);
// values[0, n) become exp(value - max) / sum. REQUIRES: n > 0.
void softmax(float* values, int64_t n);
// acc += factor * a
void add_scaled(float* acc, float factor, const float* a, int64_t n);
// 1 / sqrt(mean(v^2) + eps)
float inverse_rms(const float* v, int64_t n, float eps);
float silu(float v);

// n values of type f32, bf16, f8_e4m3 or i4x2 as float32. Returns `from` itself when it is float32
// already, else `to` after writing there.
const float* as_floats(const void* from, tensor::DType dtype, int64_t n, float* to);
// Writes n values into f32 or bf16 memory.
void store_floats(const float* from, void* to, tensor::DType dtype, int64_t n);
// Address of element i of an array of this dtype.
const void* element(const void* data, tensor::DType dtype, int64_t i);
void* element(void* data, tensor::DType dtype, int64_t i);

}  // namespace fathom::cpu::reference
