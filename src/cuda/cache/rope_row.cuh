#pragma once
// Rotated heads, 16 bytes at a time: rope and chains (cuda/jit/) have the same bits.
//
//   rotate_piece(params, token, piece);      // piece: of the token's, head by head
//
// Internal to cuda/cache/ and cuda/fusion/.

#include "cuda/device/convert.cuh"
#ifndef __CUDACC_RTC__
#include "ops/rope.h"
#endif

namespace fathom::cuda {

struct RopeParams {
  Bf16* x;             // [tokens, heads, 2 * pairs], strided
  const float* table;  // [tokens, 2 * pairs]
  int64_t token_stride, head_stride;
  int heads, pairs;
  bool is_paired;  // a pair is one word
};

// What is rounded where is the same as in a row of the cache (append_row.cuh).
__device__ __forceinline__ uint32_t rotate(uint32_t pair, float cosine, float sine) {
  const float a = bf16x2_low(pair), b = bf16x2_high(pair);
  return floats_to_bf16x2(__fmaf_rn(a, cosine, -__fmul_rn(b, sine)),
                          __fmaf_rn(b, cosine, __fmul_rn(a, sine)));
}

inline constexpr int kPiecePairs = 4;  // 16 bytes

__device__ __forceinline__ int pieces_of_token(const RopeParams& p) {
  return p.heads * (p.pairs / kPiecePairs);
}

__device__ __forceinline__ void rotate_piece(const RopeParams& p, int64_t token, int piece) {
  const int of_head = p.pairs / kPiecePairs, head = piece / of_head;
  const int pair = (piece - head * of_head) * kPiecePairs;
  const float* const table = p.table + token * 2 * p.pairs + pair;
  auto* const x =
      reinterpret_cast<uint4*>(p.x + token * p.token_stride + head * p.head_stride + 2 * pair);
  const float4 cosine = *reinterpret_cast<const float4*>(table);
  const float4 sine = *reinterpret_cast<const float4*>(table + p.pairs);
  const uint4 v = *x;
  *x = {rotate(v.x, cosine.x, sine.x), rotate(v.y, cosine.y, sine.y), rotate(v.z, cosine.z, sine.z),
        rotate(v.w, cosine.w, sine.w)};
}

#ifndef __CUDACC_RTC__
inline RopeParams rope_params(const ops::RopeArgs& args) {
  return {.x = args.x.as<Bf16>(),
          .table = args.table.as<float>(),
          .token_stride = args.x.stride(0),
          .head_stride = args.x.stride(1),
          .heads = static_cast<int>(args.x.dim(1)),
          .pairs = static_cast<int>(args.x.dim(2) / 2),
          .is_paired = reinterpret_cast<uintptr_t>(args.x.data()) % 4 == 0 &&
                       args.x.stride(0) % 2 == 0 && args.x.stride(1) % 2 == 0};
}

// Whether rows are whole pieces of 16 bytes, and so is the table.
inline bool has_pieces(const ops::RopeArgs& args) {
  const auto aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return args.x.dim(2) % (2 * kPiecePairs) == 0 && args.x.stride(0) % (2 * kPiecePairs) == 0 &&
         args.x.stride(1) % (2 * kPiecePairs) == 0 && aligned(args.x.data()) &&
         aligned(args.table.data());
}
#endif

}  // namespace fathom::cuda
