// index_scores for keys of any size: a thread has a row. For small and odd models; every head of a row is read again
// from the caches.
//
// Grid: parts of the sequence's rows x query tokens.

#include "cuda/indexer/scores.cuh"

#include <algorithm>

#include "cuda/indexer/ops.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 128;

__device__ float score_row(const IndexScoresParams& p, int token, int64_t flat_row) {
  const F8E4M3* const key = p.keys + flat_row * p.dim;
  float score = 0.0f;
  for (int head = 0; head < p.heads; ++head) {
    const int64_t at = int64_t{token} * p.heads + head;
    const F8E4M3* const query = p.q + at * p.dim;
    float product = 0.0f;
    for (int i = 0; i < p.dim; ++i)
      product = __fmaf_rn(cuda::to_float(query[i]), cuda::to_float(key[i]), product);
    // Not fmaxf, which would take NaN for 0.
    score = __fmaf_rn(p.weights[at], product < 0.0f ? 0.0f : product, score);
  }
  return score * p.scales[flat_row];
}

__global__ void __launch_bounds__(kThreads)
    index_scores_any_kernel(const __grid_constant__ IndexScoresParams p) {
  let_next_start();
  wait_for_previous();
  const int token = p.queries.token_begin + static_cast<int>(blockIdx.y);
  const QueryPlace place = place_of(p.queries, token);
  if (place.num_visible() <= p.topk) return;
  const int32_t* const table = p.queries.table(place.sequence);
  float* const scores = p.scores + int64_t{blockIdx.y} * p.max_rows;
  for (int row = static_cast<int>(blockIdx.x * kThreads + threadIdx.x); row < place.kv_len;
       row += static_cast<int>(gridDim.x) * kThreads) {
    const bool visible = row < place.end() && place.sees(row);
    const int block = row / p.queries.block_tokens;
    scores[row] = visible ? score_row(p, token,
                                      int64_t{table[block]} * p.queries.block_tokens + row -
                                          block * p.queries.block_tokens)
                          : minus_infinite_score();
  }
}

}  // namespace

void index_scores(const ops::IndexScoresArgs& args, ops::Stream& stream) {
  const IndexScoresParams p{.q = args.q.as<F8E4M3>(),
                            .weights = args.weights.as<float>(),
                            .keys = args.cache.values.as<F8E4M3>(),
                            .scales = args.cache.scales.as<float>(),
                            .queries = query_tokens(args.queries, args.cache.block_tokens()),
                            .scores = args.scores.as<float>(),
                            .max_rows = args.scores.dim(1),
                            .heads = static_cast<int>(args.q.dim(1)),
                            .dim = static_cast<int>(args.q.dim(2)),
                            .topk = static_cast<int>(args.topk),
                            .tile_tokens = 1};
  if (can_score_by_tensor_cores(args)) return score_by_tensor_cores(p, stream);
  constexpr int64_t kMostParts = 256;
  const int64_t parts = std::min<int64_t>(num_tiles(p.max_rows, kThreads), kMostParts);
  launch(
      index_scores_any_kernel,
      {.grid = dim3(static_cast<unsigned>(parts), static_cast<unsigned>(args.queries.num_tokens())),
       .block = kThreads},
      stream, p);
}

}  // namespace fathom::cuda
