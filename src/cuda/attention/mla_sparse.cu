// Attention to lists of rows: absorbed attention where every query token is a sequence of its own, and its list is the
// table of that sequence's blocks, which have one row each. So the kernels of mla_absorbed run, but for the one that
// copies tiles of rows which lie side by side, and a token gets the bits of absorbed attention to as many rows in the
// order of the list.
//
// Scratch: that of absorbed attention, and behind it 4 bytes a token: its number, as the start of its sequence.

#include "cuda/attention/mla_sparse.h"

#include "cuda/attention/ops.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/mla.h"

namespace fathom::cuda {
namespace {

constexpr int kNumberThreads = 256;

__global__ void __launch_bounds__(kNumberThreads) number_tokens(int32_t* starts, int count) {
  let_next_start();
  wait_for_previous();
  const int i = static_cast<int>(blockIdx.x * kNumberThreads + threadIdx.x);
  if (i < count) starts[i] = i;
}

ops::MlaAbsorbedArgs as_absorbed(const ops::MlaSparseArgs& args, int32_t* starts) {
  const tensor::Tensor& rows = args.cache.rows;
  return {
      .q_latent = args.q_latent,
      .q_rope = args.q_rope,
      .cache = {.rows = rows.reshape({rows.dim(0) * rows.dim(1), 1, rows.dim(2)}),
                .format = args.cache.format},
      .query_start = tensor::Tensor::contiguous(starts, tensor::DType::kI32, {args.out.dim(0) + 1}),
      .kv_len = args.counts,
      .block_tables = args.rows,
      .tree_mask = {},
      .plan = {},
      .scale = args.scale,
      .out = args.out};
}

// Where the numbers of the tokens begin.
int64_t starts_at(const ops::MlaSparseArgs& args, const ops::Stream& stream) {
  constexpr int64_t kAlignment = 256;
  return (mla_absorbed_scratch(as_absorbed(args, nullptr), stream) + kAlignment - 1) / kAlignment *
         kAlignment;
}

}  // namespace

int64_t mla_sparse_scratch(const ops::MlaSparseArgs& args, const ops::Stream& stream) {
  return starts_at(args, stream) + (args.out.dim(0) + 1) * int64_t{sizeof(int32_t)};
}

void mla_sparse(const ops::MlaSparseArgs& args, ops::Stream& stream) {
  auto* const starts =
      reinterpret_cast<int32_t*>(static_cast<char*>(stream.scratch()) + starts_at(args, stream));
  const int count = static_cast<int>(args.out.dim(0)) + 1;
  launch(number_tokens, {.grid = num_tiles(count, kNumberThreads), .block = kNumberThreads}, stream,
         starts, count);
  cuda::mla_absorbed(as_absorbed(args, starts), stream);
}

}  // namespace fathom::cuda
