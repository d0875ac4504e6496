#pragma once
// What a block of mla_decode's kernel (decode/region.cuh) brings together before anything is multiplied: its weights,
// barriers, rows of the cache with the new one, and the normalised query. Internal to cuda/decode/.

#include "cuda/cache/append_row.cuh"
#include "cuda/cache/rope_row.cuh"
#include "cuda/decode/region_shared.cuh"
#include "cuda/elementwise/norm_row.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/prefetch.cuh"

namespace fathom::cuda::decode {

template <bool kHasQueryProduct, int kHeads>
struct RegionInputs {
  static constexpr int kBlocks = kHeads * kHeadBlocks;     // of the cluster
  static constexpr int kRoundRows = kBlocks * kSplitRows;  // of the cache at once
  static_assert(kBlocks % kChunkSplits == 0 && kBlocks <= kWarps && kTiles * kHeads <= kWarps);

  const DecodeParams& p;
  Shared<kHeads>& s;
  int rank, token, first_head;
  int mine, quarter;  // of the cluster's heads, and of that one's blocks
  int kv_len = 0, num_rounds = 0;
  int warp, lane;
  Line q_weights[kPasses][kHasQueryProduct ? kMyQueryTiles : 1], uk[kPasses], uv[kPasses];

  __device__ __forceinline__ RegionInputs(const DecodeParams& params, Shared<kHeads>& shared)
      : p(params),
        s(shared),
        rank(static_cast<int>(blockIdx.x) % kBlocks),
        token(blockIdx.y),
        first_head(static_cast<int>(blockIdx.x) / kBlocks * kHeads),
        mine(rank / kHeadBlocks),
        quarter(rank % kHeadBlocks),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32) {}

  // The one token, which the first four lanes have.
  __device__ __forceinline__ const char* first_lanes(const uint32_t* token, int offset) const {
    return lane < 4 ? reinterpret_cast<const char*>(token) + offset : nullptr;
  }
  __device__ __forceinline__ int head() const { return first_head + mine; }
  __device__ __forceinline__ int query_row() const {
    return head() * kQuery + quarter * kMyQueryRows;
  }
  // Scales' block of this block's first (side 0) and last row of q_b; there are no more.
  __device__ __forceinline__ int query_block(int side) const {
    return (query_row() + side * (kMyQueryRows - 1)) / kScaleBlock;
  }
  __device__ __forceinline__ uint32_t block_of_head(int i) const { return mine * kHeadBlocks + i; }

  __device__ __forceinline__ void load_weights() {
    if constexpr (kHasQueryProduct) {
      constexpr int kRows = kMyQueryRows / kPasses;
      if (warp < kQueryLines) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
          for (int tile = 0; tile < kMyQueryTiles; ++tile)
            q_weights[pass][tile].load(
                p.q_weight + int64_t{query_row() + pass * kRows + tile * 8 + lane / 4} * kQueryIn +
                warp * 128);
      }
      // Not through registers: late blocks would wait for memory before they may look for their turn.
      if (warp < kPasses && lane < 2 * kQueryLines) {
        const int side = lane / kQueryLines, line = lane % kQueryLines;
        copy_async_4(shared_address(&s.q_scales[warp][side][line]),
                     p.q_scale + query_block(side) * kQueryLines + line);
      }
      commit_copies();
    }
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      uk[pass].load(p.w_uk + head() * p.w_uk_head +
                    (quarter * kMyUkRows + uk_row(pass) + lane / 4) * (kHead * 2) +
                    warp % kUkLines * 128);
    if constexpr (!kHasQueryProduct) load_uv();
  }
  __device__ __forceinline__ void load_uv() {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass)
      uv[pass].load(p.w_uv + head() * p.w_uv_head +
                    (quarter * kMyUvRows + uv_row(pass) + lane / 4) * (kLatent * 2) +
                    warp % kUvLines * 128);
  }
  // The first of a warp's eight rows in a pass.
  __device__ __forceinline__ int uk_row(int pass) const {
    return pass * (kMyUkRows / kPasses) + warp / kUkLines * 8;
  }
  __device__ __forceinline__ int uv_row(int pass) const {
    return pass * (kMyUvRows / kPasses) + warp / kUvLines * 8;
  }

  __device__ __forceinline__ void init_barriers() {
    if (threadIdx.x == 0) {
      for (uint64_t& tile : s.tiles) barrier_init(shared_address(&tile), 1);
      barrier_init(shared_address(&s.q_came), 1);
      barrier_init(shared_address(&s.query_came), 1);
      barrier_init(shared_address(&s.values_came), 1);
      barrier_init(shared_address(&s.latent_came), 1);
      barrier_init(shared_address(&s.out_came), 1);
      barriers_are_ready();
      barrier_expect(shared_address(&s.q_came), (kQuery + (kHeads - 1) * kRope) * 2);
      barrier_expect(shared_address(&s.query_came), kHeads * kLatent * 2);
      barrier_expect(shared_address(&s.latent_came), kLatent * 2);
      barrier_expect(shared_address(&s.out_came), kHead * 2);
    }
  }
  static __device__ __forceinline__ void wait(const uint64_t& barrier, uint32_t phase = 0) {
    barrier_wait(shared_address(&barrier), phase);
  }

  // Rows of a round that this block has.
  __device__ __forceinline__ int rows_of(int round) const {
    const int left = kv_len - round * kRoundRows - rank * kSplitRows;
    return max(0, min(left, kSplitRows));
  }
  __device__ __forceinline__ bool has_new_row(int round) const {
    const int row = kv_len - 1;
    return round == row / kRoundRows && rank == row % kRoundRows / kSplitRows;
  }

  // Starts the copies of rows [first, first + count) of a tile; one thread each. The warp that has the first ones
  // clears what lies behind the end.
  __device__ __forceinline__ void load_rows(int round, int tile, int first, int count) {
    const int rows = min(rows_of(round) - tile * kTileRows, kTileRows);
    if (rows <= 0) return;
    const int first_row = round * kRoundRows + rank * kSplitRows + tile * kTileRows;
    const int new_row = kv_len - 1 - first_row;  // comes from append()
    const uint32_t barrier = shared_address(&s.tiles[tile]);
    if (first == 0 && lane == 0)
      barrier_expect(barrier, (rows - (new_row < kTileRows ? 1 : 0)) * kRowBytes);
    __syncwarp();
    const int i = first + lane, row = first_row + i;
    if (lane < count && i < rows && i != new_row) {
      copy_row(shared_address(s.rows + (tile * kTileRows + i) * kRowStride),
               cache_row(p, token, row), kRowBytes, barrier);
    }
    __syncwarp();
    if (first > 0) return;
#pragma unroll 1
    for (int row_left = rows; row_left < kTileRows; ++row_left)
#pragma unroll 1
      for (int v = lane; v < kRowBytes / 16; v += 32)
        *reinterpret_cast<uint4*>(s.rows + (tile * kTileRows + row_left) * kRowStride +
                                  v * 16) = {};
  }

  // Rows of later rounds come to the L2 cache meanwhile, each by one cluster.
  __device__ __forceinline__ void prefetch_rows() {
    const int clusters = static_cast<int>(gridDim.x) / kBlocks;
    const int cluster = static_cast<int>(blockIdx.x) / kBlocks;
#pragma unroll 1
    for (int round = 1; round < num_rounds; ++round) {
      const int row = round * kRoundRows + rank * kSplitRows + static_cast<int>(threadIdx.x) -
                      (kThreads - kSplitRows);
      if (row < kv_len - 1 && row % clusters == cluster)
        prefetch_row(cache_row(p, token, row), kRowBytes);
    }
    __syncwarp();
  }

  // Warps 12 to 15 of the block that has the new row; those of the first head write it to the cache.
  __device__ __forceinline__ void append() {
    const int thread = static_cast<int>(threadIdx.x) - (kThreads - kAppendThreads);
    const AppendParams& a = p.append;
    const int64_t kv_row = a.kv_rows[token * a.kv_rows_stride];
    const Bf16* const kv_a = a.kv_a + token * a.kv_a_stride;
    Bf16 v[4];
    float weight[4], squares = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = kv_a[j * kAppendThreads + thread];
      weight[j] = weight_at(a, j * kAppendThreads + thread);
    }
    char* const local =
        num_rounds > 1 ? s.new_row : s.rows + (kv_len - 1) % kSplitRows * kRowStride;
    char* const global = kv_row >= 0 && first_head == 0 ? a.cache.row(kv_row) : nullptr;
    const auto store = [&](int i, Bf16 value) {
      reinterpret_cast<Bf16*>(local)[i] = value;
      if (global != nullptr) reinterpret_cast<Bf16*>(global)[i] = value;
    };
    if (thread < kRope)
      store(kLatent + thread,
            from_float<Bf16>(rotated(kv_a + kLatent, a.table + token * kRope, kRope, thread)));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float value = cuda::to_float(v[j]);
      squares = __fmaf_rn(value, value, squares);
    }
    squares = warp_sum(squares);
    if (lane == 0) s.append[thread / 32] = squares;
    named_barrier_sync(2, kAppendThreads);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kAppendThreads / 32; ++i) sum += s.append[i];
    const float factor = __frcp_rn(__fsqrt_rn(sum / static_cast<float>(kLatent) + a.eps));
#pragma unroll
    for (int j = 0; j < 4; ++j)
      store(j * kAppendThreads + thread,
            from_float<Bf16>(__fmul_rn(__fmul_rn(cuda::to_float(v[j]), factor), weight[j])));
  }

  // Warps 0 to 5: the compressed query, normalised and quantised.
  __device__ __forceinline__ void normalise(const Words<float>& weight) {
    const int begin = static_cast<int>(threadIdx.x) * kVector;
    const Vector v = load_vector(p.q_a + token * p.q_a_stride, begin, begin + kVector, true);
    float sum = warp_sum(sum_of_squares(v));
    if (lane == 0) s.norm[warp] = sum;
    named_barrier_sync(1, kNormWarps * 32);
    sum = warp_sum(lane < kNormWarps ? s.norm[lane] : 0.0f);
    quantize_vector(normalised(v, norm_weight(p, weight), sum, p), reinterpret_cast<F8E4M3*>(s.x),
                    begin, begin + kVector, true, s.x_scale);
    const uint2 words = *reinterpret_cast<const uint2*>(s.x + begin / 4);
    *reinterpret_cast<uint4*>(s.x_halves + begin / 2) = {low_halves(words.x), high_halves(words.x),
                                                         low_halves(words.y), high_halves(words.y)};
  }
};

}  // namespace fathom::cuda::decode
