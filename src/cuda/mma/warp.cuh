#pragma once
// Matrix products of a warp, one instruction each; ptx/shared.cuh has the loads that feed them.
//
//   float d[4] = {};
//   mma_bf16(d, a, b);        // d[16, 8] += a[16, 16] * b[16, 8], d in float32
//
// Fragments, with g = lane / 4 and t = lane % 4 (two 16-bit elements a word):
//   a[0] row g,     columns 2t, 2t + 1        a[2] row g,     columns 2t + 8, 2t + 9
//   a[1] row g + 8, columns 2t, 2t + 1        a[3] row g + 8, columns 2t + 8, 2t + 9
//   b[0] rows 2t, 2t + 1 of column g          b[1] rows 2t + 8, 2t + 9 of column g
//   d[0], d[1] row g, columns 2t, 2t + 1      d[2], d[3] row g + 8, columns 2t, 2t + 1
// mma_s8() takes 32 integers of 8 bits in rows of a and columns of b, four to a word: columns 4t to 4t + 3, and those
// plus 16, in the same places; its sums are integers.
// Which index of the inner dimension a fragment's element stands for is free as long as a and b agree.

#include <cstdint>

namespace fathom::cuda {

__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_f16(float (&d)[4], const uint32_t (&a)[4],
                                        const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma_s8(int (&d)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace fathom::cuda
