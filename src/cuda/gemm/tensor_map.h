#pragma once
// Tensor maps: what the tensor copy engine needs to know of a matrix, encoded on the host and given to kernels by
// value. Rows of a box have 128 bytes and are swizzled by 128 bytes in shared memory, what mma/warpgroup.cuh reads.
//
//   const CUtensorMap map = tensor_map({.data = x, .dtype = DType::kBf16, .rows = tokens, .columns = in,
//                                       .stride = in}, 128);
//
// Pure functions; the first call asks the driver for its entry point.

#include <cuda.h>

#include <cstdint>

#include "tensor/dtype.h"

namespace fathom::cuda {

// A matrix in device memory. stride counts elements.
struct Matrix {
  const void* data = nullptr;
  tensor::DType dtype = tensor::DType::kBf16;
  int64_t rows = 0, columns = 0, stride = 0;
};

// Whether the copy engine can read it: 16-byte aligned rows, elements of one byte or bf16, sizes that fit.
bool can_map(const Matrix& matrix);
// REQUIRES: can_map(matrix), box_rows <= 256.
CUtensorMap tensor_map(const Matrix& matrix, int box_rows);
// Rows of a box have `box_bytes` and lie one behind the other, not swizzled.
CUtensorMap plain_map(const Matrix& matrix, int box_rows, int box_bytes);

// Bytes in five dimensions, the first one's next to each other; a box has 128 of them there, swizzled as above.
struct Bytes5 {
  const void* data = nullptr;
  int64_t sizes[5] = {};
  int64_t strides[4] = {};  // of the second to the fifth dimension
  int box[5] = {};
};
CUtensorMap tensor_map(const Bytes5& bytes);

}  // namespace fathom::cuda
