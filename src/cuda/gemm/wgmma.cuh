#pragma once
// The matrix instructions of a warpgroup: both operands from shared memory, the sums in registers.
//
//   float d[64];
//   mma_begin(d);
//   for (int k = 0; k < 4; ++k) mma(d, a + k * kStepOfK, b + k * kStepOfK, k != 0, Bf16{});
//   mma_commit();
//   mma_wait<0>(d);                              // now d may be read
//
// a and b are descriptors (tile_descriptor) of tiles whose rows have 128 bytes, swizzled as the tensor copy engine
// does with CU_TENSOR_MAP_SWIZZLE_128B: a has 64 rows, b has 2 * size of d, and d = a * b^T. A row of a tile is 64
// bf16 or 128 e4m3, one instruction takes 32 bytes of it. With w = warp of the warpgroup, g = lane / 4, t = lane % 4,
// d[4 * j + i] is row 16 * w + g (i < 2) or 16 * w + g + 8, column 8 * j + 2 * t + i % 2.
// All 128 threads of the warpgroup call them, and no register of d is touched between begin and wait.

#include <cstdint>

#include "tensor/dtype.h"

namespace fathom::cuda {

// Of rows 1024 bytes apart per 8, the start aligned to 1024.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t tile) {
  constexpr uint64_t kSwizzle128 = 1ull << 62, kEightRows = uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kEightRows | 1ull << 16 | (tile & 0x3ffffu) >> 4;
}
// 32 bytes further in every row.
inline constexpr uint64_t kStepOfK = 32 / 16;

// The compiler does not know that the instructions write their registers later: none may move across.
template <int kSize>
__device__ __forceinline__ void pin(float (&d)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int kSize>
__device__ __forceinline__ void mma_begin(float (&d)[kSize]) {
  pin(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void mma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most this many committed groups are under way.
template <int kGroups, int kSize>
__device__ __forceinline__ void mma_wait(float (&d)[kSize]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
  pin(d);
}

// clang-format off
#define FATHOM_D8(i)                                                                              \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),      \
      "+f"(d[i + 6]), "+f"(d[i + 7])
__device__ __forceinline__ void mma(float (&d)[128], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, "
      "%128, %129, keep, 1, 1, 0, 0;\n"
      "}\n"
      : FATHOM_D8(0), FATHOM_D8(8), FATHOM_D8(16), FATHOM_D8(24), FATHOM_D8(32), FATHOM_D8(40), FATHOM_D8(48), FATHOM_D8(56), FATHOM_D8(64), FATHOM_D8(72), FATHOM_D8(80), FATHOM_D8(88), FATHOM_D8(96), FATHOM_D8(104), FATHOM_D8(112), FATHOM_D8(120)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void mma(float (&d)[64], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, "
      "%64, %65, keep, 1, 1, 0, 0;\n"
      "}\n"
      : FATHOM_D8(0), FATHOM_D8(8), FATHOM_D8(16), FATHOM_D8(24), FATHOM_D8(32), FATHOM_D8(40), FATHOM_D8(48), FATHOM_D8(56)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void mma(float (&d)[64], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, "
      "%64, %65, keep, 1, 1;\n"
      "}\n"
      : FATHOM_D8(0), FATHOM_D8(8), FATHOM_D8(16), FATHOM_D8(24), FATHOM_D8(32), FATHOM_D8(40), FATHOM_D8(48), FATHOM_D8(56)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void mma(float (&d)[32], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, "
      "%32, %33, keep, 1, 1, 0, 0;\n"
      "}\n"
      : FATHOM_D8(0), FATHOM_D8(8), FATHOM_D8(16), FATHOM_D8(24)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, "
      "%16, %17, keep, 1, 1, 0, 0;\n"
      "}\n"
      : FATHOM_D8(0), FATHOM_D8(8)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void mma(float (&d)[8], uint64_t a, uint64_t b, bool add,
                                    tensor::Bf16) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7"
      "}, "
      "%8, %9, keep, 1, 1, 0, 0;\n"
      "}\n"
      : FATHOM_D8(0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void mma(float (&d)[32], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, "
      "%32, %33, keep, 1, 1;\n"
      "}\n"
      : FATHOM_D8(0), FATHOM_D8(8), FATHOM_D8(16), FATHOM_D8(24)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void mma(float (&d)[16], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
      "}, "
      "%16, %17, keep, 1, 1;\n"
      "}\n"
      : FATHOM_D8(0), FATHOM_D8(8)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
__device__ __forceinline__ void mma(float (&d)[8], uint64_t a, uint64_t b, bool add,
                                    tensor::F8E4M3) {
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.b32 keep, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 "
      "{"
      "%0, %1, %2, %3, %4, %5, %6, %7"
      "}, "
      "%8, %9, keep, 1, 1;\n"
      "}\n"
      : FATHOM_D8(0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
#undef FATHOM_D8
// clang-format on

}  // namespace fathom::cuda
