#pragma once
// Values by position, for weights that nobody trained: every element of `out` is copied from a table, at a place that
// depends on seed, key and the element's position in the whole tensor alone. So the parts of a tensor hold the same
// values however ranks, threads and devices divide it, bit for bit.
//
// Element (r, c) has position first + r * row_elements + c. Positions are cut into blocks of kTableBlock, and block b
// lies in the table from table_offset(seed, key, b, elements) on.
//
// out           f32|bf16|f8_e4m3|i8|i4x2|u4x2[rows, columns]   rows may be strided; a pair is one element
// table         the type of out, [elements]       elements a multiple of 4, at least kTableBlock; 16-byte aligned
// row_elements  of the whole tensor, of which `columns` may be a part

#include "base/rng.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct FillFromTableArgs {
  tensor::Tensor out, table;
  uint64_t seed = 0, key = 0;
  int64_t first = 0, row_elements = 0;
};
void fill_from_table(const FillFromTableArgs& args, Stream& stream);

inline constexpr int64_t kTableBlock = 4096;

// Where a block begins in a table of so many elements, any place that leaves room for all of it.
constexpr int64_t table_offset(uint64_t seed, uint64_t key, int64_t block, int64_t elements) {
  const uint32_t random = philox(seed, key, static_cast<uint64_t>(block))[0];
  return random % static_cast<uint32_t>(elements - kTableBlock + 1);
}

}  // namespace fathom::ops
