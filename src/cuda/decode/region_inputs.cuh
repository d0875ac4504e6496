#pragma once
// What a block of mla_decode's kernel (decode/region.cuh) brings together before anything is multiplied: its weights,
// barriers, rows of the cache with the new ones, and the normalised queries. Internal to cuda/decode/.

#include "cuda/cache/append_row.cuh"
#include "cuda/cache/rope_row.cuh"
#include "cuda/decode/region_shared.cuh"
#include "cuda/elementwise/norm_row.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/prefetch.cuh"

namespace fathom::cuda::decode {

template <bool kHasQueryProduct, int kHeads, int kTokens>
struct RegionInputs {
  static constexpr int kBlocks = kHeads * kHeadBlocks;  // of the cluster
  static constexpr int kColumns =
      kHeads * kTokens;  // of scores: heads of the first token, of the second, ...
  static constexpr int kRoundRows = kBlocks * kSplitRows;  // of the cache at once
  static_assert(kBlocks % kChunkSplits == 0 && kBlocks <= kWarps && kTiles * kHeads <= kWarps);

  const DecodeParams& p;
  Shared<kHeads, kTokens>& s;
  int rank, first_head;
  int mine, quarter;  // of the cluster's heads, and of that one's blocks
  int kv_len = 0, num_rounds = 0;
  int warp, lane;
  // Of q_b two lines of eight rows for each tile; W_UK's and W_UV's two passes are one tile.
  Line q_weights[kHasQueryProduct ? kMyQueryTiles : 1][2], uk[kPasses], uv[kPasses];

  __device__ __forceinline__ RegionInputs(const DecodeParams& params,
                                          Shared<kHeads, kTokens>& shared)
      : p(params),
        s(shared),
        rank(static_cast<int>(blockIdx.x) % kBlocks),
        first_head(static_cast<int>(blockIdx.x) / kBlocks * kHeads),
        mine(rank / kHeadBlocks),
        quarter(rank % kHeadBlocks),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32) {}

  // Four lanes have a token; the last ones have none. words: of the first token, `stride` words for each.
  __device__ __forceinline__ bool has_token() const { return lane < 4 * kTokens; }
  __device__ __forceinline__ const char* my_token(const uint32_t* words, int stride,
                                                  int offset) const {
    if (!has_token()) return nullptr;
    return reinterpret_cast<const char*>(words + lane / 4 * stride) + offset;
  }
  // Outputs of a tile for each token, as a lane has them of two: rows `low` and `low` + `step` of `to`.
  template <int kRows>
  __device__ __forceinline__ void put_tile(const float (&d)[4], float (&to)[kTokens][kRows],
                                           int low, int step) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int token = lane % 4 * 2 + i;
      if (token >= kTokens) continue;
      to[token][low] = d[i];
      to[token][low + step] = d[2 + i];
    }
    __syncwarp();
  }
  // Rows of the sequence that the token sees.
  __device__ __forceinline__ int visible_rows(int token) const {
    return kv_len - kTokens + 1 + token;
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
      if (warp < kQueryLines) {
#pragma unroll
        for (int tile = 0; tile < kMyQueryTiles; ++tile)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            q_weights[tile][i].load(p.q_weight +
                                    int64_t{query_row() + tile * 16 + i * 8 + lane / 4} * kQueryIn +
                                    warp * 128);
      }
      // Not through registers: late blocks would wait for memory before they may look for their turn.
      if (warp < kPasses * kTokens && lane < 2 * kQueryLines) {
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
      barrier_expect(shared_address(&s.q_came), kTokens * (kQuery + (kHeads - 1) * kRope) * 2);
      barrier_expect(shared_address(&s.query_came), kColumns * kLatent * 2);
      barrier_expect(shared_address(&s.latent_came), kTokens * kLatent * 2);
      barrier_expect(shared_address(&s.out_came), kTokens * kHead * 2);
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
  // Of several tokens there is one round (takes_mla_decode).
  __device__ __forceinline__ bool has_new_row(int round, int token = kTokens - 1) const {
    const int row = visible_rows(token) - 1;
    return round == row / kRoundRows && rank == row % kRoundRows / kSplitRows;
  }

  // Starts the copies of rows [first, first + count) of a tile; one thread each. The warp that has the first ones
  // clears what lies behind the end.
  __device__ __forceinline__ void load_rows(int round, int tile, int first, int count) {
    const int rows = min(rows_of(round) - tile * kTileRows, kTileRows);
    if (rows <= 0) return;
    const int first_row = round * kRoundRows + rank * kSplitRows + tile * kTileRows;
    const int old_rows =
        max(0, min(rows, kv_len - kTokens - first_row));  // the others come from append()
    const uint32_t barrier = shared_address(&s.tiles[tile]);
    if (first == 0 && lane == 0) barrier_expect(barrier, old_rows * kRowBytes);
    __syncwarp();
    const int i = first + lane, row = first_row + i;
    if (lane < count && i < old_rows) {
      copy_row(shared_address(s.rows + (tile * kTileRows + i) * kRowStride), cache_row(p, row),
               kRowBytes, barrier);
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
      if (row < kv_len - 1 && row % clusters == cluster) prefetch_row(cache_row(p, row), kRowBytes);
    }
    __syncwarp();
  }

  // New rows are made by warps 12 to 15 of the block that has their place; those of the first heads write them to the
  // cache. They are loaded before queries come and made behind the product with W_UK, which all blocks wait for.
  __device__ __forceinline__ bool has_new_rows() const {
    return has_new_row(num_rounds - 1, 0) || has_new_row(num_rounds - 1);
  }
  __device__ __forceinline__ bool appends() const {
    return warp >= kWarps - kAppendThreads / 32 && has_new_rows();
  }
  // Of a thread, as memory has them: nobody waits for them before they are used.
  struct NewRows {
    uint32_t v[kTokens][kAppendHeld], rope[kTokens][2], weight[kAppendHeld];
    float cosine[kTokens], sine[kTokens];
    int64_t kv_row[kTokens];
  };
  __device__ __forceinline__ int append_thread() const {
    return static_cast<int>(threadIdx.x) - (kThreads - kAppendThreads);
  }
  __device__ __forceinline__ void load_new_rows(NewRows& rows) const {
    const int thread = append_thread(), pair = thread / 2;
    const AppendParams& a = p.append;
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      if (!has_new_row(num_rounds - 1, token)) continue;
      const auto* const kv_a = reinterpret_cast<const uint16_t*>(a.kv_a + token * a.kv_a_stride);
      rows.kv_row[token] = a.kv_rows[token * a.kv_rows_stride];
#pragma unroll
      for (int j = 0; j < kAppendHeld; ++j) rows.v[token][j] = kv_a[j * kAppendThreads + thread];
      if (thread >= kRope) continue;
      rows.rope[token][0] = kv_a[kLatent + 2 * pair];
      rows.rope[token][1] = kv_a[kLatent + 2 * pair + 1];
      rows.cosine[token] = a.table[token * kRope + pair];
      rows.sine[token] = a.table[token * kRope + kRope / 2 + pair];
    }
#pragma unroll
    for (int j = 0; j < kAppendHeld; ++j) {
      const int64_t at = (j * kAppendThreads + thread) * a.weight_stride;
      if (a.weight_is_f32) {
        rows.weight[j] = static_cast<const uint32_t*>(a.weight)[at];
      } else {
        rows.weight[j] = static_cast<const uint16_t*>(a.weight)[at];
      }
    }
  }
  static __device__ __forceinline__ float from_bf16(uint32_t bits) {
    return __uint_as_float(bits << 16);
  }
  __device__ __forceinline__ void append(const NewRows& rows) {
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      if (!has_new_row(num_rounds - 1, token)) continue;
      float squares = 0.0f;
#pragma unroll
      for (int j = 0; j < kAppendHeld; ++j) {
        const float value = from_bf16(rows.v[token][j]);
        squares = __fmaf_rn(value, value, squares);
      }
      squares = warp_sum(squares);
      if (lane == 0) s.append[token][append_thread() / 32] = squares;
    }
    named_barrier_sync(2, kAppendThreads);
#pragma unroll
    for (int token = 0; token < kTokens; ++token)
      if (has_new_row(num_rounds - 1, token)) store_row(token, rows);
  }
  __device__ __forceinline__ void store_row(int token, const NewRows& rows) {
    const int thread = append_thread();
    char* const local = kTokens == 1 && num_rounds > 1
                            ? s.new_row
                            : s.rows + (visible_rows(token) - 1) % kSplitRows * kRowStride;
    const int64_t kv_row = rows.kv_row[token];
    char* const global = kv_row >= 0 && first_head == 0 ? p.append.cache.row(kv_row) : nullptr;
    const auto store = [&](int i, float value) {
      const Bf16 rounded = from_float<Bf16>(value);
      reinterpret_cast<Bf16*>(local)[i] = rounded;
      if (global != nullptr) reinterpret_cast<Bf16*>(global)[i] = rounded;
    };
    if (thread < kRope)
      store(kLatent + thread,
            rotated(from_bf16(rows.rope[token][0]), from_bf16(rows.rope[token][1]),
                    rows.cosine[token], rows.sine[token], thread % 2 == 0));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kAppendThreads / 32; ++i) sum += s.append[token][i];
    const float factor = __frcp_rn(__fsqrt_rn(sum / static_cast<float>(kLatent) + p.append.eps));
#pragma unroll
    for (int j = 0; j < kAppendHeld; ++j) {
      const float weight =
          p.append.weight_is_f32 ? __uint_as_float(rows.weight[j]) : from_bf16(rows.weight[j]);
      store(j * kAppendThreads + thread,
            __fmul_rn(__fmul_rn(from_bf16(rows.v[token][j]), factor), weight));
    }
  }

  // Compressed queries, normalised and quantised: of up to two tokens by six warps each, of more by three, whose lanes
  // have two vectors.
  static constexpr int kVectors = kTokens <= 2 ? 1 : 2, kTokenWarps = kNormWarps / kVectors;
  static_assert(kTokens * kTokenWarps <= kWarps - kTiles);
  __device__ __forceinline__ bool normalises() const { return warp < kTokens * kTokenWarps; }
  __device__ __forceinline__ int channel(int vector) const {
    return (vector * kTokenWarps * 32 + static_cast<int>(threadIdx.x) % (kTokenWarps * 32)) *
           kVector;
  }
  struct NormWeight {
    Words<float> of[kVectors];
  };
  __device__ __forceinline__ void load_norm(NormWeight& weight) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) weight.of[i] = load_norm_weight(p, channel(i));
  }
  __device__ __forceinline__ void normalise(const NormWeight& weight) {
    const int token = warp / kTokenWarps;
    Vector v[kVectors];
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      v[i] = load_vector(p.q_a + token * p.q_a_stride, channel(i), channel(i) + kVector, true);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const float sum = warp_sum(sum_of_squares(v[i]));
      if (lane == 0) s.norm[token][i * kTokenWarps + warp % kTokenWarps] = sum;
    }
    named_barrier_sync(token == 0 ? 1 : 3 + token, kTokenWarps * 32);
    const float sum = warp_sum(lane < kNormWarps ? s.norm[token][lane] : 0.0f);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int begin = channel(i);
      quantize_vector(normalised(v[i], norm_weight(p, weight.of[i]), sum, p),
                      reinterpret_cast<F8E4M3*>(s.in.x[token]), begin, begin + kVector, true,
                      s.x_scale[token]);
      const uint2 words = *reinterpret_cast<const uint2*>(s.in.x[token] + begin / 4);
      *reinterpret_cast<uint4*>(s.in.x_halves[token] + begin / 2) = {
          low_halves(words.x), high_halves(words.x), low_halves(words.y), high_halves(words.y)};
    }
  }
};

}  // namespace fathom::cuda::decode
