// The kernels for x86-64-v4 with AVX-512 BF16, VBMI and VNNI: those of avx512.cc, but FP8 and INT4 products by dot
// products of bf16 pairs, and INT8 products by those of bytes. src/cpu/module.cmake gives this file its flags.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// The intrinsic headers of gcc 12 start registers from "undefined" ones and then warn about themselves.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "cpu/isa/f8_widen.h"
#include "cpu/isa/i4_widen.h"
#include "cpu/isa/packed_forms.h"

#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

template <class Form>
void matmul(const MatmulTile& tile) {
  if (tile.kind == Form::kKind) return FourDot<Form>::run(tile);
  avx512_kernels().matmul(tile);
}

}  // namespace

const KernelTable& avx512_bf16_kernels() {
  static const KernelTable of_i4 = [] {
    KernelTable kernels = avx512_kernels();
    kernels.matmul = &matmul<I4Form>;
    kernels.quantize_row = &I4Rows::quantize_row;
    kernels.grid_row = &I4Rows::grid_row;
    return kernels;
  }();
  static const KernelTable table = [] {
    KernelTable kernels = avx512_kernels();
    kernels.matmul = &matmul<F8Form>;
    kernels.quantize_row = &F8Rows::quantize_row;
    kernels.grid_row = &F8Rows::grid_row;
    kernels.i8 = &integer::kAvx512Vnni;
    kernels.i4 = &of_i4;
    return kernels;
  }();
  return table;
}

}  // namespace fathom::cpu
#endif
