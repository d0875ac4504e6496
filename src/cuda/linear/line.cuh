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
// i4: a line is two scale blocks, 256 channels. Lane (g, t) takes bytes 16t of the first 64, which are channels 32t to
// 32t + 31 of the first block, and bytes 64 + 16t, the same of the second. Each row has a w_scale.
// i8: products are summed as integers. With scales of blocks a line is one, as of f8; with scales of channels the
// integers are summed to the end, and whoever stores them scales.
// f32: a weight is the exact sum of three bf16 values, each multiplied with the bf16 activation.
//
// kOneToken: there is no other token, so a stage has room for one. All columns multiply it and the first one counts.
// kTwoMatrices: rows 0 to 7 of a tile are of one matrix, rows 8 to 15 of another, with a scale each (f8).

#include <cstdint>
#include <type_traits>

#include "cuda/device/convert.cuh"
#include "cuda/gemm/stored.h"
#include "cuda/mma/warp.cuh"
#include "cuda/ptx/copy.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

inline constexpr int kTileRows = 16, kTileTokens = 8;

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

// kBytes of a row at `offset` to a lane's slot, zeros beyond the row's end. Without kAligned rows begin anywhere. kAll:
// the row is read from end to end soon.
template <class Element, int kBytes, bool kAligned, bool kAll = false>
__device__ __forceinline__ void copy_piece(char* slot, const char* row, int offset, int row_bytes) {
  if constexpr (kAligned) {
    const bool valid = offset < row_bytes;
    const char* const from = row + (valid ? offset : 0);
    if constexpr (kBytes == 16 && kAll) {
      copy_async_16_of_row(shared_address(slot), from, valid);
    } else if constexpr (kBytes == 16) {
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

// Half of the channels of eight integers of 4 bits: pairs (c, c + 4) of halves, from c = 0 and 1 or, of the word
// shifted by 8, from 2 and 3. n ^ 8 is the integer plus 8, and as low bits of 1024 it counts ones or sixteens.
__device__ __forceinline__ void expand_i4(uint32_t word, uint32_t& first, uint32_t& second) {
  constexpr uint32_t kOnes = 0x64086408u, kSixteens = 0x64806480u;  // 1024 + 8, 1024 + 8 * 16
  constexpr uint32_t kSixteenth = 0x2c002c00u,
                     kMinus72 = 0xd480d480u;  // 1 / 16, -(1024 + 128) / 16
  const uint32_t low = (word & 0x000f000fu) ^ kOnes, high = (word & 0x00f000f0u) ^ kSixteens;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(first) : "r"(low), "r"(kOnes));
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(second) : "r"(high), "r"(kSixteenth), "r"(kMinus72));
}

// The next bf16 part of two floats, which keep what is left.
__device__ __forceinline__ uint32_t take_part(float& low, float& high) {
  const uint32_t part = floats_to_bf16x2(low, high);
  low -= bf16x2_low(part);
  high -= bf16x2_high(part);
  return part;
}

template <class W, int MT, int NT, bool kAligned, bool kOneToken = false, bool kTwoMatrices = false>
struct LineStream {
  using X = RowOf<W>;
  using Sum = SumOf<W>;
  static constexpr bool kScaled = kLineScales<W>;
  static constexpr int kPieceX = 16 * static_cast<int>(sizeof(X)) / static_cast<int>(sizeof(W));
  static constexpr int kBlocks = kLineBlocks<W>;
  static constexpr int kPiecesX = 2 * kBlocks;  // of a lane and a token
  static constexpr int kLineX = 4 * kPiecesX * kPieceX;
  // A piece of 16 bytes of all lanes that load some.
  static constexpr int kPieceBytes = kOneToken ? 64 : 512;
  static constexpr int kTileBytes = kTileRows * kLineBytes, kColumnBytes = kPiecesX * kPieceBytes;
  // The lanes that load a scale of the weight: one for each tile or, where rows have scales, for each row.
  static constexpr int kScaleLanes = MT * (kRowScales<W>  ? kTileRows
                                           : kTwoMatrices ? 2
                                                          : 1),
                       kRowsOfScale = kTileRows * MT / kScaleLanes;
  static constexpr int kWeightScaleBytes = kRowScales<W> ? kScaleLanes * kBlocks * 4 : 32;
  // Bytes of a warp's stage: pieces of 16 bytes a lane, then the scales.
  static constexpr int kWeights = MT * kTileBytes, kTokens = NT * kColumnBytes;
  static constexpr int kStage =
      kWeights + kTokens + (kScaled ? kWeightScaleBytes + NT * 32 * kBlocks : 0);
  static_assert(kScaleLanes <= 32 && (!kOneToken || NT == 1) && (!kTwoMatrices || MT == 1));
  static_assert(!kOneToken || kIsF8<W> || kIsI4<W> || std::is_same_v<W, Bf16>);

  // Where this lane's part of the rows begins. Null where there is no token: nothing reads what its column gives. Rows
  // beyond the end repeat the last one.
  struct Source {
    const char* weight[MT][2];  // rows g and g + 8 of a tile
    const char* x[NT];          // token g
    const float* w_scale;  // lane i: of row i * kRowsOfScale or its block, null from kScaleLanes on
    const float* x_scale;  // lane i: of token i, null from 8 * NT on
  };

  // Loads one line of the tile that has these rows.
  static __device__ __forceinline__ void load_tile(char* to, const char* const (&rows)[2], int line,
                                                   int row_bytes) {
    const int lane = threadIdx.x % 32, offset = line * kLineBytes + lane % 4 * 16;
#pragma unroll
    for (int piece = 0; piece < 4; ++piece)
      copy_piece<W, 16, kAligned, true>(to + piece * 512 + lane * 16, rows[piece / 2],
                                        offset + piece % 2 * 64, row_bytes);
  }
  // This lane's scales of a line, of a row of the weight or of a token; zeros behind the last of `blocks`.
  static __device__ __forceinline__ void load_scales(char* to, const float* from, int line,
                                                     int blocks) {
    if constexpr (kBlocks == 1) {
      copy_async_small<4>(shared_address(to), from + line, true);
    } else if (blocks % 2 == 0) {
      copy_async_small<8>(shared_address(to), from + line * 2, true);
    } else {
      const bool has_second = line * 2 + 1 < blocks;
      copy_async_small<4>(shared_address(to), from + line * 2, true);
      copy_async_small<4>(shared_address(to + 4), from + line * 2 + (has_second ? 1 : 0),
                          has_second);
    }
  }
  // `stage` is the warp's.
  static __device__ __forceinline__ void load_weights(char* stage, const Source& from, int line,
                                                      int row_bytes, int blocks) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int tile = 0; tile < MT; ++tile)
      load_tile(stage + tile * kTileBytes, from.weight[tile], line, row_bytes);
    if constexpr (kScaled) {
      if (from.w_scale != nullptr)
        load_scales(stage + kWeights + kTokens + lane * 4 * kBlocks, from.w_scale, line, blocks);
    }
  }

  // Where in a token's line a piece of lane t begins.
  static __device__ __forceinline__ int token_offset(int t, int piece) {
    return kIsI4<W> ? piece / 2 * kScaleBlock + t * 32 + piece % 2 * 16 : (t + piece * 4) * kPieceX;
  }
  static __device__ __forceinline__ void load_activations(char* stage, const Source& from, int line,
                                                          int row_bytes, int blocks) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int column = 0; column < NT; ++column) {
      if (from.x[column] == nullptr) continue;
#pragma unroll
      for (int piece = 0; piece < kPiecesX; ++piece)
        copy_piece<X, kPieceX, kAligned>(
            stage + kWeights + column * kColumnBytes + piece * kPieceBytes + lane * 16,
            from.x[column], line * kLineX + token_offset(lane % 4, piece), row_bytes);
    }
    if constexpr (kScaled) {
      if (from.x_scale != nullptr)
        load_scales(stage + kWeights + kTokens + kWeightScaleBytes + lane * 4 * kBlocks,
                    from.x_scale, line, blocks);
    }
  }

  // Until the oldest stage of the ring is there. Scales are read by other lanes than those that loaded them.
  static __device__ __forceinline__ void wait(int stages) {
    wait_oldest(stages);
    if constexpr (kScaled) __syncwarp();
  }

  static __device__ __forceinline__ void multiply(const char* stage, Sum (&sum)[MT][NT][4]) {
    const char* const scales = stage + kWeights + kTokens;
    multiply(stage, stage + kWeights, scales, scales + kWeightScaleBytes, sum);
  }
  // The same of parts that lie apart, for the first `columns` tiles of tokens.
  static __device__ __forceinline__ void multiply(const char* weights, const char* tokens,
                                                  const char* w_scales, const char* x_scales,
                                                  Sum (&sum)[MT][NT][4], int columns = NT) {
    const int lane = threadIdx.x % 32;
    const char* const my_weights = weights + lane * 16;
    const char* const my_tokens = tokens + (kOneToken ? lane % 4 : lane) * 16;
    if constexpr (kIsF8<W> || kIsI4<W>) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        multiply_halves(my_weights + block * 512, my_tokens + block * 2 * kPieceBytes,
                        w_scales + block * 4, x_scales + block * 4, sum, columns);
    } else if constexpr (kQuantisedRows<W>) {
      multiply_i8(my_weights, my_tokens, w_scales, x_scales, sum, columns);
    } else if constexpr (std::is_same_v<W, Bf16>) {
      multiply_bf16(my_weights, my_tokens, sum, columns);
    } else {
      multiply_f32(my_weights, my_tokens, sum);
    }
    if constexpr (kScaled) __syncwarp();  // the stage may be overwritten from here on
  }

 private:
  // Half of a block's steps of a tile, as halves.
  static __device__ __forceinline__ void load_halves(uint32_t (&a)[8][4], const char* tile,
                                                     int half) {
    if constexpr (kIsI4<W>) {
      const uint2 top = *reinterpret_cast<const uint2*>(tile + half * 8);
      const uint2 bottom = *reinterpret_cast<const uint2*>(tile + 1024 + half * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t(&step)[4] = a[half * 4 + i];
        const uint32_t upper = i < 2 ? top.x : top.y, lower = i < 2 ? bottom.x : bottom.y;
        expand_i4(i % 2 == 0 ? upper : upper >> 8, step[0], step[2]);
        expand_i4(i % 2 == 0 ? lower : lower >> 8, step[1], step[3]);
      }
    } else {
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
  }
  // Four of a token's channels for a step, in the order in which load_halves() has the weight's.
  static __device__ __forceinline__ uint32_t step_of(const uint32_t (&x)[4], int i) {
    if constexpr (!kIsI4<W>) return x[i];
    return __byte_perm(x[i / 2 * 2], x[i / 2 * 2 + 1], i % 2 == 0 ? 0x5140 : 0x7362);
  }

  // The scales of rows g and g + 8 of a tile.
  static __device__ __forceinline__ float2 weight_scales(const char* w_scales, int tile) {
    const float* const from = reinterpret_cast<const float*>(w_scales);
    if constexpr (kTwoMatrices && !kRowScales<W>) return {from[0], from[1]};
    if constexpr (!kRowScales<W>) return {from[tile], from[tile]};
    const int row = tile * kTileRows + static_cast<int>(threadIdx.x) % 32 / 4;
    return {from[row * kBlocks], from[(row + 8) * kBlocks]};
  }
  // Scales of the tokens of d's two columns.
  static __device__ __forceinline__ float2 token_scales(const char* x_scales, int column) {
    const int token = column * kTileTokens + static_cast<int>(threadIdx.x) % 4 * 2;
    const float* const from =
        reinterpret_cast<const float*>(x_scales) + (kOneToken ? 0 : token * kBlocks);
    if constexpr (kOneToken) return {from[0], from[0]};
    if constexpr (kBlocks == 1) return *reinterpret_cast<const float2*>(from);
    return {from[0], from[kBlocks]};
  }

  // Two chains of four products each, for their latency.
  static __device__ __forceinline__ void multiply_halves(const char* weights, const char* tokens,
                                                         const char* w_scales, const char* x_scales,
                                                         float (&sum)[MT][NT][4], int columns) {
    uint32_t a[MT][8][4];
#pragma unroll
    for (int tile = 0; tile < MT; ++tile)
#pragma unroll
      for (int half = 0; half < 2 && NT > 1; ++half)
        load_halves(a[tile], weights + tile * kTileBytes, half);
#pragma unroll
    for (int column = 0; column < NT; ++column) {
      if (column >= columns) break;
      float products[MT][2][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (NT == 1) {  // used once, so no registers are kept for all of a line
#pragma unroll
          for (int tile = 0; tile < MT; ++tile)
            load_halves(a[tile], weights + tile * kTileBytes, half);
        }
        uint32_t x[4];
        unpack(x, tokens + column * kColumnBytes + half * kPieceBytes);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t four = step_of(x, i);
          const uint32_t b[2] = {low_halves(four), high_halves(four)};
#pragma unroll
          for (int tile = 0; tile < MT; ++tile)
            mma_f16(products[tile][half], a[tile][half * 4 + i], b);
        }
      }
      const float2 x_scale = token_scales(x_scales, column);
#pragma unroll
      for (int tile = 0; tile < MT; ++tile) {
        const float2 w_scale = weight_scales(w_scales, tile);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sum[tile][column][i] = __fmaf_rn(
              __fadd_rn(products[tile][0][i], products[tile][1][i]),
              __fmul_rn(i % 2 == 0 ? x_scale.x : x_scale.y, i < 2 ? w_scale.x : w_scale.y),
              sum[tile][column][i]);
      }
    }
  }

  // With scales of blocks every operation rounds, as ops/linear.h says.
  static __device__ __forceinline__ void multiply_i8(const char* weights, const char* tokens,
                                                     const char* w_scales, const char* x_scales,
                                                     Sum (&sum)[MT][NT][4], int columns) {
    uint32_t rows[MT][2][2][4];  // top and bottom of each half
#pragma unroll
    for (int tile = 0; tile < MT; ++tile)
#pragma unroll
      for (int piece = 0; piece < 4; ++piece)
        unpack(rows[tile][piece % 2][piece / 2], weights + tile * kTileBytes + piece * 512);
#pragma unroll
    for (int column = 0; column < NT; ++column) {
      if (column >= columns) break;
      int products[MT][4];
#pragma unroll
      for (int i = 0; i < MT * 4; ++i)
        products[i / 4][i % 4] = kScaled ? 0 : static_cast<int>(sum[i / 4][column][i % 4]);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t x[4];
        unpack(x, tokens + column * 1024 + half * 512);
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const uint32_t b[2] = {x[i], x[i + 1]};
#pragma unroll
          for (int tile = 0; tile < MT; ++tile) {
            const auto& [top, bottom] = rows[tile][half];
            const uint32_t a[4] = {top[i], bottom[i], top[i + 1], bottom[i + 1]};
            mma_s8(products[tile], a, b);
          }
        }
      }
#pragma unroll
      for (int tile = 0; tile < MT; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          Sum& mine = sum[tile][column][i];
          if constexpr (kScaled) {
            const float2 x_scale = token_scales(x_scales, column);
            const float2 w_scale = weight_scales(w_scales, tile);
            const float scale = __fmul_rn(i % 2 == 0 ? x_scale.x : x_scale.y, w_scale.x);
            mine = __fadd_rn(mine, __fmul_rn(__int2float_rn(products[tile][i]), scale));
          } else {
            mine = products[tile][i];
          }
        }
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
        unpack(x, tokens + column * kColumnBytes + half * kPieceBytes);
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
