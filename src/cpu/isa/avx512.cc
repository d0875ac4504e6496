// The kernels for x86-64-v4; src/cpu/module.cmake gives this file its flags.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// The intrinsic headers of gcc 12 start registers from "undefined" ones and then warn about themselves.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "cpu/isa/vec_avx512.h"

#include "cpu/isa/bf16_form.h"
#include "cpu/isa/kernel/table.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {
namespace {

void matmul(const MatmulTile& tile) {
  if (tile.kind == WeightKind::kBf16) return FourDot<Bf16Form>::run(tile);
  Matmul<Vec>::run(tile);
}

}  // namespace

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = [] {
    KernelTable table = make_kernel_table<Vec>(integer::kAvx512);
    table.matmul = &matmul;
    return table;
  }();
  return kTable;
}

}  // namespace fathom::cpu
#endif
