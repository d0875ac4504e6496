#pragma once
// The two kernels of index_scores. Which one runs depends on the model's shapes alone.
// Internal to cuda/indexer/.

#include "cuda/device/convert.cuh"
#include "cuda/indexer/query_place.cuh"
#include "ops/index.h"

namespace fathom::cuda {

struct IndexScoresParams {
  const F8E4M3* q;       // [tokens, heads, dim]
  const float* weights;  // [tokens, heads]
  const F8E4M3* keys;    // [blocks * block_tokens, dim]
  const float* scales;   // [blocks * block_tokens]
  QueryTokens queries;
  float* scores;  // [token_end - token_begin, max_rows]
  int64_t max_rows;
  int heads, dim, topk;
  int tile_tokens;  // of a block of the tensor cores' kernel
};

__device__ __forceinline__ float minus_infinite_score() { return __int_as_float(0xff800000); }

// Keys of 128 values in blocks of 64, up to 64 heads.
bool can_score_by_tensor_cores(const ops::IndexScoresArgs& args);
// REQUIRES: can_score_by_tensor_cores(args).
void score_by_tensor_cores(IndexScoresParams p, ops::Stream& stream);
// The same of tokens of which most share no keys with others of the call.
void score_lone_tokens(const IndexScoresParams& p, ops::Stream& stream);

}  // namespace fathom::cuda
