#pragma once
// What the launchers of mla_decode and mla_query ask of weights and compressed queries.
//
//   if (!takes_compressed({args.q_a, args.q_norm, args.q_eps, args.q_b}, stream)) ...
//   static_cast<QueryProduct&>(p) = query_product({...});
//
// Internal to cuda/decode/. Pure functions.

#include "cuda/decode/params.cuh"
#include "ops/linear.h"
#include "ops/stream.h"

namespace fathom::cuda::decode {

struct CompressedQueries {
  const tensor::Tensor& q_a;
  const tensor::Tensor& q_norm;
  float eps;
  const ops::Weight& q_b;
};

inline bool is_aligned(const tensor::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data()) % 16 == 0;
}

inline constexpr int64_t kMostHeads = 16;

bool takes_compressed(const CompressedQueries& queries, const ops::Stream& stream);
// REQUIRES: takes_compressed().
QueryProduct query_product(const CompressedQueries& queries);

// bf16[heads, rows, columns] of which head_linear's kernel gives a line to each of `lines` warps, as these kernels do.
bool takes_heads(const ops::Weight& weight, int64_t rows, int64_t columns);

}  // namespace fathom::cuda::decode
