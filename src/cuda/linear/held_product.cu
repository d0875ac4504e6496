#include "cuda/linear/held_product.h"

#include <algorithm>

#include "cuda/gemm/tensor_map.h"
#include "cuda/linear/held_steps.cuh"
#include "cuda/linear/plan.h"
#include "cuda/linear/store.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/ptx/send.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/runtime/launch.cuh"

// out[t, n] = sum over k of weight[n, k] * x[t, k] for up to 8 tokens. Bound by reading the weight once, and then by
// latency: a block asks for all that it has of the weight while the kernels before still run, so that behind the wait
// there are only the rows, which are short, and products straight from shared memory.
//
// Grid: clusters of 2, 4 or 8 blocks that share 64 outputs and divide the channels, as many as find room at once.
// Shared memory: up to 8 steps of 128 bytes of a row (128 channels of FP8, 64 of bf16), 8 KB each, by TMA, and 1 KB of
// the rows for each, of which those behind the last token are not written and their sums not stored; sums. 73 KB with
// few tokens: three blocks find room.
//
// Order of sums: steps are scaled (FP8) and added in float32, channels rising, in two parts for each block of the
// cluster; the parts in rising order. Each block stores some of the outputs, which the others send it their parts of.

namespace fathom::cuda {
namespace {

constexpr int kRows = kHeldRows, kStepBytes = kHeldStepBytes, kColumns = kHeldColumns;
constexpr int kRowsBytes = kHeldRowsBytes, kMostSteps = 8;
constexpr int kWarpgroups = 2, kMultiplying = kWarpgroups * 128, kThreads = kMultiplying + 32;
constexpr int kPartSteps = kMostSteps / kWarpgroups;
constexpr int kPieces = kLineBytes / 16;       // of a row's step
static_assert(kColumns == kMultiplying / 32);  // a warp for each token's row
// Steps that are under way at once: more delay what the kernels before still read.
constexpr int kWindow = 4;

struct HeldParams {
  CUtensorMap a, b;
  ProductParams product;
  int steps, cluster_bits;
  bool aligned;  // rows of x, to 16 bytes
};

struct HeldBarriers {
  uint64_t full[kMostSteps], sums;
};

// Where things lie in shared memory, in bytes.
struct HeldLayout {
  int x, sums, x_scales, barriers, bytes;

  __host__ __device__ HeldLayout(int steps, int tokens) {
    x = steps * kStepBytes;
    sums = x + steps * kRowsBytes;
    x_scales = sums + kWarpgroups * tokens * kRows * 4;
    barriers = x_scales + steps * kColumns * 4;
    bytes = barriers + static_cast<int>(sizeof(HeldBarriers));
  }
};

// What runs behind the wait runs once, so it waits for its instructions: as few as can, all addresses found before.
template <class W, bool kOneToken>
struct Held {
  static constexpr bool kScaled = kLineScales<W>;
  static constexpr int kChannels = kLineWidth<W>;  // of a step

  const HeldParams& h;
  const ProductParams& p;
  const ProductPart& part;
  uint8_t* const shared;
  const int tokens, warp, lane, rank, tile, begin, steps;  // begin, steps: of this block
  const HeldLayout at;
  HeldBarriers& barriers;

  __device__ __forceinline__ Held(const HeldParams& params, uint8_t* shared_memory)
      : h(params),
        p(params.product),
        part(static_cast<int>(blockIdx.x) < p.blocks_a ? p.a : p.b),
        shared(shared_memory),
        tokens(kOneToken ? 1 : p.tokens),
        warp(static_cast<int>(threadIdx.x) / 32),
        lane(static_cast<int>(threadIdx.x) % 32),
        rank(static_cast<int>(blockIdx.x) & (p.cluster - 1)),
        tile((static_cast<int>(blockIdx.x) - (&part == &p.a ? 0 : p.blocks_a)) >> h.cluster_bits),
        begin(rank * h.steps >> h.cluster_bits),
        steps(((rank + 1) * h.steps >> h.cluster_bits) - begin),
        at((h.steps + p.cluster - 1) >> h.cluster_bits, tokens),
        barriers(*reinterpret_cast<HeldBarriers*>(shared_memory + at.barriers)) {}

  __device__ __forceinline__ float* floats(int offset) const {
    return reinterpret_cast<float*>(shared + offset);
  }
  __device__ __forceinline__ uint32_t full(int step) const {
    return shared_address(&barriers.full[step]);
  }
  // Outputs that a block of the cluster stores: 2 to the power of this.
  __device__ __forceinline__ int own_bits() const { return 6 - h.cluster_bits; }

  // One thread.
  __device__ __forceinline__ void init_barriers() const {
    for (int i = 0; i < steps; ++i) barrier_init(full(i), 1);
    barrier_init(shared_address(&barriers.sums), 1);
    barriers_are_ready();
    barrier_expect(shared_address(&barriers.sums), kWarpgroups * tokens * kRows * 4);
  }
  __device__ __forceinline__ void load_weights() const {
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      if (i >= kWindow) barrier_wait(full(i - kWindow), 0);
      barrier_expect(full(i), kStepBytes);
      load_tile_once(&part == &p.a ? &h.a : &h.b, shared_address(shared + i * kStepBytes), full(i),
                     (begin + i) * kChannels, tile * kRows);
    }
  }

  // A warp's row of x and its scales, swizzled as the copy engine does.
  struct Row {
    const char* from;
    const float* scale_from;
    uint8_t* to;
    float* scale_to;
    bool first, second, scale;  // pieces and scale that this lane loads
  };
  __device__ __forceinline__ Row row_of_warp() const {
    const bool exists = warp < tokens;
    return {.from = p.x + warp * p.x_stride_bytes + begin * kLineBytes + lane * 16,
            .scale_from = kScaled ? p.x_scale + warp * p.blocks + begin + lane : nullptr,
            .to = shared + at.x + lane / kPieces * kRowsBytes + warp * kLineBytes +
                  (lane % kPieces ^ warp) * 16,
            .scale_to = floats(at.x_scales) + lane * kColumns + warp,
            .first = exists && lane < steps * kPieces,
            .second = exists && lane + 32 < steps * kPieces,
            .scale = kScaled && exists && lane < steps};
  }
  __device__ __forceinline__ uint4 load_piece(const char* from) const {
    if (h.aligned) [[likely]]
      return __ldcg(reinterpret_cast<const uint4*>(from));
    uint32_t words[4] = {};
    for (int i = 0; i < 16; ++i)
      words[i / 4] |= uint32_t{static_cast<uint8_t>(from[i])} << (i % 4 * 8);
    return {words[0], words[1], words[2], words[3]};
  }
  __device__ __forceinline__ void load_row(const Row& row) const {
    uint4 first = {}, second = {};
    float scale = 0;
    if (row.first) first = load_piece(row.from);
    if (row.second) second = load_piece(row.from + 32 * 16);
    if (row.scale) scale = __ldcg(row.scale_from);
    if (row.first) *reinterpret_cast<uint4*>(row.to) = first;
    if (row.second) *reinterpret_cast<uint4*>(row.to + 32 / kPieces * kRowsBytes) = second;
    if (row.scale) *row.scale_to = scale;
    show_to_engines();
    __syncwarp();
  }

  // Where the part's sums of rows lane / 4 and lane / 4 + 8 of the warp's go: [part][token][output] of their owner.
  struct Owner {
    uint32_t to, barrier;
  };
  __device__ __forceinline__ Owner owner_of(int row) const {
    const int part_of_all = rank * kWarpgroups + warp / 4, owner = row >> own_bits();
    const int place =
        ((part_of_all * tokens + lane % 4 * 2) << own_bits()) + (row & ((1 << own_bits()) - 1));
    return {.to = remote_address(shared_address(floats(at.sums) + place), owner),
            .barrier = remote_address(shared_address(&barriers.sums), owner)};
  }
  __device__ __forceinline__ void send(const Owner& owner, float first, float second) const {
    const int token = lane % 4 * 2;
    if (token < tokens) send_word_to(owner.to, owner.barrier, __float_as_uint(first));
    if (!kOneToken && token + 1 < tokens)
      send_word_to(owner.to + (4 << own_bits()), owner.barrier, __float_as_uint(second));
  }

  // A thread's output.
  __device__ __forceinline__ void store() const {
    const int i = static_cast<int>(threadIdx.x), all = tokens << own_bits();
    if (i >= all) return;
    const int token = i >> own_bits();
    const int row = tile * kRows + (rank << own_bits()) + (i & ((1 << own_bits()) - 1));
    const float* from = floats(at.sums) + i;
    float sum = *from;
#pragma unroll 3
    for (int k = 1; k < kWarpgroups * p.cluster; ++k) sum += from[k * all];
    if (row < part.rows) store_product(p, part, token, row, sum);
  }

  __device__ __forceinline__ void feed() const {
    if (lane == 0) load_weights();
    __syncwarp();
    wait_for_previous();
    cluster_wait();
  }

  __device__ __forceinline__ void run() const {
    if (threadIdx.x == kMultiplying) init_barriers();
    __syncwarp();
    cluster_arrive_relaxed();
    if (threadIdx.x >= kMultiplying) return feed();
    const int first = warp / 4 * steps / kWarpgroups, end = (warp / 4 + 1) * steps / kWarpgroups;
    float w_scale[kPartSteps];
    if constexpr (kScaled) {
#pragma unroll
      for (int k = 0; k < kPartSteps; ++k)
        w_scale[k] = __ldg(part.w_scale + tile * kRows / kScaleBlock * p.blocks + begin +
                           min(first + k, steps - 1));
    }
    const Row row = row_of_warp();
    const int first_row = warp % 4 * 16 + lane / 4;
    cluster_wait();  // all barriers are there
    const Owner low = owner_of(first_row), high = owner_of(first_row + 8);
    wait_for_previous();
    load_row(row);
    named_barrier_sync(1, kMultiplying);
    float part_sum[4] = {};
    const HeldSteps held{.weights = shared_address(shared),
                         .rows = shared_address(shared + at.x),
                         .full = full(0),
                         .row_scales = floats(at.x_scales)};
    if constexpr (kScaled) {
      multiply_held(held, first, end, w_scale, part_sum);
    } else {
      multiply_held<kPartSteps>(held, first, end, part_sum);
    }
    send(low, part_sum[0], part_sum[1]);
    send(high, part_sum[2], part_sum[3]);
    barrier_wait(shared_address(&barriers.sums), 0);
    store();
  }
};

template <class W, bool kOneToken>
__global__ void __launch_bounds__(kThreads, 3)
    held_product_kernel(const __grid_constant__ HeldParams p) {
  extern __shared__ __align__(1024) uint8_t shared[];
  let_next_start();
  Held<W, kOneToken>(p, shared).run();
}

int step_channels(Stored weight) {
  return weight == Stored::kF8 ? kLineWidth<F8E4M3> : kLineWidth<Bf16>;
}

Matrix matrix_of(Stored weight, const ProductParams& p, const ProductPart& part) {
  return {.data = part.weight,
          .dtype = dtype_of(weight),
          .rows = part.rows,
          .columns = p.in,
          .stride = p.in};
}

// Blocks that divide the channels, 2 to the power of this: as few as hold them.
int cluster_bits_of(int steps) {
  int bits = 1;
  while (bits < 3 && steps > kMostSteps << bits) ++bits;
  return bits;
}

}  // namespace

bool is_held(Stored weight, const ProductParams& p, const ProductPart& part) {
  if (weight != Stored::kF8 && weight != Stored::kBf16) return false;
  // Shorter rows gain nothing, and those of q_b have the order of sums that decode/ repeats.
  constexpr int kFewestChannels = 2048;
  const int64_t most_blocks = part_of_device(264, num_multiprocessors());
  const int channels = step_channels(weight), steps = p.in / channels;
  const int cluster = 1 << cluster_bits_of(steps);
  return p.heads == 1 && p.in >= kFewestChannels && p.in % channels == 0 &&
         steps <= cluster * kMostSteps && part.choice.kernel == tuned::MatrixKernel::kDefault &&
         int64_t{num_tiles(part.rows, kRows)} * cluster <= most_blocks &&
         can_map(matrix_of(weight, p, part));
}

void run_held_product(Stored weight, const ProductParams& params, ops::Stream& stream) {
  const int steps = params.in / step_channels(weight), bits = cluster_bits_of(steps);
  HeldParams held{.a = tensor_map(matrix_of(weight, params, params.a), kRows),
                  .b = {},
                  .product = params,
                  .steps = steps,
                  .cluster_bits = bits,
                  .aligned = reinterpret_cast<uintptr_t>(params.x) % 16 == 0 &&
                             params.x_stride_bytes % 16 == 0};
  if (params.b.rows > 0) held.b = tensor_map(matrix_of(weight, params, params.b), kRows);
  ProductParams& p = held.product;
  p.cluster = 1 << bits;
  p.blocks = steps;
  p.blocks_a = static_cast<int>(num_tiles(p.a.rows, kRows)) * p.cluster;
  const unsigned blocks_b = num_tiles(p.b.rows, kRows) * static_cast<unsigned>(p.cluster);
  const LaunchShape shape{
      .grid = static_cast<unsigned>(p.blocks_a) + blocks_b,
      .block = kThreads,
      .shared_bytes = HeldLayout((steps + p.cluster - 1) >> bits, p.tokens).bytes,
      .cluster = p.cluster};
  const bool of_f8 = weight == Stored::kF8, one = p.tokens == 1;
  const auto kernel =
      of_f8 ? (one ? held_product_kernel<F8E4M3, true> : held_product_kernel<F8E4M3, false>)
            : (one ? held_product_kernel<Bf16, true> : held_product_kernel<Bf16, false>);
  launch(kernel, shape, stream, held);
}

}  // namespace fathom::cuda
