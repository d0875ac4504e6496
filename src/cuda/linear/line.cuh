#pragma once
// The inner loop of all products with few rows of activations: one warp, 16 * MT rows of a weight, 8 * NT tokens,
// one "line" of the inner dimension after the other. A line is 128 bytes of a weight's row: 128 channels of f8, 64
// of bf16, 32 of f32.
//
//   using Lines = LineStream<F8E4M3, 1, 1, true>;
//   typename Lines::Source from;                     // where this lane's rows and tokens begin
//   Lines::load_weights(slot, from, line, row_bytes);  Lines::load_activations(slot, from, line, x_bytes);
//   commit_copies();  ...  Lines::multiply(slot, sum);
//
// Weights are the A of the matrix instruction and tokens its B. The order of the inner dimension is free as long as
// both agree, so rows lie as in the checkpoint: lane (g, t) takes bytes 16t and 64 + 16t of the line, of the weight's
// rows g and g + 8 and of token g. Whatever a lane multiplies it has loaded itself, through shared memory with
// asynchronous copies: shared memory is a longer register file here, and no warp waits for another. Copies of one
// address by many lanes are slow, so nothing is loaded for tokens that are not there, and a scale by one lane.
//
// f8: both sides become halves (exact), the line is one scale block: sum += products * (x_scale * w_scale).
// f32: a weight is the exact sum of three bf16 values, each multiplied with the bf16 activation.

#include <cstdint>
#include <type_traits>

#include "cuda/device/convert.cuh"
#include "cuda/mma/warp.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

inline constexpr int kLineBytes = 128, kTileRows = 16, kTileTokens = 8;

template <class W>
inline constexpr int kLineWidth = kLineBytes / static_cast<int>(sizeof(W));

// What the rows of activations are stored as.
template <class W>
using RowOf = std::conditional_t<std::is_same_v<W, F8E4M3>, F8E4M3, Bf16>;

// Like wait_copies, for 2 to 4 stages of a ring whose oldest is needed.
__device__ __forceinline__ void wait_oldest(int stages) {
  if (stages == 2) {
    wait_copies<1>();
  } else if (stages == 3) {
    wait_copies<2>();
  } else {
    wait_copies<3>();
  }
}

// kBytes of a row at `offset` to a lane's slot, zeros beyond the row's end. Without kAligned rows begin anywhere.
template <class Element, int kBytes, bool kAligned>
__device__ __forceinline__ void copy_piece(char* slot, const char* row, int offset, int row_bytes) {
  if constexpr (kAligned) {
    const bool valid = offset < row_bytes;
    const char* const from = row + (valid ? offset : 0);
    if constexpr (kBytes == 16) {
      copy_async_16(shared_address(slot), from, valid);
    } else {
      copy_async_small<kBytes>(shared_address(slot), from, valid);
    }
  } else {
    using Bits = std::conditional_t<sizeof(Element) == 1, uint8_t,
                                    std::conditional_t<sizeof(Element) == 2, uint16_t, uint32_t>>;
    for (int i = 0; i < kBytes; i += static_cast<int>(sizeof(Bits))) {
      Bits value = 0;
      if (offset + i < row_bytes) value = *reinterpret_cast<const Bits*>(row + offset + i);
      *reinterpret_cast<Bits*>(slot + i) = value;
    }
  }
}

__device__ __forceinline__ void unpack(uint32_t (&words)[4], const char* slot) {
  const uint4 v = *reinterpret_cast<const uint4*>(slot);
  words[0] = v.x, words[1] = v.y, words[2] = v.z, words[3] = v.w;
}
__device__ __forceinline__ uint32_t low_halves(uint32_t four) {
  return e4m3x2_to_half2(static_cast<uint16_t>(four & 0xffffu));
}
__device__ __forceinline__ uint32_t high_halves(uint32_t four) {
  return e4m3x2_to_half2(static_cast<uint16_t>(four >> 16));
}

// The next bf16 part of two floats, which keep what is left.
__device__ __forceinline__ uint32_t take_part(float& low, float& high) {
  const uint32_t part = floats_to_bf16x2(low, high);
  low -= bf16x2_low(part);
  high -= bf16x2_high(part);
  return part;
}

template <class W, int MT, int NT, bool kAligned>
struct LineStream {
  using X = RowOf<W>;
  static constexpr bool kScaled = std::is_same_v<W, F8E4M3>;
  static constexpr int kPieceX = 16 * static_cast<int>(sizeof(X)) / static_cast<int>(sizeof(W));
  static constexpr int kLineX = 8 * kPieceX;
  // Bytes of a warp's stage: pieces of 16 bytes a lane, then the scales.
  static constexpr int kWeights = MT * 2048, kTokens = NT * 1024;
  static constexpr int kStage = kWeights + kTokens + (kScaled ? 32 + NT * 32 : 0);

  // Where this lane's part of the rows begins. Null where there is no token: nothing reads what its column gives. Rows
  // beyond the end repeat the last one.
  struct Source {
    const char* weight[MT][2];  // rows g and g + 8 of a tile
    const char* x[NT];          // token g
    const float* w_scale;       // lane i: of tile i's first block, null from MT on
    const float* x_scale;       // lane i: of token i, null from 8 * NT on
  };

  // `stage` is the warp's.
  static __device__ __forceinline__ void load_weights(char* stage, const Source& from, int line,
                                                      int row_bytes) {
    const int lane = threadIdx.x % 32, offset = line * kLineBytes + lane % 4 * 16;
#pragma unroll
    for (int tile = 0; tile < MT; ++tile) {
#pragma unroll
      for (int piece = 0; piece < 4; ++piece)
        copy_piece<W, 16, kAligned>(stage + tile * 2048 + piece * 512 + lane * 16,
                                    from.weight[tile][piece / 2], offset + piece % 2 * 64,
                                    row_bytes);
    }
    if constexpr (kScaled) {
      if (from.w_scale != nullptr)
        copy_async_small<4>(shared_address(stage + kWeights + kTokens + lane * 4),
                            from.w_scale + line, true);
    }
  }

  static __device__ __forceinline__ void load_activations(char* stage, const Source& from, int line,
                                                          int row_bytes) {
    const int lane = threadIdx.x % 32, offset = line * kLineX + lane % 4 * kPieceX;
#pragma unroll
    for (int column = 0; column < NT; ++column) {
      if (from.x[column] == nullptr) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        copy_piece<X, kPieceX, kAligned>(stage + kWeights + column * 1024 + half * 512 + lane * 16,
                                         from.x[column], offset + half * 4 * kPieceX, row_bytes);
    }
    if constexpr (kScaled) {
      if (from.x_scale != nullptr)
        copy_async_small<4>(shared_address(stage + kWeights + kTokens + 32 + lane * 4),
                            from.x_scale + line, true);
    }
  }

  // Until the oldest stage of the ring is there. Scales are read by other lanes than those that loaded them.
  static __device__ __forceinline__ void wait(int stages) {
    wait_oldest(stages);
    if constexpr (kScaled) __syncwarp();
  }

  static __device__ __forceinline__ void multiply(const char* stage, float (&sum)[MT][NT][4]) {
    const char* const scales = stage + kWeights + kTokens;
    multiply(stage, stage + kWeights, scales, scales + 32, sum);
  }
  // The same of parts that lie apart, for the first `columns` tiles of tokens.
  static __device__ __forceinline__ void multiply(const char* weights, const char* tokens,
                                                  const char* w_scales, const char* x_scales,
                                                  float (&sum)[MT][NT][4], int columns = NT) {
    const int lane = threadIdx.x % 32;
    if constexpr (kScaled) {
      multiply_f8(weights + lane * 16, tokens + lane * 16, w_scales, x_scales, sum, columns);
      __syncwarp();  // the stage may be overwritten from here on
    } else if constexpr (std::is_same_v<W, Bf16>) {
      multiply_bf16(weights + lane * 16, tokens + lane * 16, sum, columns);
    } else {
      multiply_f32(weights + lane * 16, tokens + lane * 16, sum);
    }
  }

 private:
  // Half of a line's steps of a tile, as halves.
  static __device__ __forceinline__ void load_halves(uint32_t (&a)[8][4], const char* tile,
                                                     int half) {
    uint32_t top[4], bottom[4];
    unpack(top, tile + half * 512);
    unpack(bottom, tile + 1024 + half * 512);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint32_t(&step)[4] = a[half * 4 + i];
      step[0] = low_halves(top[i]), step[1] = low_halves(bottom[i]);
      step[2] = high_halves(top[i]), step[3] = high_halves(bottom[i]);
    }
  }

  // Two chains of four products each, for their latency.
  static __device__ __forceinline__ void multiply_f8(const char* weights, const char* tokens,
                                                     const char* w_scales, const char* x_scales,
                                                     float (&sum)[MT][NT][4], int columns) {
    const int pair = threadIdx.x % 4 * 2;
    uint32_t a[MT][8][4];
#pragma unroll
    for (int tile = 0; tile < MT; ++tile)
#pragma unroll
      for (int half = 0; half < 2 && NT > 1; ++half)
        load_halves(a[tile], weights + tile * 2048, half);
#pragma unroll
    for (int column = 0; column < NT; ++column) {
      if (column >= columns) break;
      float products[MT][2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (NT == 1) {  // used once, so no registers are kept for all of a line
#pragma unroll
          for (int tile = 0; tile < MT; ++tile) load_halves(a[tile], weights + tile * 2048, half);
        }
        uint32_t x[4];
        unpack(x, tokens + column * 1024 + half * 512);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t b[2] = {low_halves(x[i]), high_halves(x[i])};
#pragma unroll
          for (int tile = 0; tile < MT; ++tile)
            mma_f16(products[tile][half], a[tile][half * 4 + i], b);
        }
      }
      const float2 x_scale =
          *reinterpret_cast<const float2*>(x_scales + (column * kTileTokens + pair) * 4);
#pragma unroll
      for (int tile = 0; tile < MT; ++tile) {
        const float w_scale = *reinterpret_cast<const float*>(w_scales + tile * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sum[tile][column][i] = __fmaf_rn(__fadd_rn(products[tile][0][i], products[tile][1][i]),
                                           __fmul_rn(i % 2 == 0 ? x_scale.x : x_scale.y, w_scale),
                                           sum[tile][column][i]);
      }
    }
  }

  static __device__ __forceinline__ void multiply_bf16(const char* weights, const char* tokens,
                                                       float (&sum)[MT][NT][4], int columns) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t top[MT][4], bottom[MT][4];
#pragma unroll
      for (int tile = 0; tile < MT; ++tile) {
        unpack(top[tile], weights + tile * 2048 + half * 512);
        unpack(bottom[tile], weights + tile * 2048 + 1024 + half * 512);
      }
#pragma unroll
      for (int column = 0; column < NT; ++column) {
        if (column >= columns) break;
        uint32_t x[4];
        unpack(x, tokens + column * 1024 + half * 512);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const uint32_t b[2] = {x[i], x[i + 1]};
#pragma unroll
          for (int tile = 0; tile < MT; ++tile) {
            const uint32_t a[4] = {top[tile][i], bottom[tile][i], top[tile][i + 1],
                                   bottom[tile][i + 1]};
            mma_bf16(sum[tile][column], a, b);
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void multiply_f32(const char* weights, const char* tokens,
                                                      float (&sum)[MT][NT][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int tile = 0; tile < MT; ++tile) {
        float4 top = *reinterpret_cast<const float4*>(weights + tile * 2048 + half * 512);
        float4 bottom = *reinterpret_cast<const float4*>(weights + tile * 2048 + 1024 + half * 512);
#pragma unroll
        for (int part = 0; part < 3; ++part) {
          const uint32_t a[4] = {take_part(top.x, top.y), take_part(bottom.x, bottom.y),
                                 take_part(top.z, top.w), take_part(bottom.z, bottom.w)};
#pragma unroll
          for (int column = 0; column < NT; ++column) {
            const uint2 x = *reinterpret_cast<const uint2*>(tokens + column * 1024 + half * 512);
            const uint32_t b[2] = {x.x, x.y};
            mma_bf16(sum[tile][column], a, b);
          }
        }
      }
  }
};

}  // namespace fathom::cuda
