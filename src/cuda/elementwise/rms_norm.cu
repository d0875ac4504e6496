// rms_norm, rms_norm_quantize: one kernel, so that both have the same bits. Bound by latency up to some hundred
// rows, then by memory: 4 bytes an element, 8 with a residual, 1 more quantised.
// Grid: one block per row; for few long ones a cluster each; for many, the blocks that run at once take them in turn.
// A thread keeps its vectors of 8 in registers between the sum and the write, all loads are in flight at once, the
// weight is loaded while the kernel before still runs. Shared: one float a warp.
// The order of the sum depends on the width alone: vectors of a thread, lanes, warps.

#include "cuda/elementwise/norm_cluster.cuh"
#include "cuda/elementwise/ops.h"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr int kThreads = kNormThreads, kLongThreads = 1024;
constexpr int kResidentBlocks = 2;  // of a multiprocessor that take many rows in turn

// kVectors: of a thread, held in registers as memory has them, so that several blocks fit. kWhole also for the size of
// the code: what runs once waits for its instructions, too, and those for rows of any kind lie between.
template <class Weight, int kVectors, bool kWhole>
__global__ void __launch_bounds__(kThreads, kVectors <= 2 ? 2 : 1)
    norm_rows(const __grid_constant__ NormParams p) {
  __shared__ float shared[kThreads / 32];
  let_next_start();
  normalise_row<Weight, kVectors, kWhole>(p, shared);
}

// The same for many rows: as many blocks as run at once take them in turn, and the loads of the next row are under way
// while this one is summed and written.
template <class Weight, int kVectors, bool kWhole>
__global__ void __launch_bounds__(kThreads, kVectors <= 2 ? kResidentBlocks : 1)
    norm_many_rows(const __grid_constant__ NormParams p) {
  // Used in turn: a slow warp may still read the row before's.
  __shared__ float shared[2][kThreads / 32];
  using Row = NormRow<kWhole>;
  let_next_start();
  Words<Weight> weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) weight[i] = Row(p).template load_weight<Weight>(i);
  wait_for_previous();
  typename Row::Parts parts[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) parts[i] = Row(p).load_parts(i);
  int turn = 0;
  for (int64_t at = blockIdx.x; at < p.rows; at += gridDim.x, turn ^= 1) {
    const Row row(p, at), next(p, at + gridDim.x);
    Words<Bf16> v[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i) v[i].at[0] = pack(row.add(parts[i]));
    if (at + gridDim.x < p.rows) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) parts[i] = next.load_parts(i);
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      sum += sum_of_squares(unpack(v[i]));
      row.keep(unpack(v[i]), i);
    }
    const float factor = norm_factor(block_total(sum, shared[turn]), p);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) row.finish(unpack(v[i]), unpack(weight[i]), factor, i);
  }
}

// Rows that no block's registers hold are read twice.
template <class Weight>
__global__ void __launch_bounds__(kLongThreads, 1)
    norm_long_rows(const __grid_constant__ NormParams p) {
  __shared__ float shared[kLongThreads / 32];
  let_next_start();
  wait_for_previous();
  const NormRow<false> row(p);
  const int rounds = (p.dim + kLongThreads * kVector - 1) / (kLongThreads * kVector);
  float sum = 0;
  for (int i = 0; i < rounds; ++i) {
    const Vector v = row.load(i);
    sum += sum_of_squares(v);
    row.keep(v, i);
  }
  const float factor = norm_factor(block_total(sum, shared), p);
  for (int i = 0; i < rounds; ++i) {
    const Vector weight =
        load_vector(static_cast<const Weight*>(p.weight), row.begin(i), p.dim, p.aligned);
    row.finish(row.reload(i), weight, factor, i);
  }
}

// Few long rows, each by a cluster of blocks: for one a row has too many instructions.
template <class Weight>
__global__ void __launch_bounds__(kClusterNormThreads)
    norm_few_rows(const __grid_constant__ NormParams p) {
  __shared__ float of_warps[kMostNormWarps];
  let_next_start();
  const int thread = threadIdx.x;
  const int64_t row = static_cast<int>(blockIdx.x) / kNormCluster;
  RowShare share(p, row, thread);
  const Words<Weight> weight = share.template load_weight<Weight>();
  wait_for_previous();
  WholeRow<2, kNormThreads / kClusterNormThreads> whole;
  whole.load(p, row);
  share.load();
  whole.add(p, of_warps);
  cluster_arrive_relaxed();  // this block has what it reads of the row
  __syncthreads();
  if (share.warp_has()) share.store(normed(share.sum(), unpack(weight), whole.factor(p, of_warps)));
  cluster_wait();
  share.keep();
}

constexpr int64_t kFewRows = 4;  // more are faster with a block each, measured on an H200

template <class Weight>
bool run_few_rows(const NormParams& params, int64_t rows, ops::Stream& stream) {
  const bool writes_over_input = params.out == params.x;  // which other blocks still read
  if (rows > kFewRows || !share_is_even(params.dim) || writes_over_input) return false;
  launch(norm_few_rows<Weight>,
         {.grid = static_cast<unsigned>(rows) * kNormCluster,
          .block = kClusterNormThreads,
          .cluster = kNormCluster},
         stream, params);
  return true;
}

template <class Weight>
void run(const NormParams& params, int64_t rows, ops::Stream& stream) {
  const auto [per_thread, block] = norm_layout(params.dim);
  LaunchShape shape{.grid = static_cast<unsigned>(rows), .block = block};
  const int64_t resident = int64_t{kResidentBlocks} * num_multiprocessors();
  const bool whole = params.aligned && params.dim == per_thread * shape.block.x * kVector;
  if (per_thread == 2 && rows >= 4 * resident) {
    shape.grid = static_cast<unsigned>(resident);
    const auto kernel = whole ? norm_many_rows<Weight, 2, true> : norm_many_rows<Weight, 2, false>;
    return launch(kernel, shape, stream, params);
  }
  if (per_thread == 2 && whole && run_few_rows<Weight>(params, rows, stream)) return;
  if (per_thread == 1)
    return launch(whole ? norm_rows<Weight, 1, true> : norm_rows<Weight, 1, false>, shape, stream,
                  params);
  if (per_thread == 2)
    return launch(whole ? norm_rows<Weight, 2, true> : norm_rows<Weight, 2, false>, shape, stream,
                  params);
  if (params.dim <= 4 * kThreads * kVector)
    return launch(norm_rows<Weight, 4, false>, shape, stream, params);
  shape.block = kLongThreads;
  launch(norm_long_rows<Weight>, shape, stream, params);
}

void run(const ops::RmsNormArgs& args, const ops::Activation& quantised, ops::Stream& stream) {
  const NormParams params = norm_params(args, quantised);
  if (args.weight.dtype() == tensor::DType::kF32) return run<float>(params, args.x.dim(0), stream);
  run<Bf16>(params, args.x.dim(0), stream);
}

}  // namespace

void rms_norm(const ops::RmsNormArgs& args, ops::Stream& stream) { run(args, {}, stream); }

void rms_norm_quantize(const ops::RmsNormQuantizeArgs& args, ops::Stream& stream) {
  run(args.norm, args.quantised, stream);
}

}  // namespace fathom::cuda
