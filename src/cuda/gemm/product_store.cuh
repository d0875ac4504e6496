#pragma once
// How the kernel of product.h writes a tile: from the sums in a warpgroup's registers (mma/warpgroup.cuh says which
// thread has which) to rows of bf16, float32 or quantised f8.
//
//   store(p, tile, wave, boxes, sums);
//
// Internal to product_kernel.cuh. All threads of a warp call them; warps need not meet.

#include "cuda/device/convert.cuh"
#include "cuda/device/quad.cuh"
#include "cuda/device/quotients.cuh"
#include "cuda/gemm/activation.cuh"
#include "cuda/gemm/product_tile.cuh"
#include "cuda/gemm/to_i8.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace fathom::cuda {

__device__ __forceinline__ int first_row_of_warpgroup() {
  return (static_cast<int>(threadIdx.x) / kWarpgroup - 1) * 64;
}
__device__ __forceinline__ int first_row_of_warp() {
  return first_row_of_warpgroup() + static_cast<int>(threadIdx.x) % kWarpgroup / 32 * 16;
}
__device__ __forceinline__ int local_row(int half) {
  return first_row_of_warp() + half * 8 + static_cast<int>(threadIdx.x) % 32 / 4;
}

// A warp's shared memory on the way out. The copy engine reads a box while the next one is filled.
template <class C>
class Boxes {
 public:
  __device__ explicit Boxes(uint32_t shared)
      : first_(shared + C::kBoxesAt + (threadIdx.x / 32 - 4) * C::kBoxes * kBoxBytes) {}

  // 16 rows and 64 columns of the tile, which lie in 32 sums of each thread from `at` on; needs no other warp.
  template <int kSums>
  __device__ __forceinline__ void store(const CUtensorMap* map, int row, int column,
                                        const float (&sums)[kSums], int at) {
    const int lane = threadIdx.x % 32, lane_row = lane % 16;
    const uint32_t box = first_ + turn_ * kBoxBytes;
    if (lane == 0) wait_stores_read<C::kBoxes - 1>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        words[j] = floats_to_bf16x2(sums[at + 8 * i + 2 * j], sums[at + 8 * i + 2 * j + 1]);
      const int chunk = (2 * i + lane / 16) ^ lane_row % 8;  // swizzled by 128 bytes
      store_matrix_x4(box + lane_row * 128 + chunk * 16, words);
    }
    show_to_engines();
    __syncwarp();
    if (lane == 0) fathom::cuda::store_tile(map, box, column, row);
    turn_ = (turn_ + 1) % C::kBoxes;
  }

 private:
  uint32_t first_;
  int turn_ = 0;
};

// Row 8 * half + g of the warp's 16, n columns left, added to what lies there: 16 bytes a lane. Not by way of
// shared memory, where the sums would be rounded before they are added.
template <int kSums>
__device__ __forceinline__ void add_bf16(const float (&sums)[kSums], int half, bool valid,
                                         uint16_t* row, int n) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < kSums; i += 16) {
    const int column = i * 2 + t * 8;
    uint4* const place = reinterpret_cast<uint4*>(row + column);
    const bool inside = valid && column < n;
    const uint4 old = inside ? *place : uint4{};
    uint32_t words[4] = {old.x, old.y, old.z, old.w};
    transpose_quad(words);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = i + 4 * j + 2 * half;
      words[j] =
          floats_to_bf16x2(sums[at] + bf16x2_low(words[j]), sums[at + 1] + bf16x2_high(words[j]));
    }
    transpose_quad(words);
    if (inside) *place = {words[0], words[1], words[2], words[3]};
  }
}

template <bool kAccumulate, int kSums>
__device__ __forceinline__ void store_f32(const float (&sums)[kSums], int half, bool valid,
                                          float* row, int n) {
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    const int column = i * 2 + t * 2;
    const bool inside = valid && column < n;
    float2* const place = reinterpret_cast<float2*>(row + column);
    float2 value = {sums[i + 2 * half], sums[i + 2 * half + 1]};
    if constexpr (kAccumulate) {
      const float2 old = inside ? *place : float2{};
      value.x += old.x, value.y += old.y;
    }
    if (inside) *place = value;
  }
}

// 64 rows of the tile, of one warpgroup: those of its first 128, or of the 128 that follow.
template <class C, int kSums>
__device__ __forceinline__ void store(const TiledParams& p, const Tile& tile, int wave,
                                      Boxes<C>& boxes, const float (&sums)[kSums]) {
  if (!p.out_is_f32 && !p.accumulate) {
    const int first = wave * 128 + first_row_of_warp();
    if (first >= tile.num_rows) return;
    const CUtensorMap* const map = tile.is_second ? &p.second.out_map : &p.out_map;
    const int n = tile.is_second ? p.second.rows : p.n;
#pragma unroll
    for (int i = 0; i < kSums; i += 32) {
      const int column = tile.column + 2 * i;
      if (column < n) boxes.store(map, tile.row + first, column, sums, i);
    }
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int local = wave * 128 + local_row(half);
    const bool valid = local < tile.num_rows;
    const int64_t place = (int64_t{tile.row} + local) * p.out_stride + tile.column;
    const int n = p.n - tile.column;
    if (!p.out_is_f32) {
      add_bf16(sums, half, valid, static_cast<uint16_t*>(p.out) + place, n);
    } else if (p.accumulate) {
      store_f32<true>(sums, half, valid, static_cast<float*>(p.out) + place, n);
    } else {
      store_f32<false>(sums, half, valid, static_cast<float*>(p.out) + place, n);
    }
  }
}

// The first half of the sums is the gate of the second.
template <class C, int kSums>
__device__ __forceinline__ void store_gated(const TiledParams& p, const Tile& tile, Boxes<C>& boxes,
                                            const float (&sums)[kSums]) {
  float h[kSums / 2];
#pragma unroll
  for (int i = 0; i < kSums / 2; ++i) h[i] = silu_mul(sums[i], sums[i + kSums / 2]);
  store(p, tile, 0, boxes, h);
}

// 32 of a row's 128 values, columns 8 * j + 2 * t and the next one, to 32 neighbouring bytes of lane t.
__device__ __forceinline__ void store_quantised(const uint16_t (&pairs)[16], bool valid,
                                                uint8_t* row) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      words[j] = pairs[4 * j + 2 * part] | static_cast<uint32_t>(pairs[4 * j + 2 * part + 1]) << 16;
    transpose_quad(words);
    constexpr uint32_t kLow = 0x5410, kHigh = 0x7632;
    const uint4 bytes = {
        __byte_perm(words[0], words[1], kLow), __byte_perm(words[2], words[3], kLow),
        __byte_perm(words[0], words[1], kHigh), __byte_perm(words[2], words[3], kHigh)};
    if (valid) *reinterpret_cast<uint4*>(row + threadIdx.x % 4 * 32 + part * 16) = bytes;
  }
}

// To e4m3 and int8: 32 of a block's 128 values, the others lie in the quad's other lanes.
struct QuadToE4m3 {
  float scale = 0;
  __device__ __forceinline__ void find_scale(const float (&h)[32]) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) most = fmaxf(most, fabsf(h[i]));
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2)
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    scale = fp8_scale(most);
  }
  __device__ __forceinline__ void quantise(float (&h)[32], uint16_t (&pairs)[16]) const {
    quotients(h, scale);
#pragma unroll
    for (int i = 0; i < 16; ++i) pairs[i] = floats_to_e4m3x2(h[2 * i], h[2 * i + 1]);
  }
};
struct QuadToI8 {
  float scale = 0;
  __device__ __forceinline__ void find_scale(const float (&h)[32]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) to_.see(h[i]);
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2)
      to_.most = max(to_.most, __shfl_xor_sync(0xffffffffu, to_.most, lanes));
    to_.find_scale();
    scale = to_.scale;
  }
  __device__ __forceinline__ void quantise(float (&h)[32], uint16_t (&pairs)[16]) const {
#pragma unroll
    for (int i = 0; i < 16; ++i)
      pairs[i] = static_cast<uint16_t>(to_.value(h[2 * i]) | to_.value(h[2 * i + 1]) << 8);
  }

 private:
  ToI8 to_;
};

// silu(gate) * up of one block of 128 columns, quantised: a row lies in four lanes.
template <class C>
__device__ __forceinline__ void store_gated_quantised(const TiledParams& p, const Tile& tile,
                                                      const float (&gate)[64],
                                                      const float (&up)[64]) {
  using Quantiser =
      std::conditional_t<std::is_same_v<typename C::Element, int8_t>, QuadToI8, QuadToE4m3>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float h[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int at = i / 2 * 4 + half * 2 + i % 2;
      h[i] = silu_mul(gate[at], up[at]);
    }
    Quantiser to;
    to.find_scale(h);
    uint16_t pairs[16];
    to.quantise(h, pairs);
    const int local = local_row(half);
    const bool valid = local < tile.num_rows && tile.column < p.n;
    const int64_t row = tile.row + local;
    store_quantised(pairs, valid, static_cast<uint8_t*>(p.out) + row * p.out_stride + tile.column);
    if (valid && threadIdx.x % 4 == 0)
      p.out_scale[row * (p.n / kScaleBlock) + tile.column / kScaleBlock] = to.scale;
  }
}

}  // namespace fathom::cuda
