#pragma once
// Rows of the cache as float32 and back, by the kernels of one instruction set (ops/kv_format.h).
//
//   const float* values = read_kv_row(kernels, cache, row, scratch);      // latent, then rope
//
// Pure functions, thread-safe.

#include "cpu/isa/kernels.h"
#include "ops/kv_format.h"

namespace fathom::cpu {

// Parts of the row that lies at `row`.
void widen_kv_latent(const KernelTable& kernels, const ops::KvFormat& format, const std::byte* row,
                     float* out);
void widen_kv_rope(const KernelTable& kernels, const ops::KvFormat& format, const std::byte* row,
                   float* out);

// f32[format.dim()]: where the row lies when it is float32 already, else in `out`.
inline const float* read_kv_row(const KernelTable& kernels, const ops::KvCache& cache, int64_t row,
                                float* out) {
  if (cache.format.latent == tensor::DType::kF32)
    return reinterpret_cast<const float*>(cache.row(row));
  widen_kv_latent(kernels, cache.format, cache.row(row), out);
  widen_kv_rope(kernels, cache.format, cache.row(row), out + cache.format.latent_dim);
  return out;
}

// REQUIRES: not float32, whose rows are computed where they lie.
void narrow_kv_row(const KernelTable& kernels, const float* values, const ops::KvCache& cache,
                   int64_t row);

}  // namespace fathom::cpu
