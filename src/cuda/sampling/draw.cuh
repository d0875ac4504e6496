#pragma once
// The draw of sample() (ops/sample.h, steps 5 and 6) over a row in the registers of a cluster.
//
//   int token = Draw(params, row, cluster, rank_logit(best)).run();
//
// What top_k and top_p keep is all logits above a level and the lowest ids at it. The level is found by halving the
// range of logits in which it lies: a count and a sum over the row and one barrier of the cluster for each bit,
// until one token is left in the range. Sums are of whole numbers, so no order matters.
// Every thread of the cluster makes the same calls and gets the same answers.

#include <cstdint>

#include "base/rng.h"
#include "cuda/sampling/cluster.cuh"
#include "cuda/sampling/sample_row.cuh"
#include "ops/sample_weight.h"

namespace fathom::cuda {

// ops::sample_weight, whose table of constants lies on the host: the same operations, one by one.
__device__ __forceinline__ float device_sample_weight(float logit, float largest, float factor) {
  constexpr float c1 = ops::kSampleExp2[0], c2 = ops::kSampleExp2[1], c3 = ops::kSampleExp2[2];
  constexpr float c4 = ops::kSampleExp2[3], c5 = ops::kSampleExp2[4], c6 = ops::kSampleExp2[5];
  const float t = __fmul_rn(__fsub_rn(logit, largest), factor);
  if (!(t > ops::kSampleLowest)) return 0;
  const float shifted = __fadd_rn(t, ops::kSampleRound);
  const float f = __fsub_rn(t, __fsub_rn(shifted, ops::kSampleRound));
  float p = __fadd_rn(__fmul_rn(c6, f), c5);
  p = __fadd_rn(__fmul_rn(p, f), c4);
  p = __fadd_rn(__fmul_rn(p, f), c3);
  p = __fadd_rn(__fmul_rn(p, f), c2);
  p = __fadd_rn(__fmul_rn(p, f), c1);
  const float weight = __fadd_rn(__fmul_rn(p, f), 1.0f);
  return __uint_as_float(__float_as_uint(weight) + (__float_as_uint(shifted) << 23));
}

// A thread reads what it wrote itself.
using DrawValues = float4[kRowGroups][kSampleThreads];

class Draw {
 public:
  // Takes the row's values into shared memory: registers hold the shares.
  __device__ __forceinline__ Draw(const SampleParams& p, const SampleRow& row, Cluster& cluster,
                                  DrawValues& values, float largest)
      : p_(p),
        row_(row),
        cluster_(cluster),
        values_(values),
        largest_(largest),
        factor_(ops::sample_factor(p.temperature[row.slot()])) {
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i)
      values_[i][threadIdx.x] = {row.values[i][0], row.values[i][1], row.values[i][2],
                                 row.values[i][3]};
  }

  __device__ __forceinline__ int run() {
    each([&](int i, int c, float logit) { shares_[i][c] = ops::sample_share(weight(logit)); });
    const int top_k = p_.top_k[row_.slot()];
    const float top_p = p_.top_p[row_.slot()], min_p = p_.min_p[row_.slot()];
    if ((top_k > 0 && top_k < p_.vocab_size) || top_p < 1) keep_best(top_k, top_p);
    if (min_p > 0)
      each([&](int i, int c, float logit) {
        if (weight(logit) < min_p) shares_[i][c] = 0;
      });
    const auto position = static_cast<uint64_t>(p_.position[row_.row()]);
    const uint64_t bits = random_bits(philox(p_.seed[row_.slot()], 0, position));
    return pick([&](int i, int c) { return shares_[i][c]; },
                [&](uint64_t total) { return scale_bits(bits, total); });
  }

 private:
  // Tokens above a logit.
  struct Above {
    uint64_t count, shares;
  };

  template <class F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i) {
      const float4 logits = values_[i][threadIdx.x];
      f(i, 0, logits.x);
      f(i, 1, logits.y);
      f(i, 2, logits.z);
      f(i, 3, logits.w);
    }
  }
  __device__ __forceinline__ float value(int i, int c) const {
    return reinterpret_cast<const float*>(&values_[i][threadIdx.x])[c];
  }

  __device__ __forceinline__ float weight(float logit) const {
    return device_sample_weight(logit, largest_, factor_);
  }

  __device__ __forceinline__ Above above(float level) {
    uint32_t count = 0;
    uint64_t shares = 0;
    each([&](int i, int c, float logit) {
      if (logit > level) {
        ++count;
        shares += shares_[i][c];
      }
    });
    cluster_.share({uint64_t{__reduce_add_sync(kAllLanes, count)}, warp_sum_whole(shares)});
    return {.count = cluster_.sum(0), .shares = cluster_.sum(1)};
  }

  // All tokens that weigh anything. The least of their keys comes inverted, so that a maximum finds it.
  struct Whole {
    Above all;
    uint32_t least_key;
  };
  __device__ __forceinline__ Whole whole() {
    uint32_t count = 0, least = ~0u;
    uint64_t shares = 0;
    each([&](int i, int c, float logit) {
      if (shares_[i][c] == 0) return;
      ++count;
      shares += shares_[i][c];
      least = min(least, sample_key(logit));
    });
    cluster_.share({uint64_t{__reduce_add_sync(kAllLanes, count)}, warp_sum_whole(shares),
                    uint64_t{~__reduce_min_sync(kAllLanes, least)}});
    return {.all = {.count = cluster_.sum(0), .shares = cluster_.sum(1)},
            .least_key = ~static_cast<uint32_t>(cluster_.max(2))};
  }

  // Sets the shares of what top_k and top_p drop to 0.
  __device__ __forceinline__ void keep_best(int top_k, float top_p) {
    const Whole row = whole();
    const uint64_t most = top_k > 0 ? static_cast<uint64_t>(top_k) : ~uint64_t{0};
    // A share of at least 1 means at least one token, because the best one has 2^40.
    const uint64_t wanted =
        top_p < 1 ? max(ops::sample_top_p_share(top_p, row.all.shares), uint64_t{1}) : ~uint64_t{0};
    // The level is the lowest key above which there are fewer tokens and shares than these. It lies in (low, high].
    // Just below 0 lies no key of a logit but that of -0, which equals 0.
    uint32_t low = row.least_key - (row.least_key == sample_key(0) ? 2 : 1);
    uint32_t high = sample_key(largest_);
    Above above_low = row.all, above_high{.count = 0, .shares = 0};
    for (int turn = 0; high - low > 1 && above_low.count - above_high.count > 1; ++turn) {
      const uint32_t middle = middle_of(low, high, turn);
      const Above tokens = above(sample_logit(middle));
      if (tokens.count < most && tokens.shares < wanted) {
        high = middle;
        above_high = tokens;
      } else {
        low = middle;
        above_low = tokens;
      }
    }
    const float below = sample_logit(low), level = sample_logit(high);
    int end_of_ties = INT32_MAX;
    const uint64_t tied = above_low.count - above_high.count;
    if (tied > 1) {  // so they have one logit
      const uint64_t kept =
          ties_kept(level, tied, most - above_high.count, wanted - above_high.shares);
      if (kept < tied)
        end_of_ties =
            pick([&](int i, int c) { return value(i, c) == level ? uint64_t{1} : uint64_t{0}; },
                 [&](uint64_t) { return kept; });
    }
    each([&](int i, int c, float logit) {
      if (!(logit > below) || (tied > 1 && logit == level && row_.id(i) + c >= end_of_ties))
        shares_[i][c] = 0;
    });
  }

  // A key between both. Logits are spread evenly rather than their bits, so the middle of the logits leaves fewest
  // turns; but only that of the bits always ends, after at most 32.
  static __device__ __forceinline__ uint32_t middle_of(uint32_t low, uint32_t high, int turn) {
    constexpr int kTurnsByValue = 16;
    if (turn < kTurnsByValue) {
      const uint32_t key = sample_key(0.5f * sample_logit(low) + 0.5f * sample_logit(high));
      if (key > low && key < high) return key;
    }
    return low + (high - low) / 2;
  }

  __device__ __forceinline__ uint64_t ties_kept(float level, uint64_t tied, uint64_t most,
                                                uint64_t wanted) const {
    uint64_t kept = min(tied, most);
    const uint64_t each_share = ops::sample_share(weight(level));
    // No overflow: where nothing limits the shares the product is less.
    if (each_share > 0 && wanted <= each_share * tied)
      kept = min(kept, (wanted + each_share - 1) / each_share);
    return kept;
  }

  // In order of ids, the first whose running sum of quantity(i, c) exceeds goal(sum of all); -1 if none does.
  template <class Quantity, class Goal>
  __device__ __forceinline__ int pick(const Quantity& quantity, const Goal& goal) {
    ClusterShared& shared = cluster_.shared();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t of_warp = 0;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i) {
      const uint64_t sum =
          warp_sum_whole(quantity(i, 0) + quantity(i, 1) + quantity(i, 2) + quantity(i, 3));
      if (lane == 0) shared.warp_sums[i][warp] = sum;
      of_warp += sum;
    }
    pick_ ^= 1;  // others may still read what the pick before told
    if (threadIdx.x == 0) shared.picked[pick_] = -1;
    cluster_.share({of_warp});
    const uint64_t of_block =
        lane < static_cast<int>(cluster_.size()) ? cluster_.sum_of_block(0, lane) : 0;
    const uint64_t running = warp_running_sum(of_block);
    const uint64_t target = goal(__shfl_sync(kAllLanes, running, 31));
    const uint32_t beyond = __ballot_sync(kAllLanes, running > target);
    const int holder = beyond != 0 ? __ffs(static_cast<int>(beyond)) - 1 : 0;
    const uint64_t before = __shfl_sync(kAllLanes, running - of_block, holder);
    if (beyond != 0 && holder == static_cast<int>(cluster_.rank()))
      pick_in_block(quantity, target - before);
    cluster_.barrier();
    return shared.picked[pick_];
  }

  // Tells all blocks. Every warp finds the group and warp, which alone goes on.
  template <class Quantity>
  __device__ __forceinline__ void pick_in_block(const Quantity& quantity, uint64_t target) {
    constexpr int kEach = kRowGroups * kSampleWarps / 32;
    ClusterShared& shared = cluster_.shared();
    const int lane = threadIdx.x % 32;
    const uint64_t* const sums = &shared.warp_sums[0][0];
    uint64_t mine = 0;
#pragma unroll
    for (int k = 0; k < kEach; ++k) mine += sums[lane * kEach + k];
    const uint64_t running = warp_running_sum(mine);
    const int owner = __ffs(static_cast<int>(__ballot_sync(kAllLanes, running > target))) - 1;
    uint64_t rest = target - __shfl_sync(kAllLanes, running - mine, owner);
    int place = owner * kEach;
    for (; sums[place] <= rest; ++place) rest -= sums[place];
    if (place % kSampleWarps != static_cast<int>(threadIdx.x / 32)) return;
    pick_in_warp(quantity, place / kSampleWarps, rest);
  }

  template <class Quantity>
  __device__ __forceinline__ void pick_in_warp(const Quantity& quantity, int group,
                                               uint64_t target) {
    uint64_t mine[4] = {};
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (i == group) mine[c] = quantity(i, c);
    const uint64_t sum = mine[0] + mine[1] + mine[2] + mine[3];
    const uint64_t running = warp_running_sum(sum);
    if (running <= target || running - sum > target) return;
    uint64_t rest = target - (running - sum);
    int id = row_.id(0) + group * (kSampleThreads * 4);
#pragma unroll
    for (int c = 0; c < 3; ++c) {
      if (mine[c] > rest) break;
      rest -= mine[c];
      ++id;
    }
    for (uint32_t rank = 0; rank < cluster_.size(); ++rank)
      *in_block(&cluster_.shared().picked[pick_], rank) = id;
  }

  const SampleParams& p_;
  const SampleRow& row_;
  Cluster& cluster_;
  DrawValues& values_;
  const float largest_, factor_;
  int pick_ = 0;
  uint64_t shares_[kRowGroups][4];
};

}  // namespace fathom::cuda
