#pragma once
// Products of many rows by NVIDIA's cuBLASLt, where this machine has it. The library is opened at run time: the program
// starts without it, and products run on our own kernels then.
//
//   prepare_cublaslt(product, 4096);                     // while the weights are read: what follows waits for it
//   if (cublaslt_takes(product) && cublaslt_product(product, 4096, carve_cublaslt(product, arena), stream)) return;
//
// The kernel is the one that the library proposes for a fixed number of rows, the one that was measured, whatever the
// rows of a call: looking for one takes the library 0.1 ms and loading it 20, and the same call has the same bits at
// any time.
//
// Internal to gemm/. Thread-safe.

#include "cuda/gemm/product.cuh"
#include "cuda/runtime/device_arena.h"

namespace fathom::cuda {

// What a product may use besides; of f8 none does.
inline constexpr int64_t kCublasLtWorkspaceBytes = 1 << 20;

struct CublasLtScratch {
  float* a_scale = nullptr;  // f32[ceil(k / 128), rows], f8 only
  // f32[ceil(n / 128), ceil(k / 128) up to a multiple of 4], where that adds columns
  float* b_scale = nullptr;
  void* workspace = nullptr;
};
// By the sizes and the type of `product` alone; it grows with the rows.
CublasLtScratch carve_cublaslt(const ProductArgs& product, DeviceArena& arena);

// Opens the library and loads the kernel for so many rows on a thread of its own, once. Only sizes, types and strides
// of `product` matter.
void prepare_cublaslt(const ProductArgs& product, int64_t measured_rows);

constexpr bool library_knows(Stored weight) {
  return weight == Stored::kBf16 || weight == Stored::kF8;
}
// By sizes, type and strides: one group, rows that are not gathered, bf16 or f8; of f8 a multiple of 4 rows, n and k
// of 16.
bool cublaslt_takes(const ProductArgs& product);
// False, with nothing written but scratch, where there is no such library or it has no kernel for the product.
// REQUIRES: cublaslt_takes(product), 16-byte aligned rows.
bool cublaslt_product(const ProductArgs& product, int64_t measured_rows,
                      const CublasLtScratch& scratch, ops::Stream& stream);

}  // namespace fathom::cuda
