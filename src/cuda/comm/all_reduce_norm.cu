// all_reduce_norm: the sum of a block's output over the ranks, the residual add, the norm and the quantisation in one
// kernel: what crosses the wire is a row of x, and nothing is written that only the next kernel would read. Bound by
// the one way over NVLink and the row's own latency.
// Grid: one block per row, laid out as rms_norm's, so that the bits are the same; for few rows a cluster, whose blocks
// have a few of those warps each. A thread posts its vectors to all peers, loads weight and residual while they fly,
// then adds what came in a tree (sum.cuh).

#include "cuda/comm/exchange.cuh"
#include "cuda/comm/sum.cuh"
#include "cuda/elementwise/norm_row.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/send.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr uint32_t kNanWord = 0x7fff7fffu;  // of bf16
constexpr int kMostCluster = 8;

struct Params {
  NormParams norm;
  Mailbox mailbox;
};

// The sum over a row whose threads are those of the block.
struct BlockTotal {
  float* const shared;  // [warps]
  __device__ __forceinline__ void begin() const {}
  __device__ __forceinline__ void wait_for_blocks() const {}
  __device__ __forceinline__ float operator()(float v) const { return block_total(v, shared); }
};

// The same over the threads of a cluster, in order of their warps: each block gets the sums of all.
struct ClusterTotal {
  float* const shared;  // [warps of the row]
  uint64_t* const barrier;

  static __device__ __forceinline__ int warps() { return static_cast<int>(blockDim.x) / 32; }
  static __device__ __forceinline__ int row_warps() {
    return warps() * static_cast<int>(cluster_size());
  }
  __device__ __forceinline__ void begin() const {
    if (threadIdx.x == 0) {
      barrier_init(shared_address(barrier), 1);
      barriers_are_ready();
      barrier_expect(shared_address(barrier), row_warps() * 4);
    }
    __syncwarp();
    cluster_arrive();
  }
  __device__ __forceinline__ void wait_for_blocks() const { cluster_wait(); }
  __device__ __forceinline__ float operator()(float v) const {
    v = warp_sum(v);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    float* const place = shared + static_cast<int>(cluster_rank()) * warps() + warp;
    if (lane < static_cast<int>(cluster_size()))
      send_word(shared_address(place), shared_address(barrier), static_cast<uint32_t>(lane),
                __float_as_uint(v));
    __syncwarp();
    barrier_wait(shared_address(barrier), 0);
    return warp_sum(lane < row_warps() ? shared[lane] : 0.0f);
  }
};

// kRanks: at least the group's size. kVectors: of a thread. Total: of a row's threads.
template <class Weight, int kVectors, int kRanks, bool kWhole, class Total>
__device__ __forceinline__ void sum_and_norm(const Params& p, const NormRow<kWhole>& row,
                                             const Total& total) {
  const Mailbox& box = p.mailbox;
  total.begin();
  Words<Weight> weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) weight[i] = row.template load_weight<Weight>(i);
  total.wait_for_blocks();
  wait_for_previous();
  const uint32_t turn = box.turns[blockIdx.x];
  const int slot = static_cast<int>(turn % kSlots);
  // Of this block's places.
  const auto place_of = [](int i) { return static_cast<int>(i * blockDim.x + threadIdx.x); };
  const auto is_inside = [&](int i) { return kWhole || row.begin(i) < p.norm.dim; };
  typename NormRow<kWhole>::Parts parts[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) parts[i] = row.load_parts(i);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (!is_inside(i)) break;
    const uint4 packet = without_empty(parts[i].x.at[0], kNanWord);
    for (int k = 1; k < box.size; ++k) {
      const int peer = box.rank + k < box.size ? box.rank + k : box.rank + k - box.size;
      post(box.place(peer, slot, box.rank) + place_of(i), packet);
    }
  }
  Words<Bf16> v[kVectors];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (is_inside(i)) {
      uint4 packets[kRanks];
#pragma unroll
      for (int r = 0; r < kRanks; ++r)
        if (r < box.size && r != box.rank)
          packets[r] = look(box.place(box.rank, slot, r) + place_of(i));
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r >= box.size) break;
        packets[r] = r == box.rank
                         ? parts[i].x.at[0]
                         : take(packets[r], box.place(box.rank, slot, r) + place_of(i), r, box);
      }
      parts[i].x.at[0] = sum_in_tree<Bf16>(packets, box.size);
    }
    v[i].at[0] = pack(row.add(parts[i]));
    sum += sum_of_squares(unpack(v[i]));
    row.keep(unpack(v[i]), i);
  }
  const float factor = norm_factor(total(sum), p.norm);
  // All threads have read `turn`: the total is that of all warps.
  if (threadIdx.x == 0) box.turns[blockIdx.x] = turn + 1;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) row.finish(unpack(v[i]), unpack(weight[i]), factor, i);
}

template <class Weight, int kVectors, int kRanks, bool kWhole>
__global__ void __launch_bounds__(kNormThreads, kVectors == 1 ? 2 : 1)
    sum_and_norm_rows(const __grid_constant__ Params p) {
  __shared__ float shared[kNormThreads / 32];
  let_next_start();
  sum_and_norm<Weight, kVectors, kRanks>(p, NormRow<kWhole>(p.norm), BlockTotal{shared});
}

// A cluster for each row. REQUIRES: threads have whole vectors.
template <class Weight, int kVectors, int kRanks>
__global__ void __launch_bounds__(kNormThreads / 2)
    sum_and_norm_few_rows(const __grid_constant__ Params p) {
  __shared__ float shared[kNormThreads / 32];
  __shared__ uint64_t barrier;
  let_next_start();
  const auto blocks = static_cast<int>(cluster_size()), threads = static_cast<int>(blockDim.x);
  const NormRow<true> row(
      p.norm, blockIdx.x / blocks, blocks * threads,
      static_cast<int>(cluster_rank()) * threads + static_cast<int>(threadIdx.x));
  sum_and_norm<Weight, kVectors, kRanks>(p, row, ClusterTotal{shared, &barrier});
}

// How many blocks share a row: as many as divide its warps, where each has places of its own in the mailbox.
int blocks_of_row(const NormParams& norm, int warps) {
  for (int blocks = kMostCluster; blocks > 1; --blocks)
    if (warps % blocks == 0 && norm.rows * blocks <= kMaxBlocks) return blocks;
  return 1;
}

template <class Weight, int kVectors, int kRanks>
void run_whole(const Params& params, LaunchShape shape, ops::Stream& stream) {
  const int blocks = blocks_of_row(params.norm, static_cast<int>(shape.block.x) / 32);
  if (blocks == 1)
    return launch(sum_and_norm_rows<Weight, kVectors, kRanks, true>, shape, stream, params);
  shape.grid.x *= static_cast<unsigned>(blocks);
  shape.block.x /= static_cast<unsigned>(blocks);
  shape.cluster = blocks;
  launch(sum_and_norm_few_rows<Weight, kVectors, kRanks>, shape, stream, params);
}

template <class Weight, int kVectors>
void run(const Params& params, const LaunchShape& shape, ops::Stream& stream) {
  const int size = params.mailbox.size;
  // Widths of no published model.
  if (params.norm.dim % (kVectors * kVector * static_cast<int>(shape.block.x)) != 0)
    return launch(sum_and_norm_rows<Weight, kVectors, kMaxRanks, false>, shape, stream, params);
  if (size <= 2) return run_whole<Weight, kVectors, 2>(params, shape, stream);
  if (size <= 4) return run_whole<Weight, kVectors, 4>(params, shape, stream);
  if (size <= 8) return run_whole<Weight, kVectors, 8>(params, shape, stream);
  run_whole<Weight, kVectors, kMaxRanks>(params, shape, stream);
}

template <class Weight>
void run(const Params& params, ops::Stream& stream) {
  const auto [per_thread, block] = norm_layout(params.norm.dim);
  const LaunchShape shape{.grid = static_cast<unsigned>(params.norm.rows), .block = block};
  if (per_thread == 1) return run<Weight, 1>(params, shape, stream);
  run<Weight, 2>(params, shape, stream);
}

}  // namespace

bool can_all_reduce_norm(const ops::RmsNormArgs& norm, const ops::Activation& quantised) {
  const int64_t dim = norm.x.dim(1);
  return norm.x.dtype() == tensor::DType::kBf16 && norm.x.dim(0) <= kMostNormRows &&
         dim <= kMostNormElements && dim % kVector == 0 && norm_params(norm, quantised).aligned;
}

void all_reduce_norm(const Mailbox& mailbox, const ops::RmsNormArgs& norm,
                     const ops::Activation& quantised, ops::Stream& stream) {
  const Params params{.norm = norm_params(norm, quantised), .mailbox = mailbox};
  if (norm.weight.dtype() == tensor::DType::kF32) return run<float>(params, stream);
  run<Bf16>(params, stream);
}

}  // namespace fathom::cuda
