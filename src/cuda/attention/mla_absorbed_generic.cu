// Absorbed attention over rows of any size and format: one block for a head of a query token, cache rows 128 at a
// time. For small and odd models and for caches in float32; every row of the cache is read by each head.
//
// Grid: tokens x heads. Shared memory: the query and the weighted values as float32, 3 KB a head of 512 + 64.

#include "cuda/attention/choice.h"
#include "cuda/attention/mla_absorbed.cuh"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/attention/ops.h"
#include "cuda/attention/softmax.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 128;

struct Tile {
  float weights[kThreads];
  int64_t offsets[kThreads];
  float reduced[kThreads / 32];
};

template <class Latent>
__device__ float score_of(const AbsorbedParams& p, const float* query, int64_t offset) {
  const char* const row = p.cache.data + offset;
  const int dim = p.cache.latent_dim + p.cache.rope_dim;
  float sum = 0.0f;
  for (int i = 0; i < dim; ++i) sum = __fmaf_rn(query[i], kv_value<Latent>(row, p.cache, i), sum);
  return sum * p.scale;
}

// Thread i has row `first + i`; then thread i has every 128th value.
template <class Latent>
__device__ void attend_tile(const AbsorbedParams& p, const QueryGroup& group, uint64_t mask,
                            int first, const float* query, Tile& tile, Merged& total,
                            float* values) {
  const int row = first + static_cast<int>(threadIdx.x);
  const bool visible = row < group.end() && is_visible(group, group.first_query, mask, row);
  tile.offsets[threadIdx.x] = visible ? kv_row_at(p, group.seq, row) * p.cache.row_bytes : -1;
  const float score =
      visible ? score_of<Latent>(p, query, tile.offsets[threadIdx.x]) : minus_infinity();
  const float max = fmaxf(total.max, block_max<kThreads>(score, tile.reduced));
  const float weight = exp2_fast(score - finite_max(max));
  const float factor = exp2_fast(total.max - finite_max(max));
  tile.weights[threadIdx.x] = weight;
  total.max = max;
  total.sum = __fmaf_rn(total.sum, factor, block_sum<kThreads>(weight, tile.reduced));
  const int rows = min(kThreads, group.end() - first);
  for (int i = threadIdx.x; i < p.cache.latent_dim; i += kThreads) {
    float value = values[i] * factor;
    for (int j = 0; j < rows; ++j) {
      if (tile.offsets[j] < 0) continue;  // hidden: may be anything
      value = __fmaf_rn(tile.weights[j],
                        kv_value<Latent>(p.cache.data + tile.offsets[j], p.cache, i), value);
    }
    values[i] = value;
  }
  __syncthreads();
}

template <class Latent>
__global__ void __launch_bounds__(kThreads)
    absorbed_kernel(const __grid_constant__ AbsorbedParams p) {
  extern __shared__ float shared[];
  __shared__ Tile tile;
  let_next_start();
  wait_for_previous();
  const int latent_dim = p.cache.latent_dim, rope_dim = p.cache.rope_dim;
  float* const query = shared;
  float* const values = query + latent_dim + rope_dim;
  const QueryGroup group = find_group(p, blockIdx.x, 1);
  if (group.seq < 0) return;
  const int64_t token = group.first_token, head = group.first_head;
  const Bf16* const latent = p.q_latent + (token * p.heads + head) * latent_dim;
  const Bf16* const rope = p.q_rope + token * p.q_rope_token_stride + head * p.q_rope_head_stride;
  for (int i = threadIdx.x; i < latent_dim; i += kThreads) {
    query[i] = cuda::to_float(latent[i]);
    values[i] = 0.0f;
  }
  for (int i = threadIdx.x; i < rope_dim; i += kThreads)
    query[latent_dim + i] = cuda::to_float(rope[i]);
  __syncthreads();
  const uint64_t mask = group.is_tree ? p.tree_mask[token] : 0;
  Merged total = Merged::none();
  for (int first = 0; first < group.end() && group.kv_len > 0; first += kThreads)
    attend_tile<Latent>(p, group, mask, first, query, tile, total, values);
  Bf16* const out = p.out + (token * p.heads + head) * latent_dim;
  for (int i = threadIdx.x; i < latent_dim; i += kThreads)
    out[i] = from_float<Bf16>(group.kv_len > 0 ? values[i] / total.sum : 0.0f);
}

void generic_absorbed(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  AbsorbedParams p = absorbed_params(args);
  p.group_tokens = 1;
  p.head_groups = p.heads;
  const int shared = (2 * p.cache.latent_dim + p.cache.rope_dim) * int{sizeof(float)};
  const LaunchShape shape{.grid = static_cast<unsigned>(args.out.dim(0) * args.out.dim(1)),
                          .block = kThreads,
                          .shared_bytes = shared};
  with_cache_type(args.cache.format.latent,
                  [&]<class Latent>(Latent) { launch(absorbed_kernel<Latent>, shape, stream, p); });
}

bool is_aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

bool is_tuned(const ops::MlaAbsorbedArgs& args) {
  return takes_tuned_attention() && absorbed::can_run(args);
}

}  // namespace

AbsorbedParams absorbed_params(const ops::MlaAbsorbedArgs& args) {
  AbsorbedParams p{};
  p.q_latent = args.q_latent.as<Bf16>();
  p.q_rope = args.q_rope.as<Bf16>();
  p.q_rope_token_stride = args.q_rope.stride(0);
  p.q_rope_head_stride = args.q_rope.stride(1);
  p.q_rope_is_aligned =
      is_aligned(p.q_rope, 16) && p.q_rope_token_stride % 8 == 0 && p.q_rope_head_stride % 8 == 0;
  p.cache = kv_layout(args.cache);
  p.block_tables = args.block_tables.as<int32_t>();
  p.table_stride = args.block_tables.stride(0);
  p.block_tokens = static_cast<int>(args.cache.block_tokens());
  p.query_start = args.query_start.as<int32_t>();
  p.kv_len = args.kv_len.as<int32_t>();
  p.tree_mask = args.tree_mask.is_null() ? nullptr : args.tree_mask.as<uint64_t>();
  p.tokens = static_cast<int>(args.out.dim(0));
  p.seqs = static_cast<int>(args.kv_len.dim(0));
  p.heads = static_cast<int>(args.out.dim(1));
  p.scale = args.scale * kLog2E;
  p.out = args.out.as<Bf16>();
  return p;
}

int64_t mla_absorbed_scratch(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream) {
  return is_tuned(args) ? absorbed::scratch_bytes(args, stream) : 0;
}

void mla_absorbed(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  is_tuned(args) ? absorbed::run(args, stream) : generic_absorbed(args, stream);
}

}  // namespace fathom::cuda
