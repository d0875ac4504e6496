#pragma once
// Which kernels multiply many rows: ours (product.h) or cuBLASLt's (cublaslt.h), where both can.
//
//   set_gemm_backend(GemmBackend::kFathom);                  // --gemm-backend; at the start of the program
//   if (const auto rows = library_rows(DType::kBf16, n, k, rows)) ...;
//
// By itself it follows what was tuned for a matrix (tuned/table.h), else product_table.inc: for matrices that were
// measured, from how many rows to how many the library is faster. tools/product_table.py writes that file from two runs
// of `fathom bench ops`. A matrix that is in neither runs on our kernels.
//
//   const tuned::MatrixChoice tiles = choose_tiles(DType::kBf16, n, k, rows);        // of ours
//
// Thread-safe but for set_gemm_backend(), which comes first.

#include <cstdint>
#include <optional>
#include <vector>

#include "tensor/dtype.h"
#include "tuned/choice.h"

namespace fathom::cuda {

// Whether the library is to compute out[rows, n] = x[rows, k] * weight[n, k]^T, weight of `dtype`: the number of rows
// with which it was measured to be faster. Of two matrices for the same rows n is the sum, and the question whether two
// products, each by whoever is faster, take less time than one of ours.
std::optional<int64_t> library_rows(tensor::DType dtype, int64_t n, int64_t k, int64_t rows);
// The tiles of ours, where they were measured: default otherwise.
tuned::MatrixChoice choose_tiles(tensor::DType dtype, int64_t n, int64_t k, int64_t rows);
// Those of calls of up to so many rows: who reserves memory for `rows` runs smaller calls in it too.
std::vector<int64_t> library_rows_up_to(tensor::DType dtype, int64_t n, int64_t k, int64_t rows);
// Whether a file or --gemm-backend cublaslt says how such products are made; else other kernels may take them.
bool is_chosen(tensor::DType dtype, int64_t n, int64_t k, int64_t rows);

}  // namespace fathom::cuda
