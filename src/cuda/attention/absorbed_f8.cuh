#pragma once
// What a block of absorbed attention does with a tile of 32 cache rows in f8 that lie in shared memory as they came:
// scores of 16 query rows, and weighted values. Values become 16-bit operands in registers, without their scales, which
// are one of a row and 128 channels: those of the scores multiply sums, those of the values the weights.
//
// - Scores: e4m3 to half is one instruction for two, exact, and keeps NaN. Queries become halves too, each row's 128
//   channels times a power of two: exactly, but for what is 2^31 times smaller than the largest.
// - Values: two rows of one channel are an operand, and a register of a transposed matrix has two channels of each. The
//   bits of e4m3 moved by four places are bf16 times 2^-120, subnormal ones too. A NaN becomes a number; who sees it is
//   NaN by its score. Weights keep the range of bf16.
//
// Internal to cuda/attention/.

#include <cfloat>

#include "cuda/attention/absorbed_tile.cuh"

namespace fathom::cuda::absorbed {

inline constexpr int kF8Group = 128, kF8Steps = kF8Group / 16;  // channels of a scale
inline constexpr int kHalfExponent = 14;                        // of the largest value of a query
// Weights times their scales are 2^60 too large, values 2^120 too small: sums stay in float32's range for scales from
// 2^-60 to 2^66.
inline constexpr float kWeightFactor = 0x1p60f, kSumFactor = 0x1p60f;

// Two bf16 values times a factor, as halves.
__device__ __forceinline__ uint32_t bf16x2_to_half2(uint32_t pair, float factor) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;"
      : "=r"(out)
      : "f"(bf16x2_high(pair) * factor), "f"(bf16x2_low(pair) * factor));
  return out;
}

// Four e4m3 values as halves, by an instruction each: from C++ the upper two are shifted down before.
__device__ __forceinline__ void e4m3x4_to_half2(uint32_t four, uint32_t (&halves)[2]) {
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n"
      "}"
      : "=r"(halves[0]), "=r"(halves[1])
      : "r"(four));
}

__device__ __forceinline__ uint32_t max_magnitudes(uint32_t a, uint32_t b) {
  return __vmaxu2(a & 0x7fff7fffu, b & 0x7fff7fffu);
}

// A warp's quarter of the query rows: 128 latent channels as halves, 16 of rope as bf16. Of 16 channels a thread has
// four that lie side by side, as a register of e4m3 values does.
struct F8Queries {
  uint32_t latent[kF8Steps][4], rope[4];
  float unit[2];  // of the sums of rows g and g + 8

  __device__ __forceinline__ void init(const char* rows, int quarter) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    ldmatrix_x4(rope, shared_address(rows) + lane % 16 * kRowBytes + lane / 16 * 16 +
                          (kLatent + quarter * 16) * 2);
    uint32_t top[2] = {0, 0};
#pragma unroll
    for (int step = 0; step < kF8Steps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto pairs = *reinterpret_cast<const uint2*>(
            rows + (g + half * 8) * kRowBytes + (quarter * kF8Group + step * 16 + t * 4) * 2);
        latent[step][half] = pairs.x;
        latent[step][half + 2] = pairs.y;
        top[half] = max_magnitudes(top[half], max_magnitudes(pairs.x, pairs.y));
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2)
        top[half] = __vmaxu2(top[half], __shfl_xor_sync(0xffffffffu, top[half], lanes));
      // Not those of zero, of NaN, or so small that the factor would have none.
      const int exponent = static_cast<int>(max(top[half] & 0xffffu, top[half] >> 16) >> 7);
      const int up = kHalfExponent + 127 - min(max(exponent, kHalfExponent + 1), 254);
      const float factor = __uint_as_float((127 + up) << 23);
      unit[half] = __uint_as_float((127 - up) << 23);
#pragma unroll
      for (int step = 0; step < kF8Steps; ++step) {
        latent[step][half] = bf16x2_to_half2(latent[step][half], factor);
        latent[step][half + 2] = bf16x2_to_half2(latent[step][half + 2], factor);
      }
    }
  }
};

// The scales of a tile's rows times kWeightFactor, as bf16, exactly, as add_f8_values() takes them: u32[4, 4, 4], of a
// group of channels rows 8 i + 2 t and the next one in word i of vector t. Rows from num_rows on may be anything and
// get none, and those with an infinite one are NaN by their scores. By 2 * kTileRows threads.
__device__ __forceinline__ void put_weight_scales(const char* tile, int num_rows, char* to,
                                                  int thread) {
  const int row = thread / 2, first_group = thread % 2 * 2;
  const float2 pair =
      *reinterpret_cast<const float2*>(tile + row * kF8RowBytes + kF8ScaleOffset + first_group * 4);
  const float scales[2] = {pair.x, pair.y};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool counts = row < num_rows && scales[i] <= FLT_MAX;
    const uint32_t bits = counts ? __float_as_uint(scales[i] * kWeightFactor) : 0;
    const int vector = (first_group + i) * 4 + row % 8 / 2;
    *reinterpret_cast<uint16_t*>(to + (vector * 4 + row / 8) * 4 + row % 2 * 2) =
        static_cast<uint16_t>(bits >> 16);
  }
}

// Scores of a warp: a quarter of the inner dimension, of which the latent channels are those of one scale, for kHalves
// times 16 cache rows from first_row on.
template <class Layout, int kHalves>
__device__ __forceinline__ void score_f8_tile(const F8Queries& queries, const char* tile,
                                              float* scores, int quarter, int first_row) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const char* const scales_from =
      tile + (first_row + 2 * t) * kF8RowBytes + kF8ScaleOffset + quarter * 4;
  const uint32_t row = shared_address(tile) + (first_row + lane / 16 * 8 + lane % 8) * kF8RowBytes;
  const uint32_t values = row + quarter * kF8Group + lane / 8 % 2 * 16;
  constexpr int kHalfBytes = 16 * kF8RowBytes, kLoads = kF8Steps / 2;
  uint32_t b[2][kHalves][4];
  // Of each eight rows two chains of products.
  float rope[kHalves][2][4] = {}, sums[kHalves][2][2][4] = {};
  float scales[kHalves][4];
#pragma unroll
  for (int h = 0; h < kHalves; ++h) ldmatrix_x4(b[0][h], values + h * kHalfBytes);
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    uint32_t keys[4];
    ldmatrix_x4(keys, row + h * kHalfBytes + kF8RopeOffset + quarter * 32 + lane / 8 % 2 * 16);
    mma_bf16(rope[h][0], queries.rope, {keys[0], keys[1]});
    mma_bf16(rope[h][1], queries.rope, {keys[2], keys[3]});
  }
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      scales[h][i] = *reinterpret_cast<const float*>(scales_from + h * kHalfBytes +
                                                     (i / 2 * 8 + i % 2) * kF8RowBytes);
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (i + 1 < kLoads) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h)
        ldmatrix_x4(b[(i + 1) % 2][h], values + h * kHalfBytes + (i + 1) * 32);
    }
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          uint32_t halves[2];
          e4m3x4_to_half2(b[i % 2][h][n * 2 + odd], halves);
          mma_f16(sums[h][odd][n], queries.latent[i * 2 + odd], halves);
        }
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // rows g, g + 8 of both halves of the 16 cache rows
      const int half = i % 2, n = i / 2;
      float out[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = half * 2 + j;
        out[j] = __fmaf_rn((sums[h][0][n][at] + sums[h][1][n][at]) * queries.unit[half],
                           scales[h][n * 2 + j], rope[h][n][at]);
      }
      *reinterpret_cast<float2*>(scores +
                                 (quarter * Layout::kRows + g + half * 8) * Layout::kScoreStride +
                                 first_row + h * 16 + n * 8 + 2 * t) = {out[0], out[1]};
    }
  }
}

// The bits of `a` where those of the mask are set, else those of `b`: one instruction, of which the compiler makes two.
__device__ __forceinline__ uint32_t select_bits(uint32_t a, uint32_t b, uint32_t mask) {
  uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xe4;" : "=r"(out) : "r"(a), "r"(b), "r"(mask));
  return out;
}

// Of four e4m3 values of two rows, those in the lower bytes of the halves and those in the upper ones as bf16, times
// 2^-120: the sign stays, exponent and fraction move. Signs of the other bytes lie among the bits of magnitudes.
__device__ __forceinline__ void e4m3x4_to_bf16x2(uint32_t four, uint32_t& low, uint32_t& high) {
  constexpr uint32_t kMagnitudes = 0x07f007f0u;
  uint32_t signs;  // the compiler would take them from what it has shifted, by an instruction more
  asm("and.b32 %0, %1, 0x80808080;" : "=r"(signs) : "r"(four));
  low = select_bits(four << 4, signs << 8, kMagnitudes);
  high = select_bits(four >> 4, signs, kMagnitudes);
}

__device__ __forceinline__ uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}

// A warp's 64 columns of the weighted values, in the order of end_f8_values() and its units.
__device__ __forceinline__ void add_f8_values(const char* tile, const char* weight_scales,
                                              const Bf16* weights, const float* factors,
                                              float (&values)[1][8][4]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
  const uint32_t from = shared_address(tile) + lane * kF8RowBytes + warp * kSlice;
  const uint32_t weight = shared_address(weights) + (lane % 16 * kWeightStride + lane / 16 * 8) * 2;
  uint32_t a[2][4], b[4][4];
#pragma unroll
  for (int step = 0; step < 2; ++step) ldmatrix_x4(a[step], weight + step * 16 * 2);
  const uint4 vector = *reinterpret_cast<const uint4*>(
      weight_scales + (warp * kSlice / kF8Group * 4 + lane % 4) * 16);
  const uint32_t scales[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix_x4_trans(b[i], from + i * 16);
  const float factor[2] = {factors[g], factors[g + 8]};
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[step][i] = multiply_bf16x2(a[step][i], scales[step * 2 + i / 2]);
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[0][n][i] *= factor[i / 2];
  }
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      uint32_t even[2], odd[2];
      e4m3x4_to_bf16x2(b[n / 2][step * 2], even[0], odd[0]);
      e4m3x4_to_bf16x2(b[n / 2][step * 2 + 1], even[1], odd[1]);
      mma_bf16(values[0][n], a[step], even);
      mma_bf16(values[0][n + 1], a[step], odd);
    }
  }
}

// Sums of even columns and of odd ones become pairs of columns (value_column()), in their own unit.
__device__ __forceinline__ void end_f8_values(float (&values)[1][8][4]) {
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float second = values[0][n][half * 2 + 1];
      values[0][n][half * 2 + 1] = values[0][n + 1][half * 2];
      values[0][n + 1][half * 2] = second;
    }
  }
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[0][n][i] *= kSumFactor;
  }
}

}  // namespace fathom::cuda::absorbed
