#pragma once
// The kernel of mla_decode (ops/mla_decode.h): attention of a sequence's last tokens from the compressed queries to the
// outputs of their heads. Bound by latency: some eight small steps that need each other, of which only weights can be
// read ahead.
//
// A cluster has two or four heads, four blocks for each. A block keeps its rows of the head's q_b, W_UK and W_UV in
// registers, most of them loaded while the kernel before still runs, and 128 rows of the cache at a time in shared
// memory, of which it computes the scores and weighted values of all heads. What a step makes goes to the blocks that
// need it by asynchronous stores that arrive at a barrier:
//
//   norm, quantise     every block by itself, six warps a token; four others start copies of cache rows
//   q                  48 rows of the head a block          -> the head's; what is rotated to all of the cluster
//   q_latent           128 rows of the head a block         -> all
//   attention          128 rows of the cache a block        -> a head's columns [128 j, 128 (j + 1)) to its block j
//   merged             128 columns a block                  -> the head's
//   out                32 values of the head a block        -> quantised by its first block
//
// A cluster of 16 has room for 2,048 rows at once, one of eight for 1,024. Of several tokens all rows lie on the chip,
// each once for all of them: they are further columns of the matrix instruction, which has eight, and cost little more
// than what is sent.
//
// Every sum has the order of the operators that it stands for: lines of 128 bytes of a weight and the warps that divide
// them (linear/product.cuh), 32 rows of the cache at a time, splits of 128 by pairs (attention/mla_absorbed.cu). There
// keys are the other operand of the matrix instruction, which changes no bit.
//
// Grid: 4 * heads. Shared memory: 166 to 227 KB, mostly rows of the cache; one block on a multiprocessor.

#include "cuda/decode/region_inputs.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/ptx/pdl.cuh"

namespace fathom::cuda::decode {

template <bool kHasQueryProduct, int kHeads, int kTokens>
struct Region : RegionInputs<kHasQueryProduct, kHeads, kTokens> {
  using Inputs = RegionInputs<kHasQueryProduct, kHeads, kTokens>;
  using Inputs::append;
  using Inputs::appends;
  using Inputs::block_of_head;
  using Inputs::first_head;
  using Inputs::has_new_row;
  using Inputs::has_new_rows;
  using Inputs::head;
  using Inputs::init_barriers;
  using Inputs::Inputs;
  using Inputs::kBlocks;
  using Inputs::kColumns;
  using Inputs::kRoundRows;
  using Inputs::kv_len;
  using Inputs::lane;
  using Inputs::load_new_rows;
  using Inputs::load_norm;
  using Inputs::load_rows;
  using Inputs::load_uv;
  using Inputs::load_weights;
  using Inputs::mine;
  using Inputs::my_token;
  using Inputs::normalise;
  using Inputs::normalises;
  using Inputs::num_rounds;
  using Inputs::p;
  using Inputs::prefetch_rows;
  using Inputs::put_tile;
  using Inputs::q_weights;
  using Inputs::quarter;
  using Inputs::query_block;
  using Inputs::query_row;
  using Inputs::rank;
  using Inputs::rows_of;
  using Inputs::s;
  using Inputs::uk;
  using Inputs::uk_row;
  using Inputs::uv;
  using Inputs::uv_row;
  using Inputs::visible_rows;
  using Inputs::wait;
  using Inputs::warp;
  using typename Inputs::NewRows;

  // Rows of the head's q; a warp for a token's sums of a pass.
  __device__ __forceinline__ void project_query() {
    if (warp < kQueryLines) {
      float out[kMyQueryTiles][4];
      multiply_f8(q_weights, my_token(s.in.x_halves[0], kHalvesStride, warp * 256), out);
#pragma unroll
      for (int tile = 0; tile < kMyQueryTiles; ++tile)
        put_tile(out[tile], s.in.q_parts[warp], tile * 16 + lane / 4, 8);
      named_barrier_sync(3, kQueryLines * 32);
    }
    if (warp < kPasses * kTokens) add_query_lines();
    load_uv();  // behind what others wait for
  }
  // Of a pass and a token.
  __device__ __forceinline__ void add_query_lines() {
    constexpr int kRows = kMyQueryRows / kPasses;
    const int token = warp / kPasses, row = warp % kPasses * kRows + min(lane, kRows - 1);
    const int side = (query_row() + row) / kScaleBlock - query_block(0);
    wait_copies<0>();
    __syncwarp();
    LineSum sum;
#pragma unroll
    for (int line = 0; line < kQueryLines; ++line)
      sum.add(line, s.in.q_parts[line][token][row],
              __fmul_rn(s.x_scale[token][line], s.q_scales[warp][side][line]));
    const float other = __shfl_xor_sync(0xffffffffu, sum.total, 1);
    if (lane < kRows) send_query(token, row, sum.total, other);
    __syncwarp();
  }
  // The two lanes that have a word send it to half of the blocks each.
  __device__ __forceinline__ void send_query(int token, int row, float my, float other) const {
    const int odd = lane % 2, word = (quarter * kMyQueryRows + row) / 2;
    const uint32_t both = odd != 0 ? floats_to_bf16x2(other, my) : floats_to_bf16x2(my, other);
    const uint32_t* const to = &s.q[token][mine][word];
    if (word >= kHead / 2) {
#pragma unroll
      for (int i = 0; i < kBlocks / 2; ++i) send(to, &s.q_came, i * 2 + odd, both);
    } else {
#pragma unroll
      for (int i = 0; i < kHeadBlocks / 2; ++i)
        send(to, &s.q_came, block_of_head(i * 2 + odd), both);
    }
  }

  // What a lane of a warp that rotates a head multiplies each token's pair with.
  struct Rotation {
    float cosine[kTokens] = {}, sine[kTokens] = {};
  };

  __device__ __forceinline__ void absorb(const Rotation& rotation) {
    NewRows rows;
    if (appends()) load_new_rows(rows);
    if constexpr (kHasQueryProduct) wait(s.q_came);
    float out[4] = {};
    multiply_bf16(uk[0], uk[1], my_token(s.q[0][mine], kHeads * kQuery / 2, warp % kUkLines * 128),
                  out);
    put_tile(out, s.uk_parts[warp % kUkLines], uk_row(0) + lane / 4, kMyUkRows / kPasses);
    if (const int h = warp - (kWarps - kHeads); h >= 0) {
#pragma unroll
      for (int token = 0; token < kTokens; ++token)
        s.query[token * kHeads + h][kLatent / 2 + lane] =
            rotate(s.q[token][h][kHead / 2 + lane], rotation.cosine[token], rotation.sine[token]);
    }
    __syncthreads();
    if (warp < kBlocks) {
#pragma unroll
      for (int token = 0; token < kTokens; ++token) {
        const float4 first = *reinterpret_cast<const float4*>(&s.uk_parts[0][token][lane * 4]);
        const float4 second = *reinterpret_cast<const float4*>(&s.uk_parts[1][token][lane * 4]);
        const uint32_t low = floats_to_bf16x2(first.x + second.x, first.y + second.y);
        const uint32_t high = floats_to_bf16x2(first.z + second.z, first.w + second.w);
        send(reinterpret_cast<const float2*>(
                 &s.query[token * kHeads + mine][quarter * kMyUkRows / 2 + lane * 2]),
             &s.query_came, warp, float2{__uint_as_float(low), __uint_as_float(high)});
      }
    }
    if (appends()) append(rows);
    wait(s.query_came);
    if (has_new_rows()) __syncthreads();
  }

  // The matrix instruction has eight columns. A lane's results are two of them.
  static constexpr int kColumnTiles = (kColumns + 7) / 8;
  static_assert(kColumnTiles <= 2);
  __device__ __forceinline__ int lane_column(int n, int i) const {
    return n * 8 + lane % 4 * 2 + i;
  }
  __device__ __forceinline__ bool has_column(int n, int i) const {
    return lane_column(n, i) < kColumns;
  }
  // The column that this lane loads.
  __device__ __forceinline__ int my_column(int n) const { return n * 8 + lane / 4; }
  __device__ __forceinline__ bool has_my_column(int n) const { return my_column(n) < kColumns; }

  static constexpr bool kHasMost = kHasMostColumns<kColumns>;
  using Products = float[kColumnTiles][2][4];

  // A warp's share: 32 rows, a quarter of the inner dimension.
  __device__ __forceinline__ void score(int round, int rows) {
    const int part = warp / 4, tile = warp % 4;
    const bool has_rows = tile * kTileRows < rows;
    Products d = {};
    if (has_rows) multiply_keys(round, part, tile, d);
    if constexpr (kHasMost) __syncthreads();  // W_UK's parts were read
    if (has_rows && (!kHasMost || part % 2 == 0)) store_scores(part, tile, d);
    if constexpr (kHasMost) __syncthreads();
    if (kHasMost && has_rows && part % 2 == 1) store_scores(part, tile, d);
  }
  __device__ __forceinline__ void multiply_keys(int round, int part, int tile, Products& d) const {
    constexpr int kSteps = kDim / 16 / 4;
    uint32_t b[kSteps][2];
    const auto load = [&](int n, int step, uint32_t(&to)[2]) {
      const uint32_t* const from =
          s.query[min(my_column(n), kColumns - 1)] + (part * kSteps + step) * 8 + lane % 4;
      to[0] = has_my_column(n) ? from[0] : 0;
      to[1] = has_my_column(n) ? from[4] : 0;
    };
#pragma unroll
    for (int step = 0; step < kSteps; ++step) load(0, step, b[step]);
    wait(s.tiles[tile], round % 2);
    const uint32_t keys = shared_address(s.rows) + (tile * kTileRows + lane % 16) * kRowStride +
                          lane / 16 * 16 + part * kSteps * 32;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t more[2] = {};  // of the second columns: there are no registers to have them before
      if constexpr (kColumnTiles > 1) load(1, step, more);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        uint32_t a[4];
        ldmatrix_x4(a, keys + m * 16 * kRowStride + step * 32);
        mma_bf16(d[0][m], a, b[step]);
        if constexpr (kColumnTiles > 1) mma_bf16(d[1][m], a, more);
      }
    }
  }
  // Of the most columns every second part is added to the one before it.
  __device__ __forceinline__ void store_scores(int part, int tile, const Products& d) const {
    const int place = part * kScoreParts<kColumns> / 4 * kSplitRows + tile * kTileRows + lane / 4;
    const bool adds = kHasMost && part % 2 == 1;
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!has_column(n, i)) continue;
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          float* const to = s.scores[lane_column(n, i)] + place + m * 16;
          to[0] = adds ? to[0] + d[n][m][i] : d[n][m][i];
          to[8] = adds ? to[8] + d[n][m][2 + i] : d[n][m][2 + i];
        }
      }
    __syncwarp();
  }

  // A warp for each tile of each head, of all tokens. Tiles of which a token sees nothing give it weights of 0 and a
  // factor of 1.
  __device__ __forceinline__ void soften(int round, int h, int my_tile, int rows) {
    const int row = my_tile * kTileRows + lane;
    const int place = round * kRoundRows + rank * kSplitRows + row;  // in the sequence
    float my[kTokens];
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      const float* const parts = s.scores[token * kHeads + h] + row;
      const float sum = parts[0] + parts[kSplitRows];
      if constexpr (kHasMost) {
        my[token] = sum * p.scale;
      } else {
        my[token] = (sum + (parts[2 * kSplitRows] + parts[3 * kSplitRows])) * p.scale;
      }
      if (place >= visible_rows(token)) my[token] = minus_infinity();
    }
#pragma unroll
    for (int token = 0; token < kTokens; ++token) {
      const float most = warp_max(my[token]);
      if (lane == 0) s.softmax.tile_max[token * kHeads + h][my_tile] = most;
    }
    named_barrier_sync(4 + h, (rows + kTileRows - 1) / kTileRows * 32);  // the head's warps
#pragma unroll
    for (int token = 0; token < kTokens; ++token)
      weigh(token * kHeads + h, my_tile, rows, my[token]);
  }
  __device__ __forceinline__ void weigh(int column, int my_tile, int rows, float my) {
    SharedSoftmax<kColumns>& to = s.softmax;
    float max = minus_infinity(), before = max;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile > my_tile) break;
      before = max;
      max = fmaxf(max, to.tile_max[column][tile]);
    }
    const float from = finite_max(max);
    const uint32_t weight = floats_to_bf16x2(exp2_fast(my - from), 0.0f);
    to.weights[column][my_tile * kTileRows + lane] = static_cast<uint16_t>(weight);
    if (lane == 0) {
      to.factors[column][my_tile] = exp2_fast(before - from);
      if (my_tile == (rows - 1) / kTileRows) to.max[column] = max;
    }
    const float rounded = bf16x2_low(weight);
    const float two = rounded + __shfl_xor_sync(0xffffffffu, rounded, 1);
    if (lane % 2 == 0) to.sums[column][my_tile][lane / 2] = two;
  }

  // Values of rows that some token does not see must not reach it as 0 * NaN. Those that see such a row are NaN by
  // their scores.
  __device__ __forceinline__ void clear_non_finite() {
#pragma unroll
    for (int token = 1; token < kTokens; ++token) {
      if (!has_new_row(0, token) || threadIdx.x >= kLatent / 2) continue;
      auto& word = reinterpret_cast<uint32_t*>(s.rows + (visible_rows(token) - 1) % kSplitRows *
                                                            kRowStride)[threadIdx.x];
      uint32_t pair = word;
      if ((pair & 0x7f80u) == 0x7f80u) pair &= 0xffff0000u;
      if ((pair & 0x7f800000u) == 0x7f800000u) pair &= 0xffffu;
      if (pair != word) word = pair;
    }
  }

  // A warp's 32 channels of the weighted values.
  __device__ __forceinline__ void add_values(int round, int rows) {
    Products d = {};
    const uint32_t from = shared_address(s.rows) + (lane / 16 * 8 + lane % 8) * kRowStride +
                          warp * 64 + lane / 8 % 2 * 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile * kTileRows >= rows) break;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float factor = s.softmax.factors[min(lane_column(n, i), kColumns - 1)][tile];
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            d[n][m][i] *= factor;
            d[n][m][2 + i] *= factor;
          }
        }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const int first = tile * kTileRows + step * 16;
        uint32_t b[kColumnTiles][2];
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
          const auto* const weights = reinterpret_cast<const uint32_t*>(
                                          s.softmax.weights[min(my_column(n), kColumns - 1)]) +
                                      first / 2 + lane % 4;
          b[n][0] = has_my_column(n) ? weights[0] : 0;
          b[n][1] = has_my_column(n) ? weights[4] : 0;
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          uint32_t a[4];
          ldmatrix_x4_trans(a, from + first * kRowStride + m * 32);
#pragma unroll
          for (int n = 0; n < kColumnTiles; ++n) mma_bf16(d[n][m], a, b[n]);
        }
      }
    }
    const int split = round * kBlocks + rank;
    send_values(split, d);
    if (warp < kBlocks) send_stats(split, rows);
  }

  // A warp's channels of all columns, in place of the scores and then by four to the blocks that add them up.
  __device__ __forceinline__ void send_values(int split, const Products& d) const {
    constexpr int kAtOnce = kStagedColumns<kColumns>, kTilesAtOnce = kHasMost ? 1 : kColumnTiles;
#pragma unroll
    for (int begin = 0; begin < kColumns; begin += kAtOnce) {
#pragma unroll
      for (int n = 0; n < kTilesAtOnce; ++n) stage_values(n, d[begin / 8 + n]);
      __syncwarp();
      send_staged(split, begin, min(begin + kAtOnce, kColumns));
      __syncwarp();
    }
  }
  // Of columns of a tile, the n-th one that is staged.
  __device__ __forceinline__ void stage_values(int n, const float (&d)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!has_column(n, i)) continue;
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        float* const to = s.staged[warp][lane_column(n, i)] + m * 16 + lane / 4;
        to[0] = d[m][i];
        to[8] = d[m][2 + i];
      }
    }
  }
  __device__ __forceinline__ void send_staged(int split, int begin, int end) const {
    constexpr int kChannels = kStagedChannels, kFours = kChannels / 4;
    constexpr int kSharing = kMyUkRows / kChannels;  // warps whose channels are one block's
    const int four = lane % kFours * 4;
#pragma unroll
    for (int column = begin + lane / kFours; column < end; column += 32 / kFours) {
      send(&s.values[column / kHeads][split][warp % kSharing * kChannels + four], &s.values_came,
           column % kHeads * kHeadBlocks + warp / kSharing,
           *reinterpret_cast<const uint4*>(s.staged[warp][column - begin] + four));
    }
  }

  // A warp for each block, of whose head they are; half of it for every second token. Sums of two rows run through the
  // tiles, then they are one tree (attention/absorbed_tile.cuh).
  __device__ __forceinline__ void send_stats(int split, int rows) {
    constexpr int kLanes = kTileRows / 2;
#pragma unroll
    for (int first = 0; first < kTokens; first += 2) {
      const int token = first + lane / kLanes;
      const int column = min(token, kTokens - 1) * kHeads + warp / kHeadBlocks;
      float sum = 0.0f;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile * kTileRows >= rows) break;
        sum = __fmaf_rn(sum, s.softmax.factors[column][tile],
                        s.softmax.sums[column][tile][lane % kLanes]);
      }
#pragma unroll
      for (int lanes = 1; lanes < kLanes; lanes *= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
      if (lane % kLanes == 0 && token < kTokens)
        send(&s.stats[token][split], &s.values_came, warp, float2{s.softmax.max[column], sum});
      __syncwarp();
    }
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
      if constexpr (kTokens > 1) clear_non_finite();
      if (warp < kTiles * kHeads && warp % kTiles * kTileRows < rows)
        soften(round, warp / kTiles, warp % kTiles, rows);
      __syncthreads();
      add_values(round, rows);
    }
  }

  // Adds up this block's channels of all splits, a thread for each of a token.
  __device__ __forceinline__ void merge() {
    const int token = threadIdx.x / kMyUkRows, channel = threadIdx.x % kMyUkRows;
    if (token >= kTokens) return;
    const int seen = visible_rows(token);
    wait(s.values_came);
    Merged total = Merged::none();
    float value = 0.0f;
#pragma unroll 1
    for (int first = 0; first * kSplitRows < seen; first += kChunkSplits) {
      // Lane i has split i's: the factors are the same for all channels.
      const int splits = (seen + kSplitRows - 1) / kSplitRows - first, from = lane % kChunkSplits;
      const float2 stats = s.stats[token][first + from];
      Merged split = from < splits ? Merged{stats.x, stats.y} : Merged::none();
      float values[kChunkSplits];
#pragma unroll
      for (int i = 0; i < kChunkSplits; ++i)
        values[i] = i < splits ? s.values[token][first + i][channel] : 0.0f;
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
    if (channel % 2 == 0) {
      const uint32_t both = floats_to_bf16x2(value, other);
#pragma unroll
      for (int i = 0; i < kHeadBlocks; ++i)
        send(&s.out_latent[token][(quarter * kMyUkRows + channel) / 2], &s.latent_came,
             block_of_head(i), both);
    }
    __syncwarp();
  }

  __device__ __forceinline__ void leave_latent() {
    wait(s.latent_came);
    float out[4] = {};
    multiply_bf16(uv[0], uv[1], my_token(s.out_latent[0], kLatent / 2, warp % kUvLines * 128), out);
    put_tile(out, s.uv_parts[warp % kUvLines], uv_row(0) + lane / 4, kMyUvRows / kPasses);
    __syncthreads();
    if (warp < kTokens && lane < kMyUvRows / 2) {
      const int token = warp;
      float2 sum = *reinterpret_cast<const float2*>(&s.uv_parts[0][token][lane * 2]);
#pragma unroll
      for (int line = 1; line < kUvLines; ++line) {
        const float2 more = *reinterpret_cast<const float2*>(&s.uv_parts[line][token][lane * 2]);
        sum.x += more.x, sum.y += more.y;
      }
      const uint32_t both = floats_to_bf16x2(sum.x, sum.y);
      if (p.out_f8 != nullptr) {
        send(&s.out[token][quarter * kMyUvRows / 2 + lane], &s.out_came, block_of_head(0), both);
      } else {
        reinterpret_cast<uint32_t*>(p.out + out_at(token) + quarter * kMyUvRows)[lane] = both;
      }
    }
    __syncwarp();
    if (quantises()) wait(s.out_came);
  }
  // Of the head among the outputs of all tokens.
  __device__ __forceinline__ int64_t out_at(int token) const {
    return (int64_t{token} * p.heads + head()) * kHead;
  }
  // A warp for each token.
  __device__ __forceinline__ bool quantises() const {
    return p.out_f8 != nullptr && quarter == 0 && warp < kTokens;
  }

  __device__ __forceinline__ void write_nothing() {
    if (warp >= kTokens) return;
    if (p.out_f8 == nullptr) {
      if (lane < kMyUvRows) p.out[out_at(warp) + quarter * kMyUvRows + lane] = Bf16{0};
    } else {
      s.out[warp][lane] = s.out[warp][lane + 32] = 0;
      __syncwarp();
    }
  }

  __device__ __forceinline__ void run() {
    init_barriers();
    load_weights();
    typename Inputs::NormWeight q_norm{};
    if constexpr (kHasQueryProduct) {
      if (normalises()) load_norm(q_norm);
    }
    cluster_arrive_relaxed();
    __syncthreads();
    wait_for_previous();
    kv_len = p.kv_len[0];
    num_rounds = (kv_len + kRoundRows - 1) / kRoundRows;
    Rotation rotation;
    if (warp >= kWarps - kHeads) {
#pragma unroll
      for (int token = 0; token < kTokens; ++token) {
        rotation.cosine[token] = p.append.table[token * kRope + lane];
        rotation.sine[token] = p.append.table[token * kRope + kRope / 2 + lane];
      }
    }
    if constexpr (kHasQueryProduct) {
      if (normalises()) normalise(q_norm);
    } else {
      static_assert(kTokens == 1);
      const auto* const from =
          reinterpret_cast<const uint32_t*>(p.q + first_head * int64_t{kQuery});
      if (threadIdx.x < kHeads * kQuery / 2) s.q[0][0][threadIdx.x] = from[threadIdx.x];
    }
    cluster_wait();
    if (kv_len > 0 && warp >= kWarps - kTiles) {
      if (warp == kWarps - 1 && lane == 0) {
        const int splits = (kv_len + kSplitRows - 1) / kSplitRows;
        barrier_expect(shared_address(&s.values_came), splits * kTokens * (kMyUkRows * 4 + 8));
      }
      __syncwarp();
      load_rows(0, warp - (kWarps - kTiles), 0, kTileRows);
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
      absorb(rotation);
      attend();
      merge();
      leave_latent();
    }
    if (quantises()) quantise_head(s.out[warp], p, out_at(warp) / kHead);
  }
};

template <bool kHasQueryProduct, int kHeads, int kTokens>
__global__ void __launch_bounds__(kThreads, 1)
    decode_kernel(const __grid_constant__ DecodeParams p) {
  extern __shared__ __align__(128) char shared[];
  auto& s = *reinterpret_cast<Shared<kHeads, kTokens>*>(shared);
  Region<kHasQueryProduct, kHeads, kTokens>(p, s).run();
}

}  // namespace fathom::cuda::decode
