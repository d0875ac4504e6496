#include "ops/fill_from_table.h"

#include <cstring>

#include "cpu/reference/ops.h"

namespace fathom::cpu::reference {

void fill_from_table(const ops::FillFromTableArgs& args, ops::Stream&) {
  const int64_t bytes = tensor::dtype_bytes(args.out.dtype());
  auto* const out = static_cast<char*>(args.out.data());
  const auto* const table = static_cast<const char*>(args.table.data());
  for (int64_t row = 0; row < args.out.dim(0); ++row) {
    for (int64_t column = 0; column < args.out.dim(1); ++column) {
      const int64_t at = args.first + row * args.row_elements + column;
      const int64_t place =
          ops::table_offset(args.seed, args.key, at / ops::kTableBlock, args.table.dim(0)) +
          at % ops::kTableBlock;
      std::memcpy(out + (row * args.out.stride(0) + column) * bytes, table + place * bytes,
                  static_cast<size_t>(bytes));
    }
  }
}

}  // namespace fathom::cpu::reference
