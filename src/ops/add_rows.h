#pragma once
// Sum of two tensors: sum += x, each element added in float32 and rounded to act.
//
// x, sum  act[rows, dim]      rows may be strided

#include "ops/backend.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct AddRowsArgs {
  tensor::Tensor x, sum;
};
void add_rows(const AddRowsArgs& args, Stream& stream);

}  // namespace fathom::ops
