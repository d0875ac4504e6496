#pragma once
// The matrix instructions of a warpgroup: both operands from shared memory, the sums in registers.
//
//   float d[64];
//   mma_begin(d);
//   for (int k = 0; k < 4; ++k) {
//     const uint32_t at = k * kStepOfK;
//     mma(d, descriptor(a + at), descriptor(b + at), k != 0, Bf16{});
//   }
//   mma_commit();
//   mma_wait<0>(d);                              // now d may be read
//
// a and b are words of descriptors (descriptor_word()) of tiles whose rows have 128 bytes, swizzled as the tensor copy
// engine does with CU_TENSOR_MAP_SWIZZLE_128B: a has 64 rows, b has 2 * size of d, and d = a * b^T. A row of a tile is
// 64 bf16 or 128 e4m3 or int8 (whose d is of integers), one instruction takes 32 bytes of it. With w = warp of the
// warpgroup, g = lane / 4, t = lane % 4, d[4 * j + i] is row 16 * w + g (i < 2) or 16 * w + g + 8, column
// 8 * j + 2 * t + i % 2.
// All 128 threads of the warpgroup call them, and no register of d is touched between begin and wait.
//
// For attention a may also come from registers (the fragments of mma/warp.cuh), and mma_rows() takes b as it lies in
// the cache: d[64, 256] = a[64, 16] * b[16, 256], b: 16 rows of four panels (mma/panels.cuh).

#include <cstdint>

#include "tensor/dtype.h"

namespace fathom::cuda {

// The low word of a descriptor, which alone changes: of rows 1024 bytes apart per 8, the start aligned to 1024.
__device__ __forceinline__ uint32_t descriptor_word(uint32_t tile) { return tile >> 4 | 1u << 16; }
__device__ __forceinline__ uint64_t descriptor(uint32_t word) {
  constexpr uint64_t kSwizzle128 = 1ull << 62, kEightRows = uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kEightRows | word;
}
// 32 bytes further in every row; of a word as well.
inline constexpr uint32_t kStepOfK = 32 / 16;

// Of rows that are cut into pieces of 16 bytes, not swizzled: a piece of all rows, 16 bytes apart, then the next one
// `piece_bytes` behind it. Any row may be the first.
__device__ __forceinline__ uint64_t pieces_descriptor(uint32_t address, uint32_t piece_bytes) {
  constexpr uint64_t kEightRows = uint64_t{8 * 16 / 16} << 32;
  return kEightRows | piece_bytes / 16 << 16 | address >> 4;
}

// The compiler does not know that the instructions write their registers later: none may move across.
template <int kSize>
__device__ __forceinline__ void pin(float (&d)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kSize>
__device__ __forceinline__ void pin(int (&d)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+r"(d[i])::"memory");
}
template <class Sum, int kSize>
__device__ __forceinline__ void mma_begin(Sum (&d)[kSize]) {
  pin(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void mma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most this many committed groups are under way.
template <int kGroups, class Sum, int kSize>
__device__ __forceinline__ void mma_wait(Sum (&d)[kSize]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  pin(d);
}

// clang-format off
#define FATHOM_D4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define FATHOM_D8(c, i)                                                                           \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define FATHOM_D16(c, i) FATHOM_D8(c, i), FATHOM_D8(c, i + 8)
#define FATHOM_D24(c, i) FATHOM_D16(c, i), FATHOM_D8(c, i + 16)
#define FATHOM_D32(c, i) FATHOM_D16(c, i), FATHOM_D16(c, i + 16)
#define FATHOM_D64(c, i) FATHOM_D32(c, i), FATHOM_D32(c, i + 32)
#define FATHOM_D128(c, i) FATHOM_D64(c, i), FATHOM_D64(c, i + 64)
#define FATHOM_FIRST_4 "%0, %1, %2, %3"
#define FATHOM_FIRST_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FATHOM_FIRST_16 FATHOM_FIRST_8 \
  ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FATHOM_FIRST_24 FATHOM_FIRST_16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FATHOM_FIRST_32 FATHOM_FIRST_16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FATHOM_FIRST_64 FATHOM_FIRST_32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FATHOM_FIRST_128 FATHOM_FIRST_64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// d = a * b^T, added to d if `add`: the instruction's shape and types, how many registers of which kind d has, where a,
// b and add come among the operands, and what follows: signs of floats and for bf16 that both operands are K-major.
#define FATHOM_WGMMA_OF(instruction, kind, size, a_at, b_at, add_at, rest)                         \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " add_at ", 0;\n"                           \
               "wgmma.mma_async.sync.aligned." instruction " {" FATHOM_FIRST_##size "}, " a_at      \
               ", " b_at ", keep" rest ";\n}\n"                                                   \
               : FATHOM_D##size(kind, 0)                                                           \
               : "l"(a), "l"(b), "r"(static_cast<int>(add)))
#define FATHOM_WGMMA(instruction, floats, a_at, b_at, add_at, majors)                              \
  FATHOM_WGMMA_OF(instruction, "+f", floats, a_at, b_at, add_at, ", 1, 1" majors)
#define FATHOM_WGMMA_S8(instruction, ints, a_at, b_at, add_at)                                     \
  FATHOM_WGMMA_OF(instruction, "+r", ints, a_at, b_at, add_at, "")
__device__ __forceinline__ void mma(float (&d)[128], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  FATHOM_WGMMA("m64n256k16.f32.bf16.bf16", 128, "%128", "%129", "%130", ", 0, 0");
}
__device__ __forceinline__ void mma(float (&d)[64], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  FATHOM_WGMMA("m64n128k16.f32.bf16.bf16", 64, "%64", "%65", "%66", ", 0, 0");
}
__device__ __forceinline__ void mma(float (&d)[64], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  FATHOM_WGMMA("m64n128k32.f32.e4m3.e4m3", 64, "%64", "%65", "%66", "");
}
__device__ __forceinline__ void mma(float (&d)[32], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  FATHOM_WGMMA("m64n64k16.f32.bf16.bf16", 32, "%32", "%33", "%34", ", 0, 0");
}
__device__ __forceinline__ void mma(float (&d)[24], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  FATHOM_WGMMA("m64n48k16.f32.bf16.bf16", 24, "%24", "%25", "%26", ", 0, 0");
}
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  FATHOM_WGMMA("m64n32k16.f32.bf16.bf16", 16, "%16", "%17", "%18", ", 0, 0");
}
__device__ __forceinline__ void mma(float (&d)[8], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  FATHOM_WGMMA("m64n16k16.f32.bf16.bf16", 8, "%8", "%9", "%10", ", 0, 0");
}
__device__ __forceinline__ void mma(float (&d)[4], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  FATHOM_WGMMA("m64n8k16.f32.bf16.bf16", 4, "%4", "%5", "%6", ", 0, 0");
}
__device__ __forceinline__ void mma(float (&d)[32], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  FATHOM_WGMMA("m64n64k32.f32.e4m3.e4m3", 32, "%32", "%33", "%34", "");
}
__device__ __forceinline__ void mma(float (&d)[24], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  FATHOM_WGMMA("m64n48k32.f32.e4m3.e4m3", 24, "%24", "%25", "%26", "");
}
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  FATHOM_WGMMA("m64n32k32.f32.e4m3.e4m3", 16, "%16", "%17", "%18", "");
}
__device__ __forceinline__ void mma(float (&d)[8], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  FATHOM_WGMMA("m64n16k32.f32.e4m3.e4m3", 8, "%8", "%9", "%10", "");
}
__device__ __forceinline__ void mma(float (&d)[4], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  FATHOM_WGMMA("m64n8k32.f32.e4m3.e4m3", 4, "%4", "%5", "%6", "");
}
__device__ __forceinline__ void mma(int (&d)[128], uint64_t a, uint64_t b, bool add, int8_t) {
  FATHOM_WGMMA_S8("m64n256k32.s32.s8.s8", 128, "%128", "%129", "%130");
}
__device__ __forceinline__ void mma(int (&d)[64], uint64_t a, uint64_t b, bool add, int8_t) {
  FATHOM_WGMMA_S8("m64n128k32.s32.s8.s8", 64, "%64", "%65", "%66");
}
__device__ __forceinline__ void mma(int (&d)[32], uint64_t a, uint64_t b, bool add, int8_t) {
  FATHOM_WGMMA_S8("m64n64k32.s32.s8.s8", 32, "%32", "%33", "%34");
}
__device__ __forceinline__ void mma(int (&d)[16], uint64_t a, uint64_t b, bool add, int8_t) {
  FATHOM_WGMMA_S8("m64n32k32.s32.s8.s8", 16, "%16", "%17", "%18");
}
__device__ __forceinline__ void mma(int (&d)[8], uint64_t a, uint64_t b, bool add, int8_t) {
  FATHOM_WGMMA_S8("m64n16k32.s32.s8.s8", 8, "%8", "%9", "%10");
}
#define FATHOM_WGMMA_REGISTERS(instruction, floats, a0_at, a1_at, a2_at, a3_at, b_at, add_at,       \
                               majors)                                                             \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " add_at ", 0;\n"                           \
               "wgmma.mma_async.sync.aligned." instruction " {" FATHOM_FIRST_##floats "}, {"        \
               a0_at ", " a1_at ", " a2_at ", " a3_at "}, " b_at ", keep, 1, 1" majors ";\n}\n"    \
               : FATHOM_D##floats("+f", 0)                                                         \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)))
__device__ __forceinline__ void mma(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add,
                                    tensor::Bf16) {
  FATHOM_WGMMA_REGISTERS("m64n64k16.f32.bf16.bf16", 32, "%32", "%33", "%34", "%35", "%36", "%37",
                         ", 0");
}
__device__ __forceinline__ void mma_rows(float (&d)[128], const uint32_t (&a)[4], uint64_t b,
                                         bool add) {
  FATHOM_WGMMA_REGISTERS("m64n256k16.f32.bf16.bf16", 128, "%128", "%129", "%130", "%131", "%132",
                         "%133", ", 1");
}
__device__ __forceinline__ void mma_rows(float (&d)[128], uint64_t a, uint64_t b, bool add) {
  FATHOM_WGMMA("m64n256k16.f32.bf16.bf16", 128, "%128", "%129", "%130", ", 0, 1");
}
#undef FATHOM_WGMMA_REGISTERS
#undef FATHOM_WGMMA_S8
#undef FATHOM_WGMMA
#undef FATHOM_WGMMA_OF
#undef FATHOM_FIRST_128
#undef FATHOM_FIRST_64
#undef FATHOM_FIRST_32
#undef FATHOM_FIRST_24
#undef FATHOM_FIRST_16
#undef FATHOM_FIRST_8
#undef FATHOM_FIRST_4
#undef FATHOM_D128
#undef FATHOM_D64
#undef FATHOM_D32
#undef FATHOM_D24
#undef FATHOM_D16
#undef FATHOM_D8
#undef FATHOM_D4
// clang-format on

}  // namespace fathom::cuda
