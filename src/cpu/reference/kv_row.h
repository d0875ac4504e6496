#pragma once
// One row of the cache as float32 values and back (ops/kv_format.h).
//
//   const float* values = load_kv_row(cache, row, scratch);   // latent, then rope
//   store_kv_row(values, cache, row);
//
// Pure functions, thread-safe.

#include "ops/kv_format.h"

namespace fathom::cpu::reference {

// f32[format.dim()]: where the row lies when it is float32 already, else in `out`.
const float* load_kv_row(const ops::KvCache& cache, int64_t row, float* out);
void store_kv_row(const float* values, const ops::KvCache& cache, int64_t row);

}  // namespace fathom::cpu::reference
