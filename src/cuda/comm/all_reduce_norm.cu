// all_reduce_norm: the sum of a block's output over the ranks, the residual add, the norm and the quantisation in one
// kernel: what crosses the wire is a row of x, and nothing is written that only the next kernel would read. Bound by
// the one way over NVLink and the row's own latency.
// Grid: one block per row, laid out as rms_norm's, so that the bits are the same. A thread posts its vectors to all
// peers, loads weight and residual while they fly, then adds what came in a tree (sum.cuh).

#include "cuda/comm/exchange.cuh"
#include "cuda/comm/sum.cuh"
#include "cuda/elementwise/norm_row.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {
namespace {

constexpr uint32_t kNanWord = 0x7fff7fffu;  // of bf16

struct Params {
  NormParams norm;
  Mailbox mailbox;
};

// kRanks: at least the group's size. kVectors: of a thread.
template <class Weight, int kVectors, int kRanks>
__global__ void __launch_bounds__(kNormThreads, kVectors == 1 ? 2 : 1)
    sum_and_norm_rows(const __grid_constant__ Params p) {
  __shared__ float shared[kNormThreads / 32];
  const Mailbox& box = p.mailbox;
  let_next_start();
  const NormRow<false> row(p.norm);
  const int dim = p.norm.dim;
  Words<Weight> weight[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i)
    weight[i] = load_words(static_cast<const Weight*>(p.norm.weight), row.begin(i), dim, true);
  wait_for_previous();
  const uint32_t turn = box.turns[blockIdx.x];
  const int slot = static_cast<int>(turn % kSlots);
  typename NormRow<false>::Parts parts[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) parts[i] = row.load_parts(i);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (row.begin(i) >= dim) break;
    const uint4 packet = without_empty(parts[i].x.at[0], kNanWord);
    for (int k = 1; k < box.size; ++k)
      post(box.place((box.rank + k) % box.size, slot, box.rank) + row.begin(i) / kVector, packet);
  }
  Words<Bf16> v[kVectors];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (row.begin(i) < dim) {
      const int at = row.begin(i) / kVector;
      uint4 packets[kRanks];
#pragma unroll
      for (int r = 0; r < kRanks; ++r)
        if (r < box.size && r != box.rank) packets[r] = look(box.place(box.rank, slot, r) + at);
#pragma unroll
      for (int r = 0; r < kRanks; ++r) {
        if (r >= box.size) break;
        packets[r] = r == box.rank ? parts[i].x.at[0]
                                   : take(packets[r], box.place(box.rank, slot, r) + at, r, box);
      }
      parts[i].x.at[0] = sum_in_tree<Bf16>(packets, box.size);
    }
    v[i].at[0] = pack(row.add(parts[i]));
    sum += sum_of_squares(unpack(v[i]));
    row.keep(unpack(v[i]), i);
  }
  const float factor = norm_factor(block_total(sum, shared), p.norm);
  // All threads have read `turn`: block_total() is behind a barrier.
  if (threadIdx.x == 0) box.turns[blockIdx.x] = turn + 1;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) row.finish(unpack(v[i]), unpack(weight[i]), factor, i);
}

template <class Weight, int kVectors>
void run(const Params& params, const LaunchShape& shape, ops::Stream& stream) {
  const int size = params.mailbox.size;
  if (size <= 2) return launch(sum_and_norm_rows<Weight, kVectors, 2>, shape, stream, params);
  if (size <= 4) return launch(sum_and_norm_rows<Weight, kVectors, 4>, shape, stream, params);
  if (size <= 8) return launch(sum_and_norm_rows<Weight, kVectors, 8>, shape, stream, params);
  launch(sum_and_norm_rows<Weight, kVectors, kMaxRanks>, shape, stream, params);
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
