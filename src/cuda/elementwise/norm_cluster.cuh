#pragma once
// Few rows, normalised by the blocks of a cluster with the bits of norm_row.cuh: each block reads a whole row and adds
// up its squares by itself, which is quicker than to ask the others, and finishes an eighth of the channels.
//
//   WholeRow<kPerThread, kRounds> whole;
//   RowShare share(p, row, thread);                          // vector `thread` of the block's
//   whole.load(p, row);  share.load();
//   whole.add(p, of_warps);  cluster_arrive_relaxed();       // this block has read the residual
//   __syncthreads();
//   if (share.warp_has()) share.store(normed(share.sum(), weight, whole.factor(p, of_warps)));
//   cluster_wait();  share.keep();                           // all blocks have
//
// Blocks have kClusterNormThreads threads. REQUIRES: rows and pointers are aligned, and all threads of normalise_row()
// have whole vectors of the row; share_is_even().

#include "cuda/elementwise/norm_row.cuh"
#include "cuda/ptx/cluster.cuh"

namespace fathom::cuda {

inline constexpr int kNormCluster = 8;
inline constexpr int kClusterNormThreads = 256, kClusterNormWarps = kClusterNormThreads / 32;
inline constexpr int kMostNormWarps = kNormThreads / 32;  // of normalise_row()

// Whether blocks' shares are whole blocks of channels with a scale.
inline bool share_is_even(int64_t dim) { return dim % (kNormCluster * kScaleBlock) == 0; }

// What the threads of normalise_row() hold of a row; each thread here is one of them in each of kRounds.
template <int kPerThread, int kRounds>
class WholeRow {
 public:
  __device__ __forceinline__ void load(const NormParams& p, int64_t row) {
    const NormRow<true> from(p, row);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (warp_of(round) >= warps_of(p)) continue;
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const int thread = warp_of(round) * 32 + static_cast<int>(threadIdx.x) % 32;
        parts_[round][i] = from.load_parts_at((i * warps_of(p) * 32 + thread) * kVector);
      }
    }
  }
  // Each warp's sum: of_warps[kMostNormWarps]. A barrier of the block follows.
  __device__ __forceinline__ void add(const NormParams& p, float* of_warps) const {
    const NormRow<true> from(p);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      if (warp_of(round) >= warps_of(p)) continue;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) sum += sum_of_squares(from.add(parts_[round][i]));
      sum = warp_sum(sum);
      if (threadIdx.x % 32 == 0) of_warps[warp_of(round)] = sum;
    }
  }
  // By whole warps.
  static __device__ __forceinline__ float factor(const NormParams& p, const float* of_warps) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return norm_factor(warp_sum(lane < warps_of(p) ? of_warps[lane] : 0.0f), p);
  }

 private:
  static __device__ __forceinline__ int warps_of(const NormParams& p) {
    return p.dim / (kVector * kPerThread * 32);
  }
  static __device__ __forceinline__ int warp_of(int round) {
    return static_cast<int>(threadIdx.x) / 32 + round * kClusterNormWarps;
  }

  typename NormRow<true>::Parts parts_[kRounds][kPerThread];
};

// A vector of the block's channels of a row, where a thread has one.
class RowShare {
 public:
  __device__ __forceinline__ RowShare(const NormParams& p, int64_t row, int thread)
      : p_(p),
        row_(row),
        own_(p.dim / (kVector * kNormCluster)),
        begin_((static_cast<int>(cluster_rank()) * own_ + thread) * kVector),
        has_(thread < own_ && row < p.rows),
        warp_has_(thread / 32 * 32 < own_ && row < p.rows) {}

  __device__ __forceinline__ bool has() const { return has_; }
  __device__ __forceinline__ bool warp_has() const { return warp_has_; }
  template <class Weight>
  __device__ __forceinline__ Words<Weight> load_weight() const {
    return has_ ? load_words(static_cast<const Weight*>(p_.weight), begin_, end(), true)
                : Words<Weight>{};
  }
  __device__ __forceinline__ void load() {
    if (has_) parts_ = NormRow<true>(p_, row_).load_parts_at(begin_);
  }
  // What the residual gets.
  __device__ __forceinline__ Vector sum() const { return NormRow<true>(p_).add(parts_); }
  __device__ __forceinline__ void keep() const {
    if (has_ && p_.residual != nullptr)
      store_vector(sum(), p_.residual + row_ * p_.dim, begin_, end(), true);
  }
  // By whole warps.
  __device__ __forceinline__ void store(Vector v) const {
    if (has_ && p_.out != nullptr)
      store_vector(v, p_.out + row_ * p_.out_stride, begin_, end(), true);
    if (p_.q == nullptr) return;
    round_to_bf16(v);
    quantize_vector(v, p_.q + row_ * p_.dim, begin_, has_ ? end() : 0, true,
                    p_.scale + row_ * p_.scale_blocks);
  }

 private:
  __device__ __forceinline__ int end() const { return begin_ + kVector; }

  const NormParams& p_;
  const int64_t row_;
  const int own_, begin_;
  const bool has_, warp_has_;
  NormRow<true>::Parts parts_{};
};

}  // namespace fathom::cuda
