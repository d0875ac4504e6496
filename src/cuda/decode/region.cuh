#pragma once
// The kernel of mla_decode (ops/mla_decode.h): a token's attention from the compressed query to the outputs of its
// heads. Bound by latency: some eight small steps that need each other, of which only weights can be read ahead.
//
// A cluster of eight blocks has two heads. Each block keeps its rows of q_b, W_UK and W_UV in registers, most of them
// loaded while the kernel before still runs, and 128 rows of the cache at a time in shared memory. What a step makes
// goes to all blocks of the cluster, or to the one that adds it up, by asynchronous stores that arrive at a barrier:
//
//   norm, quantise     every block by itself, six warps; four others start copies of cache rows and make the new one
//   q                  24 rows of each head a block             -> all
//   q_latent           64 rows of each head a block             -> all
//   attention          rows [128 i, 128 (i + 1)) of 1024        -> columns [64 j, 64 (j + 1)) to block j
//   merged             64 columns a block                       -> all
//   out                16 values of each head a block           -> quantised by blocks 0 and 1
//
// Every sum has the order of the operators that it stands for: lines of 128 bytes of a weight and the warps that divide
// them (linear/product.cuh), 32 rows of the cache at a time, splits of 128 by pairs (attention/mla_absorbed.cu). There
// weights and keys are the other operand of the matrix instruction, which changes no bit.
//
// Grid: 8 * heads / 2 x tokens. Shared memory: 177 KB, mostly rows of the cache; one block on a multiprocessor.

#include "cuda/attention/softmax.cuh"
#include "cuda/cache/append_row.cuh"
#include "cuda/cache/rope_row.cuh"
#include "cuda/decode/pieces.cuh"
#include "cuda/elementwise/norm_row.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/prefetch.cuh"

namespace fathom::cuda::decode {

template <bool kHasQueryProduct>
struct Region {
  const DecodeParams& p;
  Shared& s;
  int rank, token, head;  // the first one
  int kv_len = 0, num_chunks = 0;
  int warp, lane;
  Line q_weights[kHeads][kHasQueryProduct ? kQueryTiles : 1], uk[kHeads], uv[kHeads];

  __device__ __forceinline__ Region(const DecodeParams& params, Shared& shared)
      : p(params),
        s(shared),
        rank(static_cast<int>(blockIdx.x) % kCluster),
        token(blockIdx.y),
        head(static_cast<int>(blockIdx.x) / kCluster * kHeads),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32) {}

  // The one token, which the first four lanes have.
  __device__ __forceinline__ const char* first_lanes(const uint32_t* token, int offset) const {
    return lane < 4 ? reinterpret_cast<const char*>(token) + offset : nullptr;
  }
  __device__ __forceinline__ int query_row(int h) const {
    return (head + h) * kQuery + rank * kQueryRows;
  }

  // Scales' block of this block's first (side 0) and last row of q_b; there are no more.
  __device__ __forceinline__ int query_block(int h, int side) const {
    return (query_row(h) + side * (kQueryRows - 1)) / kScaleBlock;
  }

  __device__ __forceinline__ void load_weights() {
    if constexpr (kHasQueryProduct) {
      if (warp < kQueryLines) {
#pragma unroll
        for (int h = 0; h < kHeads; ++h)
#pragma unroll
          for (int tile = 0; tile < kQueryTiles; ++tile)
            q_weights[h][tile].load(
                p.q_weight + int64_t{query_row(h) + tile * 8 + lane / 4} * kQueryIn + warp * 128);
      }
      // Not through registers: late blocks would wait for memory before they may look for their turn.
      if (warp < kHeads && lane < 2 * kQueryLines) {
        const int side = lane / kQueryLines, line = lane % kQueryLines;
        copy_async_4(shared_address(&s.q_scales[warp][side][line]),
                     p.q_scale + query_block(warp, side) * kQueryLines + line);
      }
      commit_copies();
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      uk[h].load(p.w_uk + (head + h) * p.w_uk_head +
                 (rank * kUkRows + warp / kUkLines * 8 + lane / 4) * (kHead * 2) +
                 warp % kUkLines * 128);
    if constexpr (!kHasQueryProduct) load_uv();
  }
  __device__ __forceinline__ void load_uv() {
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
      uv[h].load(p.w_uv + (head + h) * p.w_uv_head +
                 (rank * kUvRows + warp / kUvLines * 8 + lane / 4) * (kLatent * 2) +
                 warp % kUvLines * 128);
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
      barrier_expect(shared_address(&s.q_came), sizeof(s.q));
      barrier_expect(shared_address(&s.query_came), kHeads * kLatent * 2);
      barrier_expect(shared_address(&s.latent_came), kHeads * kLatent * 2);
      barrier_expect(shared_address(&s.out_came), kHead * 2);
    }
  }
  static __device__ __forceinline__ void wait(const uint64_t& barrier, uint32_t phase = 0) {
    barrier_wait(shared_address(&barrier), phase);
  }

  // Rows of a chunk that this block, or one of that rank, has.
  __device__ __forceinline__ int rows_of(int chunk, int of_rank) const {
    const int left = kv_len - chunk * kChunkRows - of_rank * kSplitRows;
    return max(0, min(left, kSplitRows));
  }
  __device__ __forceinline__ bool has_new_row(int chunk) const {
    const int row = kv_len - 1;
    return chunk == row / kChunkRows && rank == row % kChunkRows / kSplitRows;
  }

  // Starts the copies of rows [first, first + count) of a tile; one thread each. The warp that has the first ones
  // clears what lies behind the end.
  __device__ __forceinline__ void load_rows(int chunk, int tile, int first, int count) {
    const int mine = min(rows_of(chunk, rank) - tile * kTileRows, kTileRows);
    if (mine <= 0) return;
    const int first_row = chunk * kChunkRows + rank * kSplitRows + tile * kTileRows;
    const int new_row = kv_len - 1 - first_row;  // comes from append()
    const uint32_t barrier = shared_address(&s.tiles[tile]);
    if (first == 0 && lane == 0)
      barrier_expect(barrier, (mine - (new_row < kTileRows ? 1 : 0)) * kRowBytes);
    __syncwarp();
    const int i = first + lane, row = first_row + i;
    if (lane < count && i < mine && i != new_row) {
      copy_row(shared_address(s.rows + (tile * kTileRows + i) * kRowStride),
               cache_row(p, token, row), kRowBytes, barrier);
    }
    __syncwarp();
    if (first > 0) return;
#pragma unroll 1
    for (int row_left = mine; row_left < kTileRows; ++row_left)
#pragma unroll 1
      for (int v = lane; v < kRowBytes / 16; v += 32)
        *reinterpret_cast<uint4*>(s.rows + (tile * kTileRows + row_left) * kRowStride +
                                  v * 16) = {};
  }

  // Rows of later chunks come to the L2 cache meanwhile, each by one cluster.
  __device__ __forceinline__ void prefetch_rows() {
    const int clusters = static_cast<int>(gridDim.x) / kCluster;
    const int cluster = static_cast<int>(blockIdx.x) / kCluster;
#pragma unroll 1
    for (int chunk = 1; chunk < num_chunks; ++chunk) {
      const int row = chunk * kChunkRows + rank * kSplitRows + static_cast<int>(threadIdx.x) -
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
        num_chunks > 1 ? s.new_row : s.rows + (kv_len - 1) % kSplitRows * kRowStride;
    char* const global = kv_row >= 0 && head == 0 ? a.cache.row(kv_row) : nullptr;
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
    const uint2 mine = *reinterpret_cast<const uint2*>(s.x + begin / 4);
    *reinterpret_cast<uint4*>(s.x_halves + begin / 2) = {low_halves(mine.x), high_halves(mine.x),
                                                         low_halves(mine.y), high_halves(mine.y)};
  }

  // The heads' q: every block computes some rows of each and sends them to all.
  __device__ __forceinline__ void project_query() {
    if (warp < kQueryLines) {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float2 out[kQueryTiles];
        multiply_f8(q_weights[h], first_lanes(s.x_halves, warp * 256), out);
        if (lane < 4) {
#pragma unroll
          for (int tile = 0; tile < kQueryTiles; ++tile)
            *reinterpret_cast<float2*>(&s.q_parts[h][warp][tile * 8 + lane * 2]) = out[tile];
        }
      }
    }
    load_uv();
    if (warp >= kQueryLines) return;
    named_barrier_sync(3, kQueryLines * 32);
    if (warp >= kHeads) return;
    const int row = min(lane, kQueryRows - 1);
    const int side = (query_row(warp) + row) / kScaleBlock - query_block(warp, 0);
    wait_copies<0>();
    __syncwarp();
    LineSum sum;
#pragma unroll
    for (int line = 0; line < kQueryLines; ++line)
      sum.add(line, s.q_parts[warp][line][row],
              __fmul_rn(s.x_scale[line], s.q_scales[warp][side][line]));
    const float other = __shfl_down_sync(0xffffffffu, sum.total, 1);
    if (lane < kQueryRows && lane % 2 == 0) {
      const uint32_t both = floats_to_bf16x2(sum.total, other);
#pragma unroll
      for (int to = 0; to < kCluster; ++to)
        send(&s.q[warp][(rank * kQueryRows + lane) / 2], &s.q_came, to, both);
    }
    __syncwarp();
  }

  __device__ __forceinline__ void absorb(float cosine, float sine) {
    if constexpr (kHasQueryProduct) wait(s.q_came);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float2 out = multiply_bf16(uk[h], first_lanes(s.q[h], warp % kUkLines * 128));
      if (lane < 4)
        *reinterpret_cast<float2*>(
            &s.uk_parts[h][warp % kUkLines][warp / kUkLines * 8 + lane * 2]) = out;
      if (warp == kWarps - 1)
        s.query[h][kLatent / 2 + lane] = rotate(s.q[h][kHead / 2 + lane], cosine, sine);
    }
    __syncthreads();
    const int h = warp / kCluster, to = warp % kCluster;
    if (h < kHeads) {
      const float2 first = *reinterpret_cast<const float2*>(&s.uk_parts[h][0][lane * 2]);
      const float2 second = *reinterpret_cast<const float2*>(&s.uk_parts[h][1][lane * 2]);
      send(&s.query[h][rank * kUkRows / 2 + lane], &s.query_came, to,
           floats_to_bf16x2(first.x + second.x, first.y + second.y));
    }
    wait(s.query_came);
  }

  // A warp's share: 32 rows, a quarter of the inner dimension.
  __device__ __forceinline__ void score(int chunk, int rows) {
    constexpr int kSteps = kDim / 16 / 4;
    const int quarter = warp / 4, tile = warp % 4;
    if (tile * kTileRows >= rows) return;
    uint32_t b[kSteps][2];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t* const from =
          s.query[min(lane / 4, kHeads - 1)] + (quarter * kSteps + step) * 8 + lane % 4;
      b[step][0] = lane < 4 * kHeads ? from[0] : 0;
      b[step][1] = lane < 4 * kHeads ? from[4] : 0;
    }
    wait(s.tiles[tile], chunk % 2);
    const uint32_t keys = shared_address(s.rows) + (tile * kTileRows + lane % 16) * kRowStride +
                          lane / 16 * 16 + quarter * kSteps * 32;
    float d[2][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        uint32_t a[4];
        ldmatrix_x4(a, keys + m * 16 * kRowStride + step * 32);
        mma_bf16(d[m], a, b[step]);
      }
    if (lane % 4 == 0) {
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          float* const to = &s.scores[h][quarter][tile * kTileRows + m * 16 + lane / 4];
          to[0] = d[m][h];
          to[8] = d[m][2 + h];
        }
    }
  }

  // A warp for each tile of each head.
  __device__ __forceinline__ void soften(int h, int mine_tile, int rows) {
    float x[kTiles], most[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int row = tile * kTileRows + lane;
      x[tile] = ((s.scores[h][0][row] + s.scores[h][1][row]) +
                 (s.scores[h][2][row] + s.scores[h][3][row])) *
                p.scale;
      if (row >= rows) x[tile] = minus_infinity();
      most[tile] = x[tile];
    }
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        most[tile] = fmaxf(most[tile], __shfl_xor_sync(0xffffffffu, most[tile], lanes));
    }
    float max = minus_infinity(), before = max, mine = x[0];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile > mine_tile) break;
      before = max;
      max = fmaxf(max, most[tile]);
      mine = x[tile];
    }
    const float from = finite_max(max);
    const uint32_t weight = floats_to_bf16x2(exp2_fast(mine - from), 0.0f);
    s.weights[h][mine_tile * kTileRows + lane] = static_cast<uint16_t>(weight);
    if (lane == 0) {
      s.factors[h][mine_tile] = exp2_fast(before - from);
      if (mine_tile == (rows - 1) / kTileRows) s.max[h] = max;
    }
    const float rounded = bf16x2_low(weight);
    const float two = rounded + __shfl_xor_sync(0xffffffffu, rounded, 1);
    if (lane % 2 == 0) s.sums[h][mine_tile][lane / 2] = two;
  }

  // A warp's 32 columns of the weighted values.
  __device__ __forceinline__ void add_values(int chunk, int rows) {
    float d[2][4] = {};
    const uint32_t from = shared_address(s.rows) + (lane / 16 * 8 + lane % 8) * kRowStride +
                          warp * 64 + lane / 8 % 2 * 16;
    const auto* const weights =
        reinterpret_cast<const uint32_t*>(s.weights[min(lane / 4, kHeads - 1)]) + lane % 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile * kTileRows >= rows) break;
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float factor = s.factors[h][tile];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          d[m][h] *= factor;
          d[m][2 + h] *= factor;
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
    if (lane % 4 == 0) {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float* const to = &s.values[chunk][rank][h][warp % 2 * 32 + lane / 4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          send(to + m * 16, &s.values_came, warp / 2, __float_as_uint(d[m][h]));
          send(to + m * 16 + 8, &s.values_came, warp / 2, __float_as_uint(d[m][2 + h]));
        }
      }
    }
    if (warp < kCluster) send_stats(chunk, rows);
  }

  // Half a warp for each head. Sums of two rows run through the tiles, then they are one tree
  // (attention/absorbed_tile.cuh).
  __device__ __forceinline__ void send_stats(int chunk, int rows) {
    static_assert(kHeads == 2);
    const int h = lane / 16;
    float sum = 0.0f;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile * kTileRows >= rows) break;
      sum = __fmaf_rn(sum, s.factors[h][tile], s.sums[h][tile][lane % 16]);
    }
#pragma unroll
    for (int lanes = 1; lanes < 16; lanes *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (lane % 16 == 0) send(&s.stats[chunk][rank][h], &s.values_came, warp, float2{s.max[h], sum});
    __syncwarp();
  }

  __device__ __forceinline__ void attend() {
#pragma unroll 1
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      const int rows = rows_of(chunk, rank);
      if (rows == 0) return;
      if (chunk > 0) {
        __syncthreads();  // the rows before are done with
        constexpr int kSharing = kWarps / kTiles, kEach = kTileRows / kSharing;
        load_rows(chunk, warp / kSharing, warp % kSharing * kEach, kEach);
        if (has_new_row(chunk)) {
          if (static_cast<int>(threadIdx.x) < kRowBytes / 16)
            *reinterpret_cast<uint4*>(s.rows + (kv_len - 1) % kSplitRows * kRowStride +
                                      threadIdx.x * 16) =
                *reinterpret_cast<const uint4*>(s.new_row + threadIdx.x * 16);
          __syncthreads();
        }
      }
      score(chunk, rows);
      __syncthreads();
      if (warp < kTiles * kHeads && warp % kTiles * kTileRows < rows)
        soften(warp / kTiles, warp % kTiles, rows);
      __syncthreads();
      add_values(chunk, rows);
    }
  }

  // Adds up this block's columns of all blocks: 64 threads a head.
  __device__ __forceinline__ void merge() {
    const int h = threadIdx.x / kUkRows, column = threadIdx.x % kUkRows;
    if (h >= kHeads) return;
    wait(s.values_came);
    Merged total = Merged::none();
    float value = 0.0f;
#pragma unroll 1
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      // Lane i has block i's: the factors are the same for all columns.
      const int from = lane % kCluster;
      const bool exists = rows_of(chunk, from) > 0;
      const float2 stats = s.stats[chunk][from][h];
      Merged split = exists ? Merged{stats.x, stats.y} : Merged::none();
      float values[kCluster];
#pragma unroll
      for (int i = 0; i < kCluster; ++i)
        values[i] = rows_of(chunk, i) > 0 ? s.values[chunk][i][h][column] : 0.0f;
#pragma unroll
      for (int width = 1; width < kCluster; width *= 2) {
        const float next_max = __shfl_down_sync(0xffffffffu, split.max, width);
        const float next_sum = __shfl_down_sync(0xffffffffu, split.sum, width);
        const MergeFactors f = split.add(next_max, next_sum);
#pragma unroll
        for (int i = 0; i < kCluster; i += 2 * width) {
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
      for (int to = 0; to < kCluster; ++to)
        send(&s.out_latent[h][(rank * kUkRows + column) / 2], &s.latent_came, to, both);
    }
    __syncwarp();
  }

  __device__ __forceinline__ void leave_latent() {
    wait(s.latent_came);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float2 out = multiply_bf16(uv[h], first_lanes(s.out_latent[h], warp % kUvLines * 128));
      if (lane < 4)
        *reinterpret_cast<float2*>(
            &s.uv_parts[h][warp % kUvLines][warp / kUvLines * 8 + lane * 2]) = out;
    }
    __syncthreads();
    if (warp < kHeads && lane < kUvRows / 2) {
      float2 sum = *reinterpret_cast<const float2*>(&s.uv_parts[warp][0][lane * 2]);
#pragma unroll
      for (int line = 1; line < kUvLines; ++line) {
        const float2 more = *reinterpret_cast<const float2*>(&s.uv_parts[warp][line][lane * 2]);
        sum.x += more.x, sum.y += more.y;
      }
      const uint32_t both = floats_to_bf16x2(sum.x, sum.y);
      if (p.out_f8 != nullptr) {
        send(&s.out[(rank * kUvRows) / 2 + lane], &s.out_came, warp, both);
      } else {
        reinterpret_cast<uint32_t*>(p.out + (int64_t{token} * p.heads + head + warp) * kHead +
                                    rank * kUvRows)[lane] = both;
      }
    }
    if (p.out_f8 != nullptr && rank < kHeads && warp == 0) wait(s.out_came);
  }

  __device__ __forceinline__ void write_nothing() {
    if (p.out_f8 == nullptr) {
      if (threadIdx.x < kUvRows * kHeads)
        p.out[(int64_t{token} * p.heads + head + threadIdx.x / kUvRows) * kHead + rank * kUvRows +
              threadIdx.x % kUvRows] = Bf16{0};
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
    num_chunks = (kv_len + kChunkRows - 1) / kChunkRows;
    float cosine = 0.0f, sine = 0.0f;
    if (warp == kWarps - 1) {
      cosine = p.append.table[token * kRope + lane];
      sine = p.append.table[token * kRope + kRope / 2 + lane];
    }
    if constexpr (kHasQueryProduct) {
      if (warp < kNormWarps) normalise(q_norm);
    } else {
      const auto* const from =
          reinterpret_cast<const uint32_t*>(p.q + token * p.q_stride + head * int64_t{kQuery});
      if (threadIdx.x < kHeads * kQuery / 2) s.q[0][threadIdx.x] = from[threadIdx.x];
    }
    cluster_wait();
    if (kv_len > 0 && warp >= kWarps - kTiles) {
      if (warp == kWarps - 1 && lane == 0) {
        int bytes = 0;
#pragma unroll 1
        for (int chunk = 0; chunk < num_chunks; ++chunk)
#pragma unroll 1
          for (int i = 0; i < kCluster; ++i)
            if (rows_of(chunk, i) > 0) bytes += kHeads * (kUkRows * 4 + 8);
        barrier_expect(shared_address(&s.values_came), bytes);
      }
      __syncwarp();
      load_rows(0, warp - (kWarps - kTiles), 0, kTileRows);
      if (has_new_row(num_chunks - 1)) append();
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
    if (p.out_f8 != nullptr && rank < kHeads && warp == 0)
      quantise_head(s.out, p, int64_t{token} * p.heads + head + rank);
  }
};

template <bool kHasQueryProduct>
__global__ void __launch_bounds__(kThreads, 1)
    decode_kernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) char shared[];
  Region<kHasQueryProduct>(p, *reinterpret_cast<Shared*>(shared)).run();
}

}  // namespace fathom::cuda::decode
