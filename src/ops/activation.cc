#include "ops/activation.h"

#include <string>

#include "ops/boundary.h"
#include "tensor/scale_block.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect;

void expect_quantised(std::string_view name, const Activation& x,
                      std::initializer_list<Dim*> dims) {
  expect(name, x.values, DType::kF8E4M3, dims);
  const std::string scale = std::string(name) + " scale";
  Dim tokens("tokens", x.values.dim(0));
  Dim blocks("ceil(dim / 128)", tensor::num_scale_blocks(x.values.dim(1)));
  expect(scale, x.scale, DType::kF32, {&tokens, &blocks});
  expect_contiguous(name, x.values);
  expect_contiguous(scale, x.scale);
}

void expect_activation(std::string_view name, const Activation& x, DType act, DType weight,
                       std::initializer_list<Dim*> dims) {
  if (!x.is_quantised()) return expect(name, x.values, act, dims);
  FATHOM_CHECK(weight == DType::kF8E4M3 || weight == DType::kI4x2,
               name << " is quantised, must not be for weights of " << tensor::dtype_name(weight));
  expect_quantised(name, x, dims);
}

}  // namespace fathom::ops
