#include "cuda/experts/zero_points.h"

#include <algorithm>

#include "cuda/experts/expert_product.cuh"
#include "cuda/experts/pairs.cuh"
#include "cuda/linear/zero_points.cuh"
#include "cuda/ptx/pdl.cuh"
#include "cuda/runtime/device_arena.h"
#include "cuda/runtime/launch.cuh"
#include "tuned/choice.h"

namespace fathom::cuda {
namespace {

// Tokens that pass at once, which bounds the scratch.
constexpr int64_t kSlabTokens = tuned::kMaxExpertSlab;
// From so many on groups of 32 are filled.
constexpr int64_t kWideTokens = 256;

struct ZeroPointParams {
  PairSizes sizes;
  const char* weight;     // u4x2[experts, 1 or 2, rows, in / 2]
  const uint16_t* scale;  // f16[.., rows, 2 * in / channels]
  const char* x;          // bf16[pairs / pairs_per_row, in]
  int64_t x_stride_bytes;
  int pairs_per_row, rows;
  ExpertLists lists;
  void* out;  // gate_up: h, bf16[pairs, rows]; down: y, f32[pairs, rows]
};

// Bound by reading the weights of the experts that have tokens. Grid: (units of rows, groups), a unit being 16 rows of
// gate and of up, or 32 of down, for each tile of a block. Shared memory: the warps' sums.
template <int NT, bool kGateUp>
__global__ void __launch_bounds__(kPairThreads)
    zero_point_experts_kernel(const __grid_constant__ ZeroPointParams p) {
  __shared__ float shared[kPairSums<NT>];
  constexpr int kUnitRows = kGateUp ? kPairRows / 2 : kPairRows;
  wait_for_previous();
  let_next_start();
  if (static_cast<int>(blockIdx.y) >= __ldcg(p.lists.num_groups)) return;
  const ExpertGroup group = load_group(p.lists, static_cast<int>(blockIdx.y));
  const int lane = threadIdx.x % 32;
  const int first_row = static_cast<int>(blockIdx.x) * p.sizes.tiles() * kUnitRows;
  const int first_of_warp = first_row + tile_of_warp(p.sizes) * kUnitRows;
  PairRows rows;
#pragma unroll
  for (int i = 0; i < kPairTiles * 2; ++i) {
    const int64_t matrix = kGateUp ? int64_t{group.expert} * 2 + i / 2 : int64_t{group.expert};
    const int mine = first_of_warp + lane / 4 + (kGateUp ? i % 2 : i) * 8;
    const int64_t row = matrix * p.rows + min(mine, p.rows - 1);
    rows.weight[i / 2][i % 2] = p.weight + row * (p.sizes.in / 2);
    rows.scale[i / 2][i % 2] = p.scale + row * 2 * p.sizes.groups();
  }
  const char* x[NT];
#pragma unroll
  for (int n = 0; n < NT; ++n) {
    const int token = n * 8 + lane / 4;
    x[n] = token < group.count
               ? p.x + load_pair(p.lists, group.first + token) / p.pairs_per_row * p.x_stride_bytes
               : nullptr;
  }
  multiply_pairs<NT>(rows, x, (group.count + 7) / 8, p.sizes, shared);
  const int block_rows = p.sizes.tiles() * kUnitRows;
  for (int i = static_cast<int>(threadIdx.x); i < group.count * block_rows; i += kPairThreads) {
    const int token = i / block_rows, block_row = i % block_rows, row = first_row + block_row;
    if (row >= p.rows) continue;
    const int64_t to = int64_t{load_pair(p.lists, group.first + token)} * p.rows + row;
    const float* const sums = pair_sums<NT>(shared, p.sizes, block_row / kUnitRows) +
                              token * kPairRows + block_row % kUnitRows;
    if constexpr (kGateUp) {
      static_cast<Bf16*>(p.out)[to] = cuda::from_float<Bf16>(silu(sums[0]) * sums[kUnitRows]);
    } else {
      static_cast<float*>(p.out)[to] = sums[0];
    }
  }
}

template <int NT, bool kGateUp>
void launch_experts(const ZeroPointParams& params, ops::Stream& stream) {
  constexpr int kUnitRows = kGateUp ? kPairRows / 2 : kPairRows;
  launch(zero_point_experts_kernel<NT, kGateUp>,
         {.grid = dim3(num_tiles(params.rows, params.sizes.tiles() * kUnitRows),
                       static_cast<unsigned>(params.lists.most_groups)),
          .block = kPairThreads},
         stream, params);
}
template <bool kGateUp>
void launch_experts(const ZeroPointParams& params, ops::Stream& stream) {
  if (params.lists.group_tokens == kNarrowGroup) return launch_experts<1, kGateUp>(params, stream);
  launch_experts<4, kGateUp>(params, stream);
}

struct Scratch {
  Bf16* h;   // [pairs, inter]
  float* y;  // [pairs, hidden_size]
  ExpertGroup* groups;
  int* pairs;
  int* num_groups;
};
Scratch carve(const ops::MoeExpertsArgs& args, DeviceArena& arena) {
  const int64_t pairs = std::min(args.x.dim(0), kSlabTokens) * args.ids.dim(1);
  return {.h = arena.take<Bf16>(pairs * ops::row_values(args.down.data)),
          .y = arena.take<float>(pairs * args.x.dim(1)),
          .groups = arena.take<ExpertGroup>(pairs),
          .pairs = arena.take<int>(pairs),
          .num_groups = arena.take<int>(1)};
}

ExpertLists make_lists(const ops::MoeExpertsArgs& args, const Scratch& scratch,
                       ops::Stream& stream) {
  const int64_t tokens = args.x.dim(0), pairs = tokens * args.ids.dim(1);
  const int64_t experts = args.down.data.dim(0);
  const int group_tokens = tokens < kWideTokens ? kNarrowGroup : kWideGroup;
  const PairExperts of_pairs{.ids = args.ids.as<int32_t>(),
                             .routed = static_cast<int>(args.ids.dim(1)),
                             .first = static_cast<int>(args.first_expert),
                             .experts = static_cast<int>(experts)};
  return sort_pairs({.of_pairs = of_pairs,
                     .groups = scratch.groups,
                     .num_groups = scratch.num_groups,
                     .pairs = scratch.pairs,
                     .num_pairs = static_cast<int>(pairs),
                     .group_tokens = group_tokens},
                    stream);
}

ZeroPointParams params_of(const ops::Weight& weight, int64_t rows, const ExpertLists& lists) {
  const int in = static_cast<int>(ops::row_values(weight.data));
  return {.sizes = {.in = in,
                    .channels = static_cast<int>(ops::zero_point_channels(weight)),
                    .warps = warps_of_row(in)},
          .weight = static_cast<const char*>(weight.data.data()),
          .scale = static_cast<const uint16_t*>(weight.scale.data()),
          .x = nullptr,
          .x_stride_bytes = 0,
          .pairs_per_row = 1,
          .rows = static_cast<int>(rows),
          .lists = lists,
          .out = nullptr};
}

void take_rows(const void* x, int64_t stride_bytes, ZeroPointParams& params) {
  params.x = static_cast<const char*>(x);
  params.x_stride_bytes = stride_bytes;
  params.sizes.x_is_aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0 && stride_bytes % 16 == 0;
}

void run_slab(const ops::MoeExpertsArgs& args, ops::Stream& stream) {
  const int64_t tokens = args.x.dim(0), hidden_size = args.x.dim(1);
  const int64_t inter = ops::row_values(args.down.data);
  DeviceArena arena(stream.scratch());
  const Scratch scratch = carve(args, arena);
  const ExpertLists lists = make_lists(args, scratch, stream);
  ZeroPointParams gate_up = params_of(args.gate_up, inter, lists);
  take_rows(args.x.values.data(), args.x.values.stride(0) * 2, gate_up);
  gate_up.pairs_per_row = static_cast<int>(args.ids.dim(1));
  gate_up.out = scratch.h;
  launch_experts<true>(gate_up, stream);
  ZeroPointParams down = params_of(args.down, hidden_size, lists);
  take_rows(scratch.h, inter * 2, down);
  down.out = scratch.y;
  launch_experts<false>(down, stream);
  combine({.of_pairs = lists.of_pairs,
           .weights = args.weights.as<float>(),
           .out = args.out.data(),
           .out_stride = args.out.stride(0),
           .tokens = static_cast<int>(tokens),
           .hidden_size = static_cast<int>(hidden_size),
           .accumulate = args.accumulate},
          scratch.y, stream);
}

}  // namespace

int64_t zero_point_experts_scratch(const ops::MoeExpertsArgs& args) {
  DeviceArena arena;
  carve(args, arena);
  return arena.bytes();
}

void zero_point_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream) {
  const int64_t tokens = args.x.dim(0);
  for (int64_t begin = 0; begin < tokens; begin += kSlabTokens) {
    const int64_t end = std::min(begin + kSlabTokens, tokens);
    ops::MoeExpertsArgs slab = args;
    slab.x = args.x.rows(begin, end);
    slab.ids = args.ids.slice(0, begin, end);
    slab.weights = args.weights.slice(0, begin, end);
    slab.out = args.out.slice(0, begin, end);
    run_slab(slab, stream);
  }
}

}  // namespace fathom::cuda
