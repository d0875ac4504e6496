#pragma once
// The kernel of mla_decode (ops/mla_decode.h): a token's attention from the compressed query to the outputs of its
// heads. Bound by latency: some eight small steps that need each other, of which only weights can be read ahead.
//
// A cluster has two or four heads, four blocks for each. A block keeps its rows of the head's q_b, W_UK and W_UV in
// registers, most of them loaded while the kernel before still runs, and 128 rows of the cache at a time in shared
// memory, of which it computes the scores and weighted values of all heads. What a step makes goes to the blocks that
// need it by asynchronous stores that arrive at a barrier:
//
//   norm, quantise     every block by itself, six warps; four others start copies of cache rows and make the new one
//   q                  48 rows of the head a block          -> the head's; what is rotated to all of the cluster
//   q_latent           128 rows of the head a block         -> all
//   attention          128 rows of the cache a block        -> a head's columns [128 j, 128 (j + 1)) to its block j
//   merged             128 columns a block                  -> the head's
//   out                32 values of the head a block        -> quantised by its first block
//
// A cluster of 16 has room for 2,048 rows at once, one of eight for 1,024.
//
// Every sum has the order of the operators that it stands for: lines of 128 bytes of a weight and the warps that divide
// them (linear/product.cuh), 32 rows of the cache at a time, splits of 128 by pairs (attention/mla_absorbed.cu). There
// weights and keys are the other operand of the matrix instruction, which changes no bit.
//
// Grid: 4 * heads x tokens. Shared memory: 185 KB, mostly rows of the cache; one block on a multiprocessor.

#include "cuda/attention/softmax.cuh"
#include "cuda/decode/region_inputs.cuh"
#include "cuda/ptx/pdl.cuh"

namespace fathom::cuda::decode {

template <bool kHasQueryProduct, int kHeads>
struct Region : RegionInputs<kHasQueryProduct, kHeads> {
  using Inputs = RegionInputs<kHasQueryProduct, kHeads>;
  using Inputs::append;
  using Inputs::block_of_head;
  using Inputs::first_head;
  using Inputs::first_lanes;
  using Inputs::has_new_row;
  using Inputs::head;
  using Inputs::init_barriers;
  using Inputs::Inputs;
  using Inputs::kBlocks;
  using Inputs::kRoundRows;
  using Inputs::kv_len;
  using Inputs::lane;
  using Inputs::load_rows;
  using Inputs::load_uv;
  using Inputs::load_weights;
  using Inputs::mine;
  using Inputs::normalise;
  using Inputs::num_rounds;
  using Inputs::p;
  using Inputs::prefetch_rows;
  using Inputs::q_weights;
  using Inputs::quarter;
  using Inputs::query_block;
  using Inputs::query_row;
  using Inputs::rank;
  using Inputs::rows_of;
  using Inputs::s;
  using Inputs::token;
  using Inputs::uk;
  using Inputs::uk_row;
  using Inputs::uv;
  using Inputs::uv_row;
  using Inputs::wait;
  using Inputs::warp;

  // Rows of the head's q.
  __device__ __forceinline__ void project_query() {
    constexpr int kRows = kMyQueryRows / kPasses;
    if (warp < kQueryLines) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        float2 out[kMyQueryTiles];
        multiply_f8(q_weights[pass], first_lanes(s.x_halves, warp * 256), out);
        if (lane < 4) {
#pragma unroll
          for (int tile = 0; tile < kMyQueryTiles; ++tile)
            *reinterpret_cast<float2*>(&s.q_parts[warp][pass * kRows + tile * 8 + lane * 2]) =
                out[tile];
        }
      }
    }
    load_uv();
    if (warp >= kQueryLines) return;
    named_barrier_sync(3, kQueryLines * 32);
    if (warp >= kPasses) return;
    const int row = warp * kRows + min(lane, kRows - 1);
    const int side = (query_row() + row) / kScaleBlock - query_block(0);
    wait_copies<0>();
    __syncwarp();
    LineSum sum;
#pragma unroll
    for (int line = 0; line < kQueryLines; ++line)
      sum.add(line, s.q_parts[line][row], __fmul_rn(s.x_scale[line], s.q_scales[warp][side][line]));
    const float other = __shfl_xor_sync(0xffffffffu, sum.total, 1);
    if (lane < kRows) send_query(row, sum.total, other);
    __syncwarp();
  }
  // The two lanes that have a word send it to half of the blocks each.
  __device__ __forceinline__ void send_query(int row, float my, float other) const {
    const int odd = lane % 2, word = (quarter * kMyQueryRows + row) / 2;
    const uint32_t both = odd != 0 ? floats_to_bf16x2(other, my) : floats_to_bf16x2(my, other);
    const uint32_t* const to = &s.q[mine][word];
    if (word >= kHead / 2) {
#pragma unroll
      for (int i = 0; i < kBlocks / 2; ++i) send(to, &s.q_came, i * 2 + odd, both);
    } else {
#pragma unroll
      for (int i = 0; i < kHeadBlocks / 2; ++i)
        send(to, &s.q_came, block_of_head(i * 2 + odd), both);
    }
  }

  __device__ __forceinline__ void absorb(float cosine, float sine) {
    if constexpr (kHasQueryProduct) wait(s.q_came);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float2 out = multiply_bf16(uk[pass], first_lanes(s.q[mine], warp % kUkLines * 128));
      if (lane < 4)
        *reinterpret_cast<float2*>(&s.uk_parts[warp % kUkLines][uk_row(pass) + lane * 2]) = out;
    }
    if (const int h = warp - (kWarps - kHeads); h >= 0)
      s.query[h][kLatent / 2 + lane] = rotate(s.q[h][kHead / 2 + lane], cosine, sine);
    __syncthreads();
    if (warp < kBlocks) {
      const float4 first = *reinterpret_cast<const float4*>(&s.uk_parts[0][lane * 4]);
      const float4 second = *reinterpret_cast<const float4*>(&s.uk_parts[1][lane * 4]);
      const uint32_t low = floats_to_bf16x2(first.x + second.x, first.y + second.y);
      const uint32_t high = floats_to_bf16x2(first.z + second.z, first.w + second.w);
      send(reinterpret_cast<const float2*>(&s.query[mine][quarter * kMyUkRows / 2 + lane * 2]),
           &s.query_came, warp, float2{__uint_as_float(low), __uint_as_float(high)});
    }
    wait(s.query_came);
  }

  // The head of a lane's results, two of them; of the first lanes of each four.
  __device__ __forceinline__ int lane_head(int i) const { return lane % 4 * 2 + i; }

  // A warp's share: 32 rows, a quarter of the inner dimension.
  __device__ __forceinline__ void score(int round, int rows) {
    constexpr int kSteps = kDim / 16 / 4;
    const int part = warp / 4, tile = warp % 4;
    if (tile * kTileRows >= rows) return;
    uint32_t b[kSteps][2];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t* const from =
          s.query[min(lane / 4, kHeads - 1)] + (part * kSteps + step) * 8 + lane % 4;
      b[step][0] = lane < 4 * kHeads ? from[0] : 0;
      b[step][1] = lane < 4 * kHeads ? from[4] : 0;
    }
    wait(s.tiles[tile], round % 2);
    const uint32_t keys = shared_address(s.rows) + (tile * kTileRows + lane % 16) * kRowStride +
                          lane / 16 * 16 + part * kSteps * 32;
    float d[2][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        uint32_t a[4];
        ldmatrix_x4(a, keys + m * 16 * kRowStride + step * 32);
        mma_bf16(d[m], a, b[step]);
      }
    if (lane % 4 < kHeads / 2) {
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float* const to = &s.scores[lane_head(i)][part][tile * kTileRows + m * 16 + lane / 4];
          to[0] = d[m][i];
          to[8] = d[m][2 + i];
        }
    }
    __syncwarp();
  }

  // A warp for each tile of each head.
  __device__ __forceinline__ void soften(int h, int my_tile, int rows) {
    const int row = my_tile * kTileRows + lane;
    float my = ((s.scores[h][0][row] + s.scores[h][1][row]) +
                (s.scores[h][2][row] + s.scores[h][3][row])) *
               p.scale;
    if (row >= rows) my = minus_infinity();
    const float most = warp_max(my);
    if (lane == 0) s.tile_max[h][my_tile] = most;
    named_barrier_sync(4 + h, (rows + kTileRows - 1) / kTileRows * 32);  // the head's warps
    float max = minus_infinity(), before = max;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile > my_tile) break;
      before = max;
      max = fmaxf(max, s.tile_max[h][tile]);
    }
    const float from = finite_max(max);
    const uint32_t weight = floats_to_bf16x2(exp2_fast(my - from), 0.0f);
    s.weights[h][my_tile * kTileRows + lane] = static_cast<uint16_t>(weight);
    if (lane == 0) {
      s.factors[h][my_tile] = exp2_fast(before - from);
      if (my_tile == (rows - 1) / kTileRows) s.max[h] = max;
    }
    const float rounded = bf16x2_low(weight);
    const float two = rounded + __shfl_xor_sync(0xffffffffu, rounded, 1);
    if (lane % 2 == 0) s.sums[h][my_tile][lane / 2] = two;
  }

  // A warp's 32 columns of the weighted values.
  __device__ __forceinline__ void add_values(int round, int rows) {
    float d[2][4] = {};
    const uint32_t from = shared_address(s.rows) + (lane / 16 * 8 + lane % 8) * kRowStride +
                          warp * 64 + lane / 8 % 2 * 16;
    const auto* const weights =
        reinterpret_cast<const uint32_t*>(s.weights[min(lane / 4, kHeads - 1)]) + lane % 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile * kTileRows >= rows) break;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float factor = s.factors[min(lane_head(i), kHeads - 1)][tile];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          d[m][i] *= factor;
          d[m][2 + i] *= factor;
        }
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const int first = tile * kTileRows + step * 16;
        const uint32_t b[2] = {lane < 4 * kHeads ? weights[first / 2] : 0,
                               lane < 4 * kHeads ? weights[first / 2 + 4] : 0};
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          uint32_t a[4];
          ldmatrix_x4_trans(a, from + first * kRowStride + m * 32);
          mma_bf16(d[m], a, b);
        }
      }
    }
    const int split = round * kBlocks + rank;
    send_values(split, d);
    if (warp < kBlocks) send_stats(split, rows);
  }

  // A warp's columns of all heads, in place of the scores and then by four to the blocks that add them up.
  __device__ __forceinline__ void send_values(int split, const float (&d)[2][4]) {
    constexpr int kColumns = 32, kFours = kColumns / 4;
    float* const staged = &s.scores[0][0][0] + warp * kHeads * kColumns;
    if (lane % 4 < kHeads / 2) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          float* const to = staged + lane_head(i) * kColumns + m * 16 + lane / 4;
          to[0] = d[m][i];
          to[8] = d[m][2 + i];
        }
    }
    __syncwarp();
    const int h = lane / kFours, four = lane % kFours * 4;
    if (h < kHeads) {
      constexpr int kSharing = kMyUkRows / kColumns;  // warps whose columns are one block's
      send(&s.values[split][warp % kSharing * kColumns + four], &s.values_came,
           h * kHeadBlocks + warp / kSharing,
           *reinterpret_cast<const uint4*>(staged + h * kColumns + four));
    }
    __syncwarp();
  }

  // A warp for each block, of whose head they are. Sums of two rows run through the tiles, then they are one tree
  // (attention/absorbed_tile.cuh).
  __device__ __forceinline__ void send_stats(int split, int rows) {
    const int h = warp / kHeadBlocks;
    float sum = 0.0f;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile * kTileRows >= rows) break;
      sum = __fmaf_rn(sum, s.factors[h][tile], s.sums[h][tile][lane % 16]);
    }
#pragma unroll
    for (int lanes = 1; lanes < 16; lanes *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (lane == 0) send(&s.stats[split], &s.values_came, warp, float2{s.max[h], sum});
    __syncwarp();
  }

  __device__ __forceinline__ void attend() {
#pragma unroll 1
    for (int round = 0; round < num_rounds; ++round) {
      const int rows = rows_of(round);
      if (rows == 0) return;
      if (round > 0) {
        __syncthreads();  // the rows before are done with
        constexpr int kSharing = kWarps / kTiles, kEach = kTileRows / kSharing;
        load_rows(round, warp / kSharing, warp % kSharing * kEach, kEach);
        if (has_new_row(round)) {
          if (static_cast<int>(threadIdx.x) < kRowBytes / 16)
            *reinterpret_cast<uint4*>(s.rows + (kv_len - 1) % kSplitRows * kRowStride +
                                      threadIdx.x * 16) =
                *reinterpret_cast<const uint4*>(s.new_row + threadIdx.x * 16);
          __syncthreads();
        }
      }
      score(round, rows);
      __syncthreads();
      if (warp < kTiles * kHeads && warp % kTiles * kTileRows < rows)
        soften(warp / kTiles, warp % kTiles, rows);
      __syncthreads();
      add_values(round, rows);
    }
  }

  // Adds up this block's columns of all splits, a thread each.
  __device__ __forceinline__ void merge() {
    const int column = threadIdx.x;
    if (column >= kMyUkRows) return;
    wait(s.values_came);
    Merged total = Merged::none();
    float value = 0.0f;
#pragma unroll 1
    for (int first = 0; first * kSplitRows < kv_len; first += kChunkSplits) {
      // Lane i has split i's: the factors are the same for all columns.
      const int splits = (kv_len + kSplitRows - 1) / kSplitRows - first, from = lane % kChunkSplits;
      const float2 stats = s.stats[first + from];
      Merged split = from < splits ? Merged{stats.x, stats.y} : Merged::none();
      float values[kChunkSplits];
#pragma unroll
      for (int i = 0; i < kChunkSplits; ++i)
        values[i] = i < splits ? s.values[first + i][column] : 0.0f;
#pragma unroll
      for (int width = 1; width < kChunkSplits; width *= 2) {
        const float next_max = __shfl_down_sync(0xffffffffu, split.max, width);
        const float next_sum = __shfl_down_sync(0xffffffffu, split.sum, width);
        const MergeFactors f = split.add(next_max, next_sum);
#pragma unroll
        for (int i = 0; i < kChunkSplits; i += 2 * width) {
          const float old_factor = __shfl_sync(0xffffffffu, f.old_factor, i);
          const float new_factor = __shfl_sync(0xffffffffu, f.new_factor, i);
          values[i] = __fmaf_rn(values[i], old_factor, __fmul_rn(values[i + width], new_factor));
        }
      }
      const float max = __shfl_sync(0xffffffffu, split.max, 0);
      const float sum = __shfl_sync(0xffffffffu, split.sum, 0);
      value = cuda::merge(value, total.add(max, sum), values[0]);
    }
    const float factor = 1.0f / total.sum;
    value *= factor;
    const float other = __shfl_down_sync(0xffffffffu, value, 1);
    if (column % 2 == 0) {
      const uint32_t both = floats_to_bf16x2(value, other);
#pragma unroll
      for (int i = 0; i < kHeadBlocks; ++i)
        send(&s.out_latent[(quarter * kMyUkRows + column) / 2], &s.latent_came, block_of_head(i),
             both);
    }
    __syncwarp();
  }

  __device__ __forceinline__ void leave_latent() {
    wait(s.latent_came);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const float2 out = multiply_bf16(uv[pass], first_lanes(s.out_latent, warp % kUvLines * 128));
      if (lane < 4)
        *reinterpret_cast<float2*>(&s.uv_parts[warp % kUvLines][uv_row(pass) + lane * 2]) = out;
    }
    __syncthreads();
    if (warp == 0 && lane < kMyUvRows / 2) {
      float2 sum = *reinterpret_cast<const float2*>(&s.uv_parts[0][lane * 2]);
#pragma unroll
      for (int line = 1; line < kUvLines; ++line) {
        const float2 more = *reinterpret_cast<const float2*>(&s.uv_parts[line][lane * 2]);
        sum.x += more.x, sum.y += more.y;
      }
      const uint32_t both = floats_to_bf16x2(sum.x, sum.y);
      if (p.out_f8 != nullptr) {
        send(&s.out[quarter * kMyUvRows / 2 + lane], &s.out_came, block_of_head(0), both);
      } else {
        reinterpret_cast<uint32_t*>(p.out + out_at() + quarter * kMyUvRows)[lane] = both;
      }
    }
    __syncwarp();
    if (quantises()) wait(s.out_came);
  }
  // Of the head among the outputs of all tokens.
  __device__ __forceinline__ int64_t out_at() const {
    return (int64_t{token} * p.heads + head()) * kHead;
  }
  __device__ __forceinline__ bool quantises() const {
    return p.out_f8 != nullptr && quarter == 0 && warp == 0;
  }

  __device__ __forceinline__ void write_nothing() {
    if (p.out_f8 == nullptr) {
      if (threadIdx.x < kMyUvRows) p.out[out_at() + quarter * kMyUvRows + threadIdx.x] = Bf16{0};
    } else if (warp == 0) {
      s.out[lane] = s.out[lane + 32] = 0;
      __syncwarp();
    }
  }

  __device__ __forceinline__ void run() {
    init_barriers();
    load_weights();
    Words<float> q_norm{};
    if constexpr (kHasQueryProduct) {
      if (warp < kNormWarps) q_norm = load_norm_weight(p, static_cast<int>(threadIdx.x) * kVector);
    }
    cluster_arrive();
    __syncthreads();
    wait_for_previous();
    kv_len = p.kv_len[token];
    num_rounds = (kv_len + kRoundRows - 1) / kRoundRows;
    float cosine = 0.0f, sine = 0.0f;
    if (warp >= kWarps - kHeads) {
      cosine = p.append.table[token * kRope + lane];
      sine = p.append.table[token * kRope + kRope / 2 + lane];
    }
    if constexpr (kHasQueryProduct) {
      if (warp < kNormWarps) normalise(q_norm);
    } else {
      const auto* const from = reinterpret_cast<const uint32_t*>(p.q + token * p.q_stride +
                                                                 first_head * int64_t{kQuery});
      if (threadIdx.x < kHeads * kQuery / 2) s.q[0][threadIdx.x] = from[threadIdx.x];
    }
    cluster_wait();
    if (kv_len > 0 && warp >= kWarps - kTiles) {
      if (warp == kWarps - 1 && lane == 0) {
        const int splits = (kv_len + kSplitRows - 1) / kSplitRows;
        barrier_expect(shared_address(&s.values_came), splits * (kMyUkRows * 4 + 8));
      }
      __syncwarp();
      load_rows(0, warp - (kWarps - kTiles), 0, kTileRows);
      if (has_new_row(num_rounds - 1)) append();
      prefetch_rows();
    }
    if (kv_len == 0) {
      write_nothing();
    } else {
      if constexpr (kHasQueryProduct) {
        if (warp < kQueryLines) named_barrier_sync(3, kQueryLines * 32);
        project_query();
      } else {
        __syncthreads();
      }
      let_next_start();
      absorb(cosine, sine);
      attend();
      merge();
      leave_latent();
    }
    if (quantises()) quantise_head(s.out, p, out_at() / kHead);
  }
};

template <bool kHasQueryProduct, int kHeads>
__global__ void __launch_bounds__(kThreads, 1)
    decode_kernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) char shared[];
  Region<kHasQueryProduct, kHeads>(p, *reinterpret_cast<Shared<kHeads>*>(shared)).run();
}

}  // namespace fathom::cuda::decode
