#include "ops/add_rows.h"

#include "cpu/reference/ops.h"

namespace fathom::cpu::reference {

void add_rows(const ops::AddRowsArgs& args, ops::Stream&) {
  for (int64_t row = 0; row < args.sum.dim(0); ++row) {
    const float* const x = args.x.row<float>(row);
    float* const sum = args.sum.row<float>(row);
    for (int64_t i = 0; i < args.sum.dim(1); ++i) sum[i] += x[i];
  }
}

}  // namespace fathom::cpu::reference
