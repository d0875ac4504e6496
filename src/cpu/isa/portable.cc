// The kernels for any processor.
#include "cpu/isa/vec_portable.h"

#include "cpu/isa/kernel/table.h"
#include "cpu/isa/kernels.h"

namespace fathom::cpu {

const KernelTable& portable_kernels() {
  static constexpr KernelTable kTable = make_kernel_table<Vec>(integer::kPortable);
  return kTable;
}

}  // namespace fathom::cpu
