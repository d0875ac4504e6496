#pragma once
// Activation: the rows that a matrix reads. Either as they are, or quantised once for all the matrices that
// read them (ops/quantize_fp8.h): then the product has the same bits as one that quantises by itself.
//
//   ops::linear({.x = rows, ...});                                // act; with f8 and i4x2 weights quantised inside
//   ops::quantize_fp8({.x = rows, .q = q, .scale = scale}, stream);
//   ops::linear({.x = {q, scale}, .weight = f8_weight, ...});     // REQUIRES: f8 or i4x2 weights
//
// values  act[tokens, dim], or f8_e4m3[tokens, dim]     rows may be strided, quantised ones not
// scale   null, or f32[tokens, ceil(dim / 128)]
//
// A view; plain data.

#include <string_view>

#include "tensor/expect.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct Activation {
  tensor::Tensor values, scale;

  Activation() = default;
  Activation(const tensor::Tensor& rows) : values(rows) {}  // NOLINT: a tensor is an activation
  Activation(const tensor::Tensor& q, const tensor::Tensor& scales) : values(q), scale(scales) {}

  bool is_quantised() const { return !scale.is_null(); }
  bool is_null() const { return values.is_null(); }
  int64_t dim(int axis) const { return values.dim(axis); }
  // Rows [begin, end).
  Activation rows(int64_t begin, int64_t end) const {
    return {values.slice(0, begin, end), is_quantised() ? scale.slice(0, begin, end) : scale};
  }
};

// For the boundary checks: rows that a weight of this type can read.
void expect_activation(std::string_view name, const Activation& x, tensor::DType act,
                       tensor::DType weight, std::initializer_list<tensor::Dim*> dims);
// The same for rows that an operator quantises.
void expect_quantised(std::string_view name, const Activation& x,
                      std::initializer_list<tensor::Dim*> dims);

}  // namespace fathom::ops
