// The kernel of many_queries.h. Bound by latency: three small steps that need q_b's product, or nothing but kv_a's.
//
// Blocks of the product with W_UK are those of head_linear (linear/batch_product.cuh), with its bits. Behind them each
// token has a block: 128 threads append its row to the cache, the others rotate its heads.
//
// Grid: x = tiles of rows, y = tiles of tokens, z = heads, then as many more as tokens need. Shared memory: the
// product's.

#include "cuda/decode/many_queries.h"

#include "cuda/cache/append_row.cuh"
#include "cuda/cache/rope_row.cuh"
#include "cuda/decode/params.cuh"
#include "cuda/decode/query_product.cuh"
#include "cuda/linear/batch_product.cuh"
#include "cuda/linear/batch_product.h"
#include "cuda/runtime/stream.cuh"
#include "ops/backend.h"

namespace fathom::cuda::decode {
namespace {

struct TokenRows {
  AppendParams append;
  RopeParams rope;
  int tokens;
  bool cache_is_f8;
};

// Threads that rotate end before the others meet.
__device__ __forceinline__ void finish_token(const TokenRows& rows, int token, float* reduced) {
  if (threadIdx.x < kAppendThreads) {
    rows.cache_is_f8 ? append_row<F8E4M3, kAppendHeld>(rows.append, token, reduced)
                     : append_row<Bf16, kAppendHeld>(rows.append, token, reduced);
  } else {
    wait_for_previous();
    const int threads = static_cast<int>(blockDim.x) - kAppendThreads;
    for (int piece = static_cast<int>(threadIdx.x) - kAppendThreads;
         piece < pieces_of_token(rows.rope); piece += threads)
      rotate_piece(rows.rope, token, piece);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 2)
    many_queries_kernel(const __grid_constant__ BatchParams params,
                        const __grid_constant__ TokenRows rows) {
  extern __shared__ __align__(1024) char shared[];
  let_next_start();
  const int plane = static_cast<int>(blockIdx.z) - params.product.heads;
  if (plane >= 0) {
    const int token = static_cast<int>((plane * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);
    if (token < rows.tokens) finish_token(rows, token, reinterpret_cast<float*>(shared));
    return wait_for_previous();
  }
  const BatchProduct<C> product(params, shared);
  multiply_all(product);
  product.store();
}

template <int kTokens>
void start(const BatchParams& batch, unsigned blocks, const TokenRows& rows, ops::Stream& stream) {
  using C = BatchConfig<Bf16, kTokens, false>;
  const unsigned tiles = num_tiles(rows.tokens, kTokens);
  launch(many_queries_kernel<C>,
         {.grid = dim3(blocks, tiles, batch.product.heads + num_tiles(rows.tokens, blocks * tiles)),
          .block = C::kThreads,
          .shared_bytes = C::kSharedBytes},
         stream, batch, rows);
}

ProductParams absorb(const ops::MlaQueryArgs& args) {
  ProductParams params = head_product(args.q.slice(2, 0, kHead), args.w_uk);
  params.a.out = static_cast<char*>(args.q_latent.data());
  params.a.out_stride = args.q_latent.stride(0);
  params.a.out_head = args.q_latent.stride(1);
  return params;
}

}  // namespace

bool takes_many_queries(const ops::MlaQueryArgs& args, const ops::Stream& stream) {
  return args.q_a.is_null() && !args.settled && !stream.backend().batch_invariant &&
         args.q.dim(0) <= kMaxBatchTokens && args.w_uk.data.dtype() == tensor::DType::kBf16 &&
         args.w_uk.data.dim(1) == kLatent && args.w_uk.data.dim(2) == kHead &&
         args.q.dim(2) == kQuery && args.q.stride(0) % 8 == 0 && is_aligned(args.q) &&
         is_aligned(args.rows.table) && takes_heads_of_batch(absorb(args));
}

void many_queries(const ops::MlaQueryArgs& args, ops::Stream& stream) {
  const TokenRows rows{
      .append = append_params(args.rows),
      .rope = rope_params({.x = args.q.slice(2, kHead, kQuery), .table = args.rows.table}),
      .tokens = static_cast<int>(args.q.dim(0)),
      .cache_is_f8 = args.rows.cache.format.latent == tensor::DType::kF8E4M3};
  unsigned blocks = 0;
  const BatchParams batch = batch_of_heads(absorb(args), rows.tokens, blocks);
  switch (batch.box) {
    case 32:
      return start<32>(batch, blocks, rows, stream);
    case 64:
      return start<64>(batch, blocks, rows, stream);
    case 96:
      return start<96>(batch, blocks, rows, stream);
    default:
      return start<128>(batch, blocks, rows, stream);
  }
}

}  // namespace fathom::cuda::decode
