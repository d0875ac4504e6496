#pragma once
// A product of a warpgroup whose left rows are e4m3 in registers, the right ones in shared memory: mma() of
// mma/warpgroup.cuh otherwise, which has the calls around it.
//
//   mma_rows_f8(d, a, descriptor(b + k * kStepOfK), k != 0);      // d[64, 64] (+)= a[64, 32] * b[64, 32]^T
//
// With g = lane / 4 and t = lane % 4 a word of a is four values: a[0] row g, columns 4t on; a[1] row g + 8; a[2], a[3]
// the same 16 columns further. No register of a changes before the product is waited for.

#include "cuda/mma/warpgroup.cuh"

namespace fathom::cuda {

__device__ __forceinline__ void mma_rows_f8(float (&d)[32], const uint32_t (&a)[4], uint64_t b,
                                            bool add) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, keep, 1, 1;\n}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));
}

}  // namespace fathom::cuda
