// Expanded attention for heads of any size (one block for a head of a query, 128 keys at a time; every key is read
// by each query), and the choice between it and the fast kernel.
//
// Grid: queries x heads. Shared memory: the query as float32.

#include <algorithm>

#include "cuda/attention/choice.h"
#include "cuda/attention/expanded/mla_expanded.cuh"
#include "cuda/attention/expanded/ops.h"
#include "cuda/device/reduce.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "ops/index.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 128;

__device__ float score_of(const ExpandedParams& p, const float* query, const Bf16* nope,
                          const Bf16* rope) {
  float sum = 0.0f;
  for (int i = 0; i < p.nope; ++i) sum = __fmaf_rn(query[i], cuda::to_float(nope[i]), sum);
  for (int i = 0; i < p.rope; ++i) sum = __fmaf_rn(query[p.nope + i], cuda::to_float(rope[i]), sum);
  return sum * p.scale;
}

__global__ void __launch_bounds__(kThreads)
    expanded_generic_kernel(const __grid_constant__ ExpandedParams p) {
  extern __shared__ float query[];
  __shared__ float weights[kThreads], reduced[kThreads / 32];
  let_next_start();
  wait_for_previous();
  const ExpandedBlock block = find_block(p, blockIdx.x, 1);
  const ops::ExpandedSegment& segment = *block.segment;
  const int64_t at = (segment.token_begin + block.first_query) * p.heads + blockIdx.y;
  const int dim = p.nope + p.rope, end = block.end(block.first_query);
  const uint64_t mask =
      segment.has_tree_mask ? p.tree_mask[segment.token_begin + block.first_query] : 0;
  const uint32_t* const kept = block.kept(p, block.first_query);
  float max = segment.first ? minus_infinity() : p.state_max[at];
  float sum = segment.first ? 0.0f : p.state_sum[at];
  float* const acc = p.state_acc + at * p.v;
  for (int i = threadIdx.x; i < p.v && segment.first; i += kThreads) acc[i] = 0.0f;
  for (int i = threadIdx.x; i < dim; i += kThreads) query[i] = cuda::to_float(p.q[at * dim + i]);
  __syncthreads();
  for (int first = 0; first < end; first += kThreads) {
    const int key = first + static_cast<int>(threadIdx.x);
    const int64_t row = segment.buffer_begin + key;
    const bool visible = key < end && block.is_visible(block.first_query, mask, key) &&
                         (kept == nullptr || ops::keeps_row(kept, key));
    const float score =
        visible ? score_of(p, query, p.kv + (row * p.heads + blockIdx.y) * (p.nope + p.v),
                           p.k_rope + row * p.rope)
                : minus_infinity();
    const float new_max = fmaxf(max, block_max<kThreads>(score, reduced));
    const float factor = exp2_fast(max - finite_max(new_max));
    const float weight = exp2_fast(score - finite_max(new_max));
    max = new_max;
    weights[threadIdx.x] = weight;
    sum = __fmaf_rn(sum, factor, block_sum<kThreads>(weight, reduced));
    const int keys = min(kThreads, end - first);
    for (int i = threadIdx.x; i < p.v; i += kThreads) {
      float value = acc[i] * factor;
      for (int j = 0; j < keys; ++j) {
        if (weights[j] == 0.0f) continue;  // hidden: may be anything
        const int64_t from = (segment.buffer_begin + first + j) * p.heads + blockIdx.y;
        value =
            __fmaf_rn(weights[j], cuda::to_float(p.kv[from * (p.nope + p.v) + p.nope + i]), value);
      }
      acc[i] = value;
    }
    __syncthreads();
  }
  if (segment.last) {
    for (int i = threadIdx.x; i < p.v; i += kThreads)
      p.out[at * p.v + i] = from_float<Bf16>(acc[i] / sum);
  } else if (threadIdx.x == 0) {
    p.state_max[at] = max;
    p.state_sum[at] = sum;
  }
}

ExpandedParams common_params(const ops::MlaExpandedArgs& args) {
  ExpandedParams p{};
  p.q = args.q.as<Bf16>();
  p.kv = args.kv.as<Bf16>();
  p.k_rope = args.k_rope.as<Bf16>();
  p.tree_mask = args.tree_mask.is_null() ? nullptr : args.tree_mask.as<uint64_t>();
  if (!args.kept.is_null()) {
    p.kept = reinterpret_cast<const uint32_t*>(args.kept.as<int32_t>());
    p.kept_words = args.kept.stride(0);
    p.kept_from = args.kept_from;
  }
  p.state_max = args.state_max.as<float>();
  p.state_sum = args.state_sum.as<float>();
  p.state_acc = args.state_acc.as<float>();
  p.out = args.out.is_null() ? nullptr : args.out.as<Bf16>();
  p.heads = static_cast<int>(args.q.dim(1));
  p.rope = static_cast<int>(args.k_rope.dim(1));
  p.nope = static_cast<int>(args.q.dim(2)) - p.rope;
  p.v = static_cast<int>(args.state_acc.dim(2));
  p.scale = args.scale * kLog2E;
  return p;
}

}  // namespace

void generic_expanded(const ExpandedParams& p, ops::Stream& stream) {
  launch(expanded_generic_kernel,
         {.grid = dim3(static_cast<unsigned>(p.tile_end[p.num_segments - 1]),
                       static_cast<unsigned>(p.heads)),
          .block = kThreads,
          .shared_bytes = (p.nope + p.rope) * int{sizeof(float)}},
         stream, p);
}

namespace {

void mla_expanded(const ops::MlaExpandedArgs& args, ops::Stream& stream) {
  ExpandedParams p = common_params(args);
  const bool fast = takes_tuned_attention() && has_fast_expanded(args);
  const int tile_queries = fast ? kFastExpandedQueries : 1;
  for (size_t first = 0; first < args.segments.size(); first += kMaxExpandedSegments) {
    const auto segments = args.segments.subspan(
        first, std::min<size_t>(kMaxExpandedSegments, args.segments.size() - first));
    p.num_segments = static_cast<int>(segments.size());
    int tiles = 0;
    for (size_t i = 0; i < segments.size(); ++i) {
      tiles += static_cast<int>(num_tiles(segments[i].num_tokens, tile_queries));
      p.tile_end[i] = tiles;
      p.segments[i] = segments[i];
    }
    if (tiles > 0) fast ? fast_expanded(p, args, stream) : generic_expanded(p, stream);
  }
}

}  // namespace

void add_expanded_attention(ops::Backend& backend) { backend.mla_expanded = {mla_expanded}; }

}  // namespace fathom::cuda
