// sample: one cluster of 8 blocks per row (16 where the vocabulary is above 131,072), the row in registers. Bound by
// latency for some rows: one read of the row and a barrier of the cluster for a greedy one, some 15 barriers more
// where top_k or top_p limit a draw; for many by latency too, some 50 instructions a logit and what draws spill, so two
// blocks share a multiprocessor. Shared: 77 KB.
// The layout is a function of the vocabulary alone, so a row's log-probabilities are the same in any batch; tokens
// are exact anyway (ops/sample_weight.h). Compiled without fused multiply-add.

#include "ops/sample.h"

#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"
#include "cuda/sampling/cluster.cuh"
#include "cuda/sampling/draw.cuh"
#include "cuda/sampling/ops.h"
#include "cuda/sampling/sample_row.cuh"
#include "cuda/sampling/top_tokens.cuh"

namespace fathom::cuda {
namespace {

constexpr uint8_t kNonFinite = 1, kNothingLeft = 2;
// What a warp tells of its logits; the worst of the row counts.
constexpr uint64_t kBadRaw = 2, kBadAdjusted = 1;

struct Choice {
  int token;
  uint8_t failed;
};

__device__ __forceinline__ Choice choose(const SampleParams& p, const SampleRow& row,
                                         Cluster& cluster, DrawValues& values, uint64_t best,
                                         uint64_t bad) {
  if (bad == kBadRaw) return {.token = -1, .failed = kNonFinite};
  if (row.forced() >= 0) return {.token = row.forced(), .failed = 0};
  if (bad == kBadAdjusted) return {.token = -1, .failed = kNonFinite};
  if (best == 0) return {.token = -1, .failed = kNothingLeft};
  if (row.is_greedy()) return {.token = rank_id(best), .failed = 0};
  return {.token = Draw(p, row, cluster, values, rank_logit(best)).run(), .failed = 0};
}

// kBlocks: of a multiprocessor.
template <int kBlocks>
__global__ void __launch_bounds__(kSampleThreads, kBlocks)
    sample_rows(const __grid_constant__ SampleParams p) {
  __shared__ ClusterShared shared;
  extern __shared__ __align__(16) char dynamic[];
  let_next_start();
  Cluster cluster(shared);
  SampleRow row(p, static_cast<int>(blockIdx.x / cluster.size()), static_cast<int>(cluster.rank()));
  wait_for_previous();
  row.load_slot();
  row.load();
  row.load_asked();
  const bool bad_raw = __any_sync(kAllLanes, row.has_non_finite());
  const PartOfSum part = exponentials(row);
  row.adjust();
  const bool bad_adjusted = __any_sync(kAllLanes, row.has_too_large());
  cluster.begin();
  cluster.share({part.packed(), warp_max_whole(row.best()),
                 bad_raw ? kBadRaw : (bad_adjusted ? kBadAdjusted : 0)});
  const float log_total = log_total_of(cluster);
  const Choice choice = choose(p, row, cluster, *reinterpret_cast<DrawValues*>(dynamic),
                               cluster.max(1), cluster.max(2));
  write_top(p, row, cluster, log_total, choice.failed == 0 ? row.num_top() : 0);
  if (cluster.rank() != 0 || threadIdx.x != 0) return;
  p.tokens[row.row()] = choice.token;
  p.failed[row.row()] = choice.failed;
  p.logprobs[row.row()] =
      choice.token < 0 ? 0.0f : p.logits[row.row() * p.logits_stride + choice.token] - log_total;
}

SampleParams params_of(const ops::SampleArgs& args, int ranks) {
  const ops::SamplingSlots& slots = args.slots;
  return {.temperature = slots.temperature.as<float>(),
          .top_p = slots.top_p.as<float>(),
          .min_p = slots.min_p.as<float>(),
          .repetition = slots.repetition.as<float>(),
          .frequency = slots.frequency.as<float>(),
          .presence = slots.presence.as<float>(),
          .top_k = slots.top_k.as<int32_t>(),
          .num_top = slots.num_top.as<int32_t>(),
          .penalty_row = slots.penalty_row.as<int32_t>(),
          .bias_start = slots.bias_start.as<int32_t>(),
          .ban_start = slots.ban_start.as<int32_t>(),
          .ban_end = slots.ban_end.as<int32_t>(),
          .ban_until = slots.ban_until.as<int32_t>(),
          .seed = slots.seed.as<uint64_t>(),
          .counts = slots.counts.is_null() ? nullptr : slots.counts.as<int32_t>(),
          .bias_ids = slots.bias_ids.as<int32_t>(),
          .bias_values = slots.bias_values.as<float>(),
          .logits = args.logits.as<float>(),
          .slot = args.slot.as<int32_t>(),
          .position = args.position.as<int32_t>(),
          .forced = args.forced.as<int32_t>(),
          .paths = args.paths.is_null() ? nullptr : args.paths.as<int32_t>(),
          .mask = args.mask.is_null() ? nullptr
                                      : reinterpret_cast<const uint32_t*>(args.mask.as<uint64_t>()),
          .tokens = args.tokens.as<int32_t>(),
          .logprobs = args.logprobs.as<float>(),
          .top_ids = args.top_ids.as<int32_t>(),
          .top_logprobs = args.top_logprobs.as<float>(),
          .failed = args.failed.as<uint8_t>(),
          .logits_stride = args.logits.stride(0),
          .mask_words = args.mask.is_null() ? 0 : 2 * args.mask.stride(0),
          .vocab_size = static_cast<int>(args.logits.dim(1)),
          .max_top = static_cast<int>(args.top_ids.dim(1)),
          .max_path = args.paths.is_null() ? 0 : static_cast<int>(args.paths.dim(1)),
          .ids_per_block = ids_per_block(args.logits, ranks),
          .aligned = has_whole_groups(args.logits) && has_whole_groups(args.slots.counts)};
}

}  // namespace

void sample(const ops::SampleArgs& args, ops::Stream& stream) {
  const int64_t rows = args.logits.dim(0);
  const int ranks = num_ranks("sample", args.logits);
  const bool is_round = rows * ranks <= num_multiprocessors();
  launch(is_round ? sample_rows<1> : sample_rows<2>,
         {.grid = static_cast<unsigned>(rows * ranks),
          .block = kSampleThreads,
          .shared_bytes = static_cast<int>(sizeof(DrawValues)),
          .cluster = ranks},
         stream, params_of(args, ranks));
}

}  // namespace fathom::cuda
