// The kernels for x86-64-v3; src/cpu/module.cmake gives this file its flags.
#if defined(__x86_64__)
#include "cpu/isa/vec_avx2.h"

#include "cpu/isa/kernel/table.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {

const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable = make_kernel_table<Vec>(integer::kAvx2);
  return kTable;
}

}  // namespace fathom::cpu
#endif
