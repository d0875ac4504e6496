#pragma once
// The product of a block of 64 cached keys and the heads of a query token by a warpgroup, and the scores that become of
// it: what the kernels of index_scores share, so that they give the same bits.
//
//   keys.load(p, block);  keys.operands(a);
//   begin_score(sums, a, queries + i * kQueryWords);  mma_wait<0>(sums);
//   score = sum_of_lane(weighted(sums, weights), {}) * scale;
//
// The order of a row's bytes in a product is free, as long as keys and queries agree: a lane loads 32 bytes of a row
// side by side, and queries are laid out to match (place_of_word).
//
// Internal to cuda/indexer/.

#include "cuda/indexer/scores.cuh"
#include "cuda/mma/panels.cuh"
#include "cuda/mma/warpgroup_rows.cuh"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

inline constexpr int kWarpgroups = 4, kScoreThreads = kWarpgroups * 128;
inline constexpr int kKeyRows = 64, kKeyDim = 128, kHeads = 64;
inline constexpr int kQueryBytes = kHeads * kKeyDim, kQueryWords = kQueryBytes / 16;
inline constexpr int kQueryVectors = kQueryBytes / 16;  // of 16 bytes, eight of a head
// A token's weights as the lanes read them: 16 for each of four, and four that keep the banks apart.
inline constexpr int kLaneWeights = kHeads / 4 + 4, kTokenWeights = 4 * kLaneWeights;

// A tile: queries of its tokens, swizzled panels on 1024 bytes, then their weights.
struct TileShared {
  static constexpr int bytes(int tokens) {
    return tokens * (kQueryBytes + kTokenWeights * int{sizeof(float)}) + 1024;
  }
  char* queries;
  float* weights;

  __device__ __forceinline__ TileShared(char* shared, int tokens)
      : queries(shared + (1024 - shared_address(shared) % 1024) % 1024),
        weights(reinterpret_cast<float*>(queries + tokens * kQueryBytes)) {}
};

// Word `word` of a row of 32: lane t of four has the words [8 t, 8 t + 8) of a key, of which step s of the product
// takes 8 t + 2 s as its columns [4 t, 4 t + 4) and 8 t + 2 s + 1 as [16 + 4 t, 16 + 4 t + 4).
__device__ __forceinline__ int place_of_word(int word) { return word % 8 * 4 + word / 8; }

// 16 bytes of a token's queries to where the products find them.
__device__ __forceinline__ void put_query(char* queries, int head, int vector, const uint4& v) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int place = place_of_word(vector * 4 + j);
    *reinterpret_cast<uint32_t*>(queries + panel_offset(head, place / 4) + place % 4 * 4) =
        words[j];
  }
}
__device__ __forceinline__ void put_weight(float* weights, int head, float weight) {
  weights[head % 8 / 2 * kLaneWeights + head / 8 * 2 + head % 2] = weight;
}

// Heads that are not there are zeros.
__device__ __forceinline__ uint4 query_vector(const IndexScoresParams& p, int token, int head,
                                              int vector) {
  if (head >= p.heads) return {};
  return *reinterpret_cast<const uint4*>(p.q + (int64_t{token} * p.heads + head) * kKeyDim +
                                         vector * 16);
}
__device__ __forceinline__ float head_weight(const IndexScoresParams& p, int token, int head) {
  return head < p.heads ? p.weights[int64_t{token} * p.heads + head] : 0.0f;
}

// A warpgroup's block of keys: this lane's 32 bytes of two rows, and their scales.
struct Keys {
  uint4 row[2][2];
  float scale[2];

  __device__ __forceinline__ void load(const IndexScoresParams& p, int32_t block) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row_idx = int64_t{block} * kKeyRows + warp * 16 + lane / 4 + half * 8;
      const auto* const from =
          reinterpret_cast<const uint4*>(p.keys + row_idx * kKeyDim + lane % 4 * 32);
      row[half][0] = from[0];
      row[half][1] = from[1];
      scale[half] = p.scales[row_idx];
    }
  }

  __device__ __forceinline__ void operands(uint32_t (&a)[4][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      a[2 * i][0] = row[0][i].x, a[2 * i][1] = row[1][i].x;
      a[2 * i][2] = row[0][i].y, a[2 * i][3] = row[1][i].y;
      a[2 * i + 1][0] = row[0][i].z, a[2 * i + 1][1] = row[1][i].z;
      a[2 * i + 1][2] = row[0][i].w, a[2 * i + 1][3] = row[1][i].w;
    }
  }
};

// b: the word of the descriptor of a token's queries, kQueryWords after the token before.
__device__ __forceinline__ void begin_score(float (&sums)[32], const uint32_t (&a)[4][4],
                                            uint32_t b) {
  mma_begin(sums);
#pragma unroll
  for (int k = 0; k < 4; ++k) mma_rows_f8(sums, a[k], descriptor(b + k * kStepOfK), k != 0);
  mma_commit();
}

// ReLU as x + |x|, twice the wanted value, which keeps NaN.
__device__ __forceinline__ float add_weighted(float sum, float product, float weight) {
  return __fmaf_rn(product + fabsf(product), weight, sum);
}

// A thread's part of the sums of two rows, over its 16 heads.
struct RowSums {
  float upper = 0.0f, lower = 0.0f;
};

__device__ __forceinline__ RowSums weighted(const float (&sums)[32], const float* weights) {
  const float4* const mine = reinterpret_cast<const float4*>(weights) +
                             static_cast<int>(threadIdx.x) % 4 * (kLaneWeights / 4);
  RowSums of_rows;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float4 w = mine[j];
    const float of_columns[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = 8 * j + i / 2 * 4 + i % 2;
      of_rows.upper = add_weighted(of_rows.upper, sums[at], of_columns[i]);
      of_rows.lower = add_weighted(of_rows.lower, sums[at + 2], of_columns[i]);
    }
  }
  return of_rows;
}

// Of four lanes that have parts of two tokens' sums of two rows each, lane t gets the whole of token t / 2, row t % 2.
__device__ __forceinline__ float sum_of_lane(const RowSums& first, const RowSums& second) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  const bool is_lower = t % 2 != 0, is_second = t / 2 != 0;
  const auto of_row = [is_lower](const RowSums& sums) {
    return (is_lower ? sums.lower : sums.upper) +
           __shfl_xor_sync(0xffffffffu, is_lower ? sums.upper : sums.lower, 1);
  };
  const float of_first = of_row(first), of_second = of_row(second);
  return (is_second ? of_second : of_first) +
         __shfl_xor_sync(0xffffffffu, is_second ? of_first : of_second, 2);
}

}  // namespace fathom::cuda
