#include "ops/fill_from_table.h"

#include <limits>

#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_one_of;

void fill_from_table(const FillFromTableArgs& args, Stream& stream) {
  Dim rows("rows"), columns("columns"), elements("elements");
  expect_one_of("out", args.out, kMatrixTypes, {&rows, &columns});
  expect("table", args.table, args.out.dtype(), {&elements});
  FATHOM_CHECK(elements.value() >= kTableBlock && elements.value() % 4 == 0 &&
                   elements.value() <= std::numeric_limits<int32_t>::max(),
               "table has " << elements.value() << " elements, must be a multiple of 4 from "
                            << kTableBlock << " on");
  FATHOM_CHECK(args.first >= 0 && args.row_elements >= columns.value(),
               "rows of " << columns.value() << " at " << args.first << ", rows of the whole are "
                          << args.row_elements);
  dispatch("fill_from_table", args.out.dtype(), stream.backend().fill_from_table, args, stream);
}

}  // namespace fathom::ops
