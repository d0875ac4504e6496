// Attention to lists of rows: absorbed attention where every query token is a sequence of its own, and its list is the
// table of that sequence's blocks, which have one row each. So the kernels of mla_absorbed run, but for the one that
// copies tiles of rows which lie side by side, and a token gets the bits of absorbed attention to as many rows in the
// order of the list.

#include "cuda/attention/mla_sparse.h"

#include "cuda/attention/absorbed_shares.cuh"
#include "cuda/attention/ops.h"
#include "ops/mla.h"

namespace fathom::cuda {
namespace {

// With more heads rows in f8 become bf16 before they are multiplied.
static_assert(ops::kFewSparseHeads == absorbed::kStreamRows);

// Without query_start: a token of each sequence.
ops::MlaAbsorbedArgs as_absorbed(const ops::MlaSparseArgs& args) {
  const tensor::Tensor& rows = args.cache.rows;
  return {.q_latent = args.q_latent,
          .q_rope = args.q_rope,
          .cache = {.rows = rows.reshape({rows.dim(0) * rows.dim(1), 1, rows.dim(2)}),
                    .format = args.cache.format},
          .query_start = {},
          .kv_len = args.counts,
          .block_tables = args.rows,
          .tree_mask = {},
          .plan = {},
          .scale = args.scale,
          .out = args.out};
}

}  // namespace

int64_t mla_sparse_scratch(const ops::MlaSparseArgs& args, const ops::Stream& stream) {
  return mla_absorbed_scratch(as_absorbed(args), stream);
}

void mla_sparse(const ops::MlaSparseArgs& args, ops::Stream& stream) {
  cuda::mla_absorbed(as_absorbed(args), stream);
}

}  // namespace fathom::cuda
