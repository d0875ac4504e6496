#pragma once
// What collectives of ranks that compute in host memory are made of: tensors row by row, and pieces of them.
//
//   for (int64_t row = 0; row < num_rows(t); ++row) std::memcpy(to, row_of(t, row), row_bytes(t));
//
// A row is the elements along the last axis, which lie side by side. Pure functions.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "tensor/tensor.h"

namespace fathom::comm {

inline int64_t num_rows(const tensor::Tensor& t) {
  return t.dim(t.rank() - 1) == 0 ? 0 : t.num_elements() / t.dim(t.rank() - 1);
}

inline int64_t row_bytes(const tensor::Tensor& t) {
  return t.dim(t.rank() - 1) * tensor::dtype_bytes(t.dtype());
}

inline char* row_of(const tensor::Tensor& t, int64_t row) {
  int64_t element = 0;
  for (int axis = t.rank() - 2; axis >= 0; --axis) {
    element += row % t.dim(axis) * t.stride(axis);
    row /= t.dim(axis);
  }
  return static_cast<char*>(t.data()) + element * tensor::dtype_bytes(t.dtype());
}

// REQUIRES: the same shape and type.
inline void copy_rows(const tensor::Tensor& from, const tensor::Tensor& to) {
  for (int64_t row = 0; row < num_rows(from); ++row)
    std::memcpy(row_of(to, row), row_of(from, row), static_cast<size_t>(row_bytes(from)));
}

// The index'th of `count` equal pieces along the axis.
inline tensor::Tensor piece_of(const tensor::Tensor& whole, int axis, int index, int count) {
  const int64_t length = whole.dim(axis) / count;
  return whole.slice(axis, index * length, (index + 1) * length);
}

// REQUIRES: the axis is there and divides.
inline void check_pieces(const tensor::Tensor& whole, int axis, int count) {
  FATHOM_CHECK(
      axis >= 0 && axis < whole.rank() && whole.dim(axis) % count == 0,
      "axis " << axis << " of " << whole.describe() << ", in " << count << " equal pieces");
}

// REQUIRES: starts are of the rows of `whole`, for so many ranks.
inline void check_starts(const tensor::Tensor& whole, std::span<const int64_t> starts, int count) {
  FATHOM_CHECK(
      std::ssize(starts) == count + 1 && starts.front() == 0 && starts.back() == whole.dim(0) &&
          std::is_sorted(starts.begin(), starts.end()),
      starts.size() << " starts of rows of " << whole.describe() << " for " << count << " ranks");
}

}  // namespace fathom::comm
