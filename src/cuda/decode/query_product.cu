#include "cuda/decode/query_product.cuh"

#include "cuda/linear/choose.h"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda::decode {
namespace {

using tensor::DType;

// Whether the product of q_b divides its lines as is compiled here.
bool divides_alike(const CompressedQueries& queries, const ops::Stream& stream) {
  ProductParams params;
  params.tokens = static_cast<int>(queries.q_a.dim(0));
  params.in = kQueryIn;
  params.a.rows = static_cast<int>(queries.q_b.data.dim(0));
  take_choices(DType::kF8E4M3, params, stream);
  if (params.a.choice.kernel == tuned::MatrixKernel::kBatch) return false;
  const Split split = choose_split(params.a, kQueryLines, num_tiles(params.a.rows, 16));
  return split.group == 1 && split.warps == kQueryParts;
}

}  // namespace

bool takes_compressed(const CompressedQueries& queries, const ops::Stream& stream) {
  const auto& [q_a, q_norm, eps, q_b] = queries;
  return q_b.data.dtype() == DType::kF8E4M3 && q_a.dim(1) == kQueryIn && is_aligned(q_a) &&
         q_a.stride(0) % 8 == 0 && is_aligned(q_norm) && is_aligned(q_b.data) &&
         divides_alike(queries, stream);
}

QueryProduct query_product(const CompressedQueries& queries) {
  const auto& [q_a, q_norm, eps, q_b] = queries;
  return {.q_a = q_a.as<Bf16>(),
          .q_norm = q_norm.data(),
          .q_weight = static_cast<const char*>(q_b.data.data()),
          .q_scale = q_b.scale.as<float>(),
          .q_a_stride = q_a.stride(0),
          .q_eps = eps,
          .q_norm_is_f32 = q_norm.dtype() == DType::kF32};
}

bool takes_heads(const ops::Weight& weight, int64_t rows, int64_t columns) {
  const tensor::Tensor& data = weight.data;
  const int64_t lines = columns / 64;
  const Split split = choose_split({}, lines, rows / 16 * data.dim(0));
  return data.dtype() == DType::kBf16 && data.dim(1) == rows && data.dim(2) == columns &&
         is_aligned(data) && data.stride(0) % 8 == 0 && split.group == 1 && split.warps == lines;
}

}  // namespace fathom::cuda::decode
