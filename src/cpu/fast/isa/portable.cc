// The kernels for any processor.
#include "cpu/fast/isa/vec_portable.h"

#include "cpu/fast/kernel/table.h"
#include "cpu/fast/kernels.h"

namespace fathom::cpu {

const KernelTable& portable_kernels() {
  static constexpr KernelTable kTable = make_kernel_table<Vec>(integer::kPortable);
  return kTable;
}

}  // namespace fathom::cpu
