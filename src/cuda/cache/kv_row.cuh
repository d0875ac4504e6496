#pragma once
// Rows of the paged cache on the device: their format as plain numbers, and single values of a row.
//
//   const char* row = cache.row(kv_row);
//   float value = kv_value<F8E4M3>(row, layout, i);      // latent, then rope; f8 ones times their scale
//
// Internal to cuda/cache/ and cuda/attention/.

#include "cuda/device/convert.cuh"
#include "ops/kv_format.h"

namespace fathom::cuda {

struct KvLayout {
  char* data = nullptr;
  int64_t row_bytes = 0;
  int latent_dim = 0, rope_dim = 0;
  int scale_offset = 0, rope_offset = 0;

  __device__ char* row(int64_t kv_row) const { return data + kv_row * row_bytes; }
};
#ifndef __CUDACC_RTC__
inline KvLayout kv_layout(const ops::KvCache& cache) {
  const ops::KvFormat& format = cache.format;
  return {.data = static_cast<char*>(cache.rows.data()),
          .row_bytes = format.row_bytes,
          .latent_dim = static_cast<int>(format.latent_dim),
          .rope_dim = static_cast<int>(format.rope_dim),
          .scale_offset = static_cast<int>(format.scale_offset),
          .rope_offset = static_cast<int>(format.rope_offset)};
}
#endif
template <class Latent>
__device__ __forceinline__ float kv_value(const char* row, const KvLayout& layout, int i) {
  using Rope = std::conditional_t<std::is_same_v<Latent, F8E4M3>, Bf16, Latent>;
  if (i >= layout.latent_dim)
    return cuda::to_float(
        reinterpret_cast<const Rope*>(row + layout.rope_offset)[i - layout.latent_dim]);
  const float value = cuda::to_float(reinterpret_cast<const Latent*>(row)[i]);
  if constexpr (std::is_same_v<Latent, F8E4M3>)
    return value * reinterpret_cast<const float*>(row + layout.scale_offset)[i / 128];
  return value;
}

// Two e4m3 values times a scale of the cache, a power of two, as bf16: exactly.
__device__ __forceinline__ uint32_t dequantised(uint16_t pair, float scale) {
  const uint32_t halves = e4m3x2_to_half2(pair);
  return floats_to_bf16x2(
      __half2float(__ushort_as_half(static_cast<uint16_t>(halves))) * scale,
      __half2float(__ushort_as_half(static_cast<uint16_t>(halves >> 16))) * scale);
}

// 16 e4m3 values as two vectors of bf16.
__device__ __forceinline__ void dequantise(const uint4& raw, float scale, uint4 (&out)[2]) {
  const auto four = [scale](uint32_t low, uint32_t high) -> uint4 {
    return {dequantised(static_cast<uint16_t>(low), scale),
            dequantised(static_cast<uint16_t>(low >> 16), scale),
            dequantised(static_cast<uint16_t>(high), scale),
            dequantised(static_cast<uint16_t>(high >> 16), scale)};
  };
  out[0] = four(raw.x, raw.y);
  out[1] = four(raw.z, raw.w);
}
#ifndef __CUDACC_RTC__
// Calls `run` with a value of the type of the cache's latent part.
template <class Run>
void with_cache_type(tensor::DType latent, const Run& run) {
  if (latent == tensor::DType::kF32) return run(float{});
  if (latent == tensor::DType::kBf16) return run(Bf16{});
  run(F8E4M3{});
}
#endif
}  // namespace fathom::cuda
