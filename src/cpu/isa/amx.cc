// The kernels for processors with AMX: those of avx512_bf16.cc, but products with weights narrower than
// float32 by tile registers. src/cpu/module.cmake gives this file its flags.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// The intrinsic headers of gcc 12 start registers from "undefined" ones and then warn about themselves.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "cpu/isa/amx_int4.h"
#include "cpu/isa/amx_int8.h"
#include "cpu/isa/amx_matmul.h"

#include "cpu/isa/kernels.h"

namespace fathom::cpu {

const KernelTable& amx_kernels() {
  static const integer::Kernels of_i8 = {.matmul = &AmxInt8::run,
                                         .quantize_row = integer::kAvx512Vnni.quantize_row,
                                         .max_rows = AmxInt8::kMaxRows};
  static const KernelTable common = [] {
    KernelTable kernels = avx512_bf16_kernels();
    kernels.i8 = &of_i8;
    kernels.direct_rows = kernels.wide_rows = AmxMatmul::kMaxRows;
    kernels.direct_tokens = kTileDim;
    return kernels;
  }();
  static const KernelTable of_i4 = [] {
    KernelTable kernels = common;
    kernels.matmul = &AmxInt4::run;
    kernels.quantize_row = &I4Rows::quantize_row;
    kernels.grid_row = &I4Rows::grid_row;
    return kernels;
  }();
  static const KernelTable table = [] {
    KernelTable kernels = common;
    kernels.matmul = &AmxMatmul::run;
    kernels.i4 = &of_i4;
    return kernels;
  }();
  return table;
}

}  // namespace fathom::cpu
#endif
