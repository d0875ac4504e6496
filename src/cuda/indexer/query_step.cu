// index_append_query of up to eight tokens from compressed queries: q_a's norm, wq_b, rotation, transform and scales of
// the queries, the heads' weights, and the keys into the cache. Bound by reading wq_b once, 12.6 MB of the published
// model, and then by latency: behind the wait there are only short rows and products straight from shared memory.
//
// A cluster of four blocks has a head, a block half of its rows and half of the channels: six steps of 128 channels,
// asked for before the wait. Behind it
//   norm       a warp has a token, of whose channels it quantises the block's; of one token a warp has a sixth of it
//   products   two warpgroups, three steps each (linear/held_steps.cuh); their sums go to the block that has the token,
//              token % 4, and with them a quarter of the product that makes the head's weight
//   query      a warp of that block adds the four parts in rising order, rotates, transforms and quantises
// One cluster more has the keys, a warp each.
//
// Grid: 4 * heads + 4. Shared memory: 62 KB; three blocks find room.

#include <cmath>

#include "cuda/elementwise/norm_row.cuh"
#include "cuda/gemm/tensor_map.h"
#include "cuda/indexer/index_rows.cuh"
#include "cuda/indexer/query_step.h"
#include "cuda/linear/held_steps.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/send.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"
#include "tuned/choice.h"

namespace fathom::cuda {
namespace {

constexpr int kStepBlocks = 4, kStepHead = LaneRow::kDim, kStepRope = LaneRow::kRope;
constexpr int kStepIn = 1536, kStepChunks = kStepIn / (32 * kVector);  // vectors of a lane
constexpr int kStepLines = kStepIn / kScaleBlock;
constexpr int kBlockLines = kStepLines / 2, kGroupLines = kBlockLines / 2;
constexpr int kBlockChunks = kStepChunks / 2;
constexpr int kStepTokens = 8, kOwnTokens = kStepTokens / kStepBlocks;
constexpr int kStepWarps = 8, kStepMultiplying = kStepWarps * 32;
constexpr int kStepThreads = kStepMultiplying + 32;
constexpr int kStepParts = 4;  // of a sum
// Lines that are under way at once: more delay what the kernels before still read.
constexpr int kStepWindow = 3;
static_assert(kStepTokens == kStepWarps && kStepTokens == kHeldColumns &&
              kStepHead == 2 * kHeldRows);

struct QueryStepParams {
  CUtensorMap wq_b;
  IndexAppendParams keys;
  const Bf16* q_a;  // [tokens, 1536]
  const void* q_norm;
  const float* wq_b_scale;
  const float* table;
  const Bf16* x;             // [tokens, vectors * 8]
  const Bf16* weights_proj;  // [heads, vectors * 8]
  F8E4M3* out;
  float* weights;
  int64_t q_a_stride, x_stride;
  int tokens, heads, vectors;
  float eps, factor;
  bool norm_is_f32;
};

struct QueryStepShared {
  uint8_t weights[kBlockLines][kHeldStepBytes];
  uint8_t rows[kBlockLines][kHeldRowsBytes];
  alignas(16) float norm[kBlockLines * kScaleBlock];
  alignas(16) float sums[kStepParts][kOwnTokens][kStepHead];
  float head_weights[kStepBlocks][kOwnTokens];
  float row_scales[kBlockLines][kHeldColumns];
  float dots[kStepWarps][kStepTokens];
  float squares[kStepChunks];  // sums of a chunk's, of one token
  uint64_t full[kBlockLines], came;
};

template <bool kOneToken>
struct QueryStep {
  const QueryStepParams& p;
  QueryStepShared& s;
  const int tokens, warp, lane, rank, head, row_half, line_half;

  __device__ __forceinline__ QueryStep(const QueryStepParams& params, QueryStepShared& shared)
      : p(params),
        s(shared),
        tokens(kOneToken ? 1 : params.tokens),
        warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        rank(static_cast<int>(blockIdx.x) % kStepBlocks),
        head(static_cast<int>(blockIdx.x) / kStepBlocks - 1),
        row_half(rank / 2),
        line_half(rank % 2) {}

  // Tokens that this block finishes.
  __device__ __forceinline__ int own_tokens() const {
    return (tokens - rank + kStepBlocks - 1) / kStepBlocks;
  }

  __device__ __forceinline__ void init_barriers() const {
    for (uint64_t& full : s.full) barrier_init(shared_address(&full), 1);
    barrier_init(shared_address(&s.came), 1);
    barriers_are_ready();
    barrier_expect(shared_address(&s.came),
                   own_tokens() * (kStepParts * kStepHead + kStepBlocks) * int{sizeof(float)});
  }
  __device__ __forceinline__ void feed() const {
    if (lane == 0) {
#pragma unroll 1
      for (int i = 0; i < kBlockLines; ++i) {
        const uint32_t full = shared_address(&s.full[i]);
        if (i >= kStepWindow) barrier_wait(shared_address(&s.full[i - kStepWindow]), 0);
        barrier_expect(full, kHeldStepBytes);
        load_tile_once(&p.wq_b, shared_address(s.weights[i]), full,
                       (line_half * kBlockLines + i) * kScaleBlock,
                       head * kStepHead + row_half * kHeldRows);
      }
    }
    __syncwarp();
    wait_for_previous();
    cluster_wait();
  }

  // The vector of a chunk that this lane has begins there.
  __device__ __forceinline__ int channel(int chunk) const { return (chunk * 32 + lane) * kVector; }

  // Of the norm's weight, what this thread brings to shared memory: a vector of the block's channels.
  __device__ __forceinline__ bool brings_norm() const {
    return threadIdx.x < kBlockLines * kScaleVectors;
  }
  __device__ __forceinline__ Vector norm_weight() const {
    const int begin =
        line_half * kBlockLines * kScaleBlock + static_cast<int>(threadIdx.x) * kVector;
    if (!brings_norm()) return {};
    return p.norm_is_f32
               ? load_vector(static_cast<const float*>(p.q_norm), begin, begin + kVector, true)
               : load_vector(static_cast<const Bf16*>(p.q_norm), begin, begin + kVector, true);
  }

  // Of the block's chunks, then of the others.
  __device__ __forceinline__ int chunk(int i) const {
    return (line_half * kBlockChunks + i) % kStepChunks;
  }
  __device__ __forceinline__ void share_norm(const Vector& weight) const {
    if (!brings_norm()) return;
#pragma unroll
    for (int k = 0; k < kVector; ++k) s.norm[threadIdx.x * kVector + k] = weight.at[k];
  }
  // sums: a lane has that of the chunk of its number. The order of the sum of squares is that of rms_norm: 32 vectors,
  // then those sums.
  __device__ __forceinline__ float norm_factor(float sums) const {
    return 1.0f / sqrtf(warp_sum(sums) / static_cast<float>(kStepIn) + p.eps);
  }
  // The lane's vector of one of the block's chunks to where products find it.
  __device__ __forceinline__ void quantise(const Words<Bf16>& words, int of_block, int token,
                                           float factor) const {
    const int begin = channel(of_block), line = begin / kScaleBlock;  // of the block's
    Vector v = normed(unpack(words), load_vector(s.norm, begin, begin + kVector, true), factor);
    round_to_bf16(v);
    const int piece = begin % kScaleBlock / 16 ^ token;
    quantize_vector(v,
                    reinterpret_cast<F8E4M3*>(s.rows[line] + token * kScaleBlock + piece * 16) +
                        begin % 16 - begin,
                    begin, begin + kVector, true, &s.row_scales[line][token] - line);
  }

  // The warp's token: the block's channels of its row.
  __device__ __forceinline__ void normalise(const Vector& weight) const {
    Words<Bf16> words[kStepChunks];
    const Bf16* const row = p.q_a + min(warp, tokens - 1) * p.q_a_stride;
#pragma unroll
    for (int i = 0; i < kStepChunks; ++i)
      words[i] = load_words(row, channel(chunk(i)), channel(chunk(i)) + kVector, true);
    share_norm(weight);
    __syncwarp();
    named_barrier_sync(1, kStepMultiplying);
    if (warp >= tokens) return;
    float of_lane = 0.0f;
#pragma unroll
    for (int i = 0; i < kStepChunks; ++i) {
      const float sum = warp_sum(sum_of_squares(unpack(words[i])));
      if (lane == chunk(i)) of_lane = sum;
    }
    const float factor = norm_factor(of_lane);
#pragma unroll
    for (int i = 0; i < kBlockChunks; ++i) quantise(words[i], i, warp, factor);
    show_to_engines();
    __syncwarp();
  }
  // The same of one token: a warp has a chunk of its row.
  __device__ __forceinline__ void normalise_one(const Vector& weight) const {
    Words<Bf16> words{};
    if (warp < kStepChunks)
      words = load_words(p.q_a, channel(chunk(warp)), channel(chunk(warp)) + kVector, true);
    share_norm(weight);
    const float sum = warp_sum(sum_of_squares(unpack(words)));
    if (lane == 0 && warp < kStepChunks) s.squares[chunk(warp)] = sum;
    __syncwarp();
    named_barrier_sync(1, kStepMultiplying);
    if (warp >= kBlockChunks) return;
    quantise(words, warp, 0, norm_factor(lane < kStepChunks ? s.squares[lane] : 0.0f));
    show_to_engines();
    __syncwarp();
  }

  // A quarter of the products that make the head's weights.
  __device__ __forceinline__ int first_vector() const { return rank * p.vectors / kStepBlocks; }
  __device__ __forceinline__ bool has_vector() const {
    return first_vector() + static_cast<int>(threadIdx.x) < (rank + 1) * p.vectors / kStepBlocks;
  }
  __device__ __forceinline__ uint4 vector_of(const Bf16* row) const {
    return reinterpret_cast<const uint4*>(row)[first_vector() + threadIdx.x];
  }
  __device__ __forceinline__ uint4 vector_of_token(int token) const {
    return has_vector() && token < tokens ? vector_of(p.x + token * p.x_stride) : uint4{};
  }
  __device__ __forceinline__ void add_dot(const Vector& weight, const uint4& x, int token) const {
    Vector v;
    unpack(x, v);
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kVector; ++k) sum = __fmaf_rn(v.at[k], weight.at[k], sum);
    sum = warp_sum(sum);
    if (lane == 0 && token < tokens) s.dots[warp][token] = sum;
  }
  __device__ __forceinline__ void add_dots(const uint4& weight) const {
    constexpr int kAtOnce = 4;
    Vector w;
    unpack(weight, w);
    for (int first = 0; first < tokens; first += kAtOnce) {
      uint4 x[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) x[i] = vector_of_token(first + i);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) add_dot(w, x[i], first + i);
    }
  }
  __device__ __forceinline__ void send_dots() const {
    const int token = static_cast<int>(threadIdx.x);
    if (token >= tokens) return;
    float sum = s.dots[0][token];
#pragma unroll
    for (int i = 1; i < kStepWarps; ++i) sum += s.dots[i][token];
    send_word(shared_address(&s.head_weights[rank][token / kStepBlocks]), shared_address(&s.came),
              token % kStepBlocks, __float_as_uint(sum));
  }

  // Part sums of the rows lane / 4 and lane / 4 + 8 of the warp's, of tokens lane % 4 * 2 and the next.
  __device__ __forceinline__ void send_sums(const float (&part_sum)[4]) const {
    const int part = line_half * 2 + warp / 4;
    const int row = row_half * kHeldRows + warp % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < (kOneToken ? 1 : 2); ++i) {
      const int token = lane % 4 * 2 + i;
      if (token >= tokens) continue;
      const uint32_t owner = kOneToken ? 0 : token % kStepBlocks;
      const uint32_t to =
          remote_address(shared_address(&s.sums[part][token / kStepBlocks][row]), owner);
      const uint32_t came = remote_address(shared_address(&s.came), owner);
      send_word_to(to, came, __float_as_uint(part_sum[i]));
      send_word_to(to + 8 * 4, came, __float_as_uint(part_sum[2 + i]));
    }
  }

  // Adds the parts of a token's query and makes of it what is scored.
  __device__ __forceinline__ void finish(int own, const LaneRow::Angles& angles) const {
    const int token = rank + own * kStepBlocks;
    barrier_wait(shared_address(&s.came), 0);
    LaneRow row;
#pragma unroll
    for (int part = 0; part < kStepParts; ++part) {
      const float4 v = reinterpret_cast<const float4*>(s.sums[part][own])[lane];
      const float of_part[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) row.x[i] = part == 0 ? of_part[i] : row.x[i] + of_part[i];
    }
#pragma unroll
    for (float& v : row.x) v = cuda::to_float(from_float<Bf16>(v));
    row.rotate(angles);
    row.transform();
    const int64_t at = int64_t{token} * p.heads + head;
    const float scale = row.quantise(p.out + at * kStepHead);
    if (lane != 0) return;
    float weight = s.head_weights[0][own];
#pragma unroll
    for (int i = 1; i < kStepBlocks; ++i) weight += s.head_weights[i][own];
    p.weights[at] = weight * p.factor * scale;
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == kStepMultiplying) init_barriers();
    __syncwarp();
    cluster_arrive_relaxed();
    if (threadIdx.x >= kStepMultiplying) return feed();
    float w_scale[kGroupLines];
#pragma unroll
    for (int k = 0; k < kGroupLines; ++k)
      w_scale[k] = __ldg(p.wq_b_scale + head * kStepLines + line_half * kBlockLines +
                         warp / 4 * kGroupLines + k);
    const Vector norm = norm_weight();
    const uint4 head_weight =
        has_vector() ? vector_of(p.weights_proj + int64_t{head} * p.vectors * 8) : uint4{};
    cluster_wait();  // all barriers are there
    wait_for_previous();
    let_next_start();  // behind the wait: who comes next reads before its own what was there before
    LaneRow::Angles angles{};
    if (warp < own_tokens())
      angles = LaneRow::angles_of(p.table + (rank + warp * kStepBlocks) * kStepRope);
    if constexpr (kOneToken) {
      const uint4 x = vector_of_token(0);  // asked for beside q_a
      normalise_one(norm);
      Vector w;
      unpack(head_weight, w);
      add_dot(w, x, 0);
    } else {
      normalise(norm);
      add_dots(head_weight);
    }
    __syncwarp();
    named_barrier_sync(1, kStepMultiplying);
    send_dots();
    __syncwarp();
    float part_sum[4] = {};
    const int first = warp / 4 * kGroupLines;
    multiply_held({.weights = shared_address(s.weights[0]),
                   .rows = shared_address(s.rows[0]),
                   .full = shared_address(&s.full[0]),
                   .row_scales = s.row_scales[0]},
                  first, first + kGroupLines, w_scale, part_sum);
    send_sums(part_sum);
    __syncwarp();
    if (warp < own_tokens()) finish(warp, angles);
  }
};

template <bool kOneToken>
__global__ void __launch_bounds__(kStepThreads, 3)
    index_query_step_kernel(const __grid_constant__ QueryStepParams p) {
  extern __shared__ __align__(1024) uint8_t query_step_shared[];
  if (blockIdx.x >= kStepBlocks)
    return QueryStep<kOneToken>(p, *reinterpret_cast<QueryStepShared*>(query_step_shared)).run();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int token = static_cast<int>(blockIdx.x) + warp * kStepBlocks;
  const bool has_key = warp < kOwnTokens && token < p.keys.tokens;
  if (has_key) ask_for_norm(p.keys);
  wait_for_previous();
  let_next_start();
  if (has_key) append_key(p.keys, token, reinterpret_cast<float*>(query_step_shared));
}

Matrix wq_b_matrix(const ops::Weight& wq_b) {
  return {.data = wq_b.data.data(),
          .dtype = tensor::DType::kF8E4M3,
          .rows = wq_b.data.dim(0),
          .columns = wq_b.data.dim(1),
          .stride = wq_b.data.stride(0)};
}

}  // namespace

bool takes_query_step(const ops::IndexAppendQueryArgs& args, const ops::Stream& stream) {
  const ops::IndexQueryArgs& query = args.query;
  return args.x.dim(0) <= tuned::kMaxStreamedRows && !stream.backend().batch_invariant &&
         has_lane_rows(query) && args.q_a.dim(1) == kStepIn &&
         args.wq_b.data.dtype() == tensor::DType::kF8E4M3 && can_map(wq_b_matrix(args.wq_b)) &&
         on_16_bytes(args.q_a) && args.q_a.stride(0) % 8 == 0 && on_16_bytes(args.q_norm) &&
         args.weights_proj.dtype() == tensor::DType::kBf16 && args.x.dim(1) % 8 == 0 &&
         args.x.dim(1) / 8 <= kStepBlocks * kStepMultiplying && on_16_bytes(args.x) &&
         args.x.stride(0) % 8 == 0 && on_16_bytes(args.weights_proj);
}

void run_query_step(const ops::IndexAppendQueryArgs& args, ops::Stream& stream) {
  const ops::IndexQueryArgs& query = args.query;
  const int64_t tokens = args.x.dim(0), heads = query.q.dim(1);
  if (tokens == 0) return;
  const QueryStepParams p{.wq_b = tensor_map(wq_b_matrix(args.wq_b), kHeldRows),
                          .keys = index_append_params(args.append),
                          .q_a = args.q_a.as<Bf16>(),
                          .q_norm = args.q_norm.data(),
                          .wq_b_scale = args.wq_b.scale.as<float>(),
                          .table = query.table.as<float>(),
                          .x = args.x.as<Bf16>(),
                          .weights_proj = args.weights_proj.as<Bf16>(),
                          .out = query.out.as<F8E4M3>(),
                          .weights = query.weights.as<float>(),
                          .q_a_stride = args.q_a.stride(0),
                          .x_stride = args.x.stride(0),
                          .tokens = static_cast<int>(tokens),
                          .heads = static_cast<int>(heads),
                          .vectors = static_cast<int>(args.x.dim(1) / 8),
                          .eps = args.q_eps,
                          .factor = 1.0f / std::sqrt(static_cast<float>(heads * kStepHead)),
                          .norm_is_f32 = args.q_norm.dtype() == tensor::DType::kF32};
  launch(tokens == 1 ? index_query_step_kernel<true> : index_query_step_kernel<false>,
         {.grid = static_cast<unsigned>(kStepBlocks * (heads + 1)),
          .block = kStepThreads,
          .shared_bytes = sizeof(QueryStepShared),
          .cluster = kStepBlocks},
         stream, p);
}

}  // namespace fathom::cuda
