#include "cuda/elementwise/combine_rows.h"

#include "cuda/elementwise/vector.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/launch.cuh"

// Bound by memory: each row is read once and written once. A thread has 8 channels. No shared memory.

namespace fathom::cuda {
namespace {

constexpr int kSumThreads = 128;

// What nobody reads again.
__device__ __forceinline__ Words<Bf16> load_once(const Bf16* from) {
  return {__ldcs(reinterpret_cast<const uint4*>(from))};
}

// So many pairs of a token, whose loads are under way together: V3's eight and the shared expert's.
constexpr int kPairs = 9;
struct Pairs {
  float weights[kPairs];
  int rows[kPairs];  // -1: none

  __device__ __forceinline__ Pairs(const CombineArgs& p, int64_t token, int first) {
    const int copies = static_cast<int>(p.copies), shared = static_cast<int>(p.shared);
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      rows[j] = first + j < copies ? p.row_of_pair[token * copies + first + j] : -1;
      const int routed = first + j - shared;
      weights[j] = first + j >= copies ? 0.0f
                   : routed < 0        ? 1.0f
                                       : p.weights[token * (copies - shared) + routed];
    }
  }
};

// Grid: (tokens, dim / 1024). Weights and rows of pairs are read before the wait: they are older than the kernel
// before, which lets this one in behind its own wait.
__global__ void __launch_bounds__(kSumThreads)
    combine_rows_kernel(const __grid_constant__ CombineArgs p) {
  let_next_start();
  const int64_t token = blockIdx.x;
  const int channel = (blockIdx.y * kSumThreads + threadIdx.x) * kVector;
  Vector sum{};
  const auto add = [&](const Pairs& pairs) {
    Words<Bf16> words[kPairs];
#pragma unroll
    for (int j = 0; j < kPairs; ++j)
      words[j] = pairs.rows[j] >= 0 ? load_once(p.y + int64_t{pairs.rows[j]} * p.dim + channel)
                                    : Words<Bf16>{};
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const Vector y = unpack(words[j]);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        sum.at[i] = pairs.rows[j] >= 0 ? sum.at[i] + pairs.weights[j] * y.at[i] : sum.at[i];
    }
  };
  const Pairs first(p, token, 0);
  wait_for_previous();
  if (channel >= p.dim) return;
  Bf16* const out = p.out + token * p.out_stride + channel;
  Words<Bf16> before{};
  if (p.accumulate) before.at[0] = *reinterpret_cast<const uint4*>(out);
  add(first);
  for (int at = kPairs; at < p.copies; at += kPairs) add(Pairs(p, token, at));
  if (p.accumulate) {
    const Vector old = unpack(before);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum.at[i] += old.at[i];
  }
  *reinterpret_cast<uint4*>(out) = pack(sum);
}
}  // namespace

void combine_rows(const CombineArgs& args, ops::Stream& stream) {
  const dim3 grid{static_cast<unsigned>(args.tokens), num_tiles(args.dim, kSumThreads * kVector)};
  launch(combine_rows_kernel, {.grid = grid, .block = kSumThreads}, stream, args);
}

}  // namespace fathom::cuda
