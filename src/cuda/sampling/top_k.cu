// top_k: one cluster of 8 or 16 blocks per row, the row in registers, as in sample.cu. Bound by latency for some rows:
// one read of the row and a barrier of the cluster for each best token; by reading 4 bytes a logit for many. Shared:
// 13 KB. Log-probabilities have the bits of sample(). Compiled without fused multiply-add.

#include "ops/top_k.h"

#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "cuda/sampling/cluster.cuh"
#include "cuda/sampling/ops.h"
#include "cuda/sampling/sample_row.cuh"
#include "cuda/sampling/top_tokens.cuh"

namespace fathom::cuda {
namespace {

__global__ void __launch_bounds__(kSampleThreads, 1)
    top_k_rows(const __grid_constant__ SampleParams p) {
  __shared__ ClusterShared shared;
  let_next_start();
  Cluster cluster(shared);
  SampleRow row(p, static_cast<int>(blockIdx.x / cluster.size()), static_cast<int>(cluster.rank()));
  wait_for_previous();
  row.load();
  const bool is_bad = __any_sync(kAllLanes, row.has_non_finite());
  const PartOfSum part = exponentials(row);
  cluster.begin();
  cluster.share({part.packed(), is_bad ? uint64_t{1} : 0});
  const float log_total = log_total_of(cluster);
  write_top(p, row, cluster, log_total, cluster.max(1) == 0 ? p.max_top : 0);
}

}  // namespace

void top_k(const ops::TopKArgs& args, ops::Stream& stream) {
  const int64_t rows = args.logits.dim(0);
  const int ranks = num_ranks("top_k", args.logits);
  SampleParams params{};  // no slots, no mask
  params.logits = args.logits.as<float>();
  params.logits_stride = args.logits.stride(0);
  params.vocab_size = static_cast<int>(args.logits.dim(1));
  params.top_ids = args.ids.as<int32_t>();
  params.top_logprobs = args.logprobs.as<float>();
  params.max_top = static_cast<int>(args.k());
  params.ids_per_block = ids_per_block(args.logits, ranks);
  params.aligned = has_whole_groups(args.logits);
  launch(top_k_rows,
         {.grid = static_cast<unsigned>(rows * ranks), .block = kSampleThreads, .cluster = ranks},
         stream, params);
}

}  // namespace fathom::cuda
