#pragma once
// The kernel of mla_query (ops/mla_query.h): queries of up to eight tokens from their compressed rows to what absorbed
// attention reads, and the tokens' rows of the cache. Bound by latency: five small steps that need each other, of which
// only weights can be read ahead.
//
// A cluster of eight blocks has a head. Each block keeps its 24 rows of q_b and 64 of W_UK in registers, loaded while
// the kernel before still runs:
//
//   norm, quantise     of two tokens at most every block by itself, of more a token a block -> all
//   q                  24 rows a block, a line of 128 channels a warp; what is not rotated goes to all blocks
//   q_rope             whoever has a pair rotates it
//   q_latent           64 rows a block, 8 a warp
//
// One more cluster appends the tokens' rows to the cache, a block each. Without q_b blocks read q from memory, there is
// nothing to exchange, and so no cluster.
//
// The next kernel may start only when rows are normalised, with more than two tokens when q is made: what starts behind
// it delays this one otherwise. Without q_b it may at once, since an indexer's kernels have weights to read. Where all
// inputs are settled this kernel runs beside the one before, and in the end one block waits for it.
//
// Every sum has the order of the operators that it stands for (decode/region.cuh).
//
// Grid: 8 * heads + 8. Shared memory: 25 KB, the tokens in FP8 and sums of lines.

#include "cuda/cache/append_row.cuh"
#include "cuda/cache/rope_row.cuh"
#include "cuda/decode/pieces.cuh"
#include "cuda/elementwise/norm_row.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"

namespace fathom::cuda::decode {

inline constexpr int kQueryWarps = 12, kQueryThreads = kQueryWarps * 32;
inline constexpr int kUkWarps = kUkRows / 8;  // those that multiply W_UK
static_assert(kQueryWarps == kQueryLines && kQueryWarps == 2 * kNormWarps &&
              kQueryThreads >= kAppendThreads);

struct QueryShared {
  // The bytes behind rows keep the banks apart.
  alignas(16) char x[kMostQueryTokens][kQueryIn + 64];   // e4m3
  alignas(16) char q[kMostQueryTokens][kHead * 2 + 64];  // bf16, from all blocks
  alignas(16) uint2 mine[kNormWarps * 32];               // of the token that this block sends
  alignas(16) float parts[kQueryLines][kMostQueryTokens][kQueryRows];
  float x_scale[kMostQueryTokens][kQueryLines], w_scale[2][kQueryLines];
  float my_scale[kQueryLines];
  float norm[2][kNormWarps];
  float append[kAppendThreads / 32];
  uint64_t x_came, q_came;
};

// How queries come.
enum class QueryForm {
  kGiven,
  kFew,   // compressed: two tokens at most
  kMany,  // compressed, each token normalised by one of the blocks
};

// For the end of a kernel that reads and writes only what was settled before the one before it began: the last block
// waits, and the others make room for the next kernel. That one takes a kernel as done when all of its blocks are, so
// it comes behind the one before all the same. tools/check_kernels.py names the kernels that may.
__device__ __forceinline__ void one_block_waits_for_previous() {
  if (blockIdx.x + 1 == gridDim.x) wait_for_previous();
}

__device__ __forceinline__ void wait_for_inputs(const QueryParams& p) {
  if (!p.settled) wait_for_previous();
}

template <QueryForm kForm>
struct Query : HeadThread {
  static constexpr bool kHasQueryProduct = kForm != QueryForm::kGiven;

  const QueryParams& p;
  QueryShared& s;
  Line q_weights[kQueryTiles], uk[kUkLines];
  Words<float> q_norm;

  __device__ __forceinline__ Query(const QueryParams& params, QueryShared& shared)
      : p(params), s(shared) {}

  __device__ __forceinline__ int query_row() const { return head * kQuery + rank * kQueryRows; }
  __device__ __forceinline__ bool has_token() const { return lane / 4 < p.tokens; }

  __device__ __forceinline__ void load_weights() {
    if constexpr (kHasQueryProduct) {
#pragma unroll
      for (int tile = 0; tile < kQueryTiles; ++tile)
        q_weights[tile].load(p.q_weight + int64_t{query_row() + tile * 8 + lane / 4} * kQueryIn +
                             warp * 128);
    }
    if (warp < kUkWarps) {
#pragma unroll
      for (int line = 0; line < kUkLines; ++line)
        uk[line].load(p.w_uk + head * p.w_uk_head +
                      (rank * kUkRows + warp * 8 + lane / 4) * (kHead * 2) + line * 128);
    }
    if constexpr (kHasQueryProduct) {
      q_norm = load_norm_weight(p, (warp % kNormWarps * 32 + lane) * kVector);
      const int i = threadIdx.x;
      if (i < 2 * kQueryLines) {
        const int row = query_row() + (i < kQueryLines ? 0 : kQueryRows - 1);
        copy_async_4(shared_address(&s.w_scale[0][i]),
                     p.q_scale + row / kScaleBlock * kQueryLines + i % kQueryLines);
      }
    }
  }

  __device__ __forceinline__ void init_barriers() {
    if (threadIdx.x == 0) {
      barrier_init(shared_address(&s.x_came), 1);
      barrier_init(shared_address(&s.q_came), 1);
      barriers_are_ready();
      barrier_expect(shared_address(&s.x_came), p.tokens * (kQueryIn + kQueryLines * 4));
      barrier_expect(shared_address(&s.q_came), p.tokens * kHead * 2);
    }
  }

  // Half of the block has a token: which of the two halves, and where its thread's channels begin.
  __device__ __forceinline__ int half() const { return warp / kNormWarps; }
  __device__ __forceinline__ int channel() const {
    return (warp % kNormWarps * 32 + lane) * kVector;
  }
  __device__ __forceinline__ Vector normalise(int token, int threads) {
    const Vector v =
        load_vector(p.q_a + token * p.q_a_stride, channel(), channel() + kVector, true);
    const float mine = warp_sum(sum_of_squares(v));
    if (lane == 0) s.norm[half()][warp % kNormWarps] = mine;
    named_barrier_sync(1, threads);
    const float sum = warp_sum(lane < kNormWarps ? s.norm[half()][lane] : 0.0f);
    return normalised(v, norm_weight(p, q_norm), sum, p);
  }
  __device__ __forceinline__ void normalise_here() {
    const int token = half();
    const Vector v = normalise(min(token, p.tokens - 1), kQueryThreads);
    quantize_vector(v, reinterpret_cast<F8E4M3*>(s.x[token]), channel(), kQueryIn, true,
                    s.x_scale[token]);
  }
  __device__ __forceinline__ void normalise_and_send() {
    const Vector v = normalise(rank, kNormWarps * 32);
    quantize_vector(v, reinterpret_cast<F8E4M3*>(s.mine), channel(), kQueryIn, true, s.my_scale);
    __syncwarp();
    cluster_wait();
    const uint2 mine = s.mine[threadIdx.x];
    const float2 words{__uint_as_float(mine.x), __uint_as_float(mine.y)};
    const auto* const to_row = reinterpret_cast<const float2*>(s.x[rank] + channel());
#pragma unroll
    for (int to = 0; to < kCluster; ++to) send(to_row, &s.x_came, to, words);
    if (lane < 2 * kCluster) {
      const int line = warp * 2 + lane / kCluster;
      send(&s.x_scale[rank][line], &s.x_came, lane % kCluster, __float_as_uint(s.my_scale[line]));
    }
    __syncwarp();
  }

  // A line of all tokens by the warp's rows.
  __device__ __forceinline__ void multiply(float2 (&out)[kQueryTiles]) const {
    float d[kQueryTiles][2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t x[4];
      unpack(x, s.x[lane / 4] + warp * 128 + half * 64 + lane % 4 * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t a[4] = {low_halves(x[i]), 0, high_halves(x[i]), 0};
#pragma unroll
        for (int tile = 0; tile < kQueryTiles; ++tile) {
          uint32_t w[4];
          q_weights[tile].get(half, w);
          mma_f16(d[tile][half], a, {low_halves(w[i]), high_halves(w[i])});
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kQueryTiles; ++tile)
      out[tile] = {__fadd_rn(d[tile][0][0], d[tile][1][0]),
                   __fadd_rn(d[tile][0][1], d[tile][1][1])};
  }

  // A thread for each two rows of a token.
  __device__ __forceinline__ void project() {
    const int token = threadIdx.x / (kQueryRows / 2), mine = threadIdx.x % (kQueryRows / 2);
    const int pair = rank * (kQueryRows / 2) + mine, rope = pair - kHead / 2;
    float cosine = 0.0f, sine = 0.0f;
    if (token < p.tokens && rope >= 0) {
      cosine = p.append.table[token * kRope + rope];
      sine = p.append.table[token * kRope + kRope / 2 + rope];
    }
    float2 out[kQueryTiles];
    multiply(out);
    if (has_token()) {
#pragma unroll
      for (int tile = 0; tile < kQueryTiles; ++tile)
        *reinterpret_cast<float2*>(&s.parts[warp][lane / 4][tile * 8 + lane % 4 * 2]) = out[tile];
    }
    __syncthreads();
    if constexpr (kForm == QueryForm::kFew) cluster_wait();
    if (token >= p.tokens) return;
    const int first = query_row() / kScaleBlock;
    const float* const w_scale = s.w_scale[(query_row() + mine * 2) / kScaleBlock == first ? 0 : 1];
    LineSum sums[2];
#pragma unroll
    for (int line = 0; line < kQueryLines; ++line) {
      const float2 two = *reinterpret_cast<const float2*>(&s.parts[line][token][mine * 2]);
      const float scale = __fmul_rn(s.x_scale[token][line], w_scale[line]);
      sums[0].add(line, two.x, scale);
      sums[1].add(line, two.y, scale);
    }
    const uint32_t both = floats_to_bf16x2(sums[0].total, sums[1].total);
    if (rope < 0) {
#pragma unroll
      for (int to = 0; to < kCluster; ++to) send(s.q[token] + pair * 4, &s.q_came, to, both);
    } else {
      *reinterpret_cast<uint32_t*>(p.q + token * p.q_stride + head * kQuery + pair * 2) =
          rotate(both, cosine, sine);
    }
  }

  // token: of this lane.
  __device__ __forceinline__ void absorb(const char* token) {
    const float2 first = multiply_bf16(uk[0], token), second = multiply_bf16(uk[1], token + 128);
    if (!has_token()) return;
    const int row = rank * kUkRows + warp * 8 + lane % 4 * 2;
    *reinterpret_cast<uint32_t*>(p.q_latent + (int64_t{lane / 4} * p.heads + head) * kLatent +
                                 row) = floats_to_bf16x2(first.x + second.x, first.y + second.y);
  }

  __device__ __forceinline__ void run() {
    if constexpr (kHasQueryProduct) init_barriers();
    load_weights();
    if constexpr (kForm == QueryForm::kGiven) {
      wait_for_inputs(p);
      if (warp < kUkWarps)
        return absorb(reinterpret_cast<const char*>(p.q + min(lane / 4, p.tokens - 1) * p.q_stride +
                                                    head * kQuery));
      return rotate_given();
    }
    cluster_arrive_relaxed();
    wait_for_inputs(p);
    wait_copies<0>();
    if constexpr (kForm == QueryForm::kFew) {
      normalise_here();
      __syncthreads();
    } else {
      rank < p.tokens&& warp < kNormWarps ? normalise_and_send() : cluster_wait();
      barrier_wait(shared_address(&s.x_came), 0);
    }
    if constexpr (kForm == QueryForm::kFew) let_next_start();
    project();
    if constexpr (kForm == QueryForm::kMany) let_next_start();
    if (warp >= kUkWarps) return;
    __syncwarp();
    barrier_wait(shared_address(&s.q_came), 0);
    absorb(s.q[lane / 4]);
  }

  // Pieces of the head, dealt out to its blocks.
  __device__ __forceinline__ void rotate_given() {
    const int i = static_cast<int>(threadIdx.x) - kUkWarps * 32;
    const RopeParams rope{.x = p.q + kHead,
                          .table = p.append.table,
                          .token_stride = p.q_stride,
                          .head_stride = kQuery,
                          .heads = p.heads,
                          .pairs = kRope / 2,
                          .is_paired = true};
    constexpr int kPieces = kRope / 2 / kPiecePairs;
    if (i < p.tokens && rank < kPieces) rotate_piece(rope, i, head * kPieces + rank);
  }
};

template <class Latent>
__device__ __forceinline__ void append_query_row(const QueryParams& p, int token, float* reduced) {
  const HeldRow<Latent, kAppendHeld> row(p.append);
  wait_for_inputs(p);
  row.append(token, reduced);
}

template <QueryForm kForm>
__global__ void __launch_bounds__(kQueryThreads, 2)
    query_kernel(const __grid_constant__ QueryParams p) {
  __shared__ QueryShared shared;
  const int token = static_cast<int>(blockIdx.x) - p.heads * kCluster;
  // Of a settled call the one that waits must not hold up what runs beside it, too.
  if (kForm == QueryForm::kGiven || p.lets_next_first || (p.settled && token >= 0))
    let_next_start();
  if (token < 0) {
    Query<kForm>(p, shared).run();
  } else if (token < p.tokens && threadIdx.x < kAppendThreads) {
    p.cache_is_f8 ? append_query_row<F8E4M3>(p, token, shared.append)
                  : append_query_row<Bf16>(p, token, shared.append);
  }
  // Who comes next takes all before this kernel as done.
  if (p.settled)
    one_block_waits_for_previous();
  else
    wait_for_previous();
}

}  // namespace fathom::cuda::decode
