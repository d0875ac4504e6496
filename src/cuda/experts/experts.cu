#include "cuda/experts/experts.h"

#include <algorithm>

#include "cuda/device/convert.cuh"
#include "cuda/device_arena.h"
#include "cuda/gemm/large.h"
#include "cuda/linear/quantize_rows.h"
#include "cuda/ops.h"
#include "ops/moe.h"

namespace fathom::cuda {
namespace {

using tensor::DType, tensor::num_scale_blocks;

// Tokens that pass at once, which bounds the scratch; fewer need no sorting.
constexpr int64_t kSlabTokens = 1024, kUnsortedTokens = 4;

struct Sizes {
  int64_t hidden_size, inter, experts, per_token;
  DType weight;
  bool is_f8;
};

Sizes sizes_of(const ops::MoeExpertsArgs& args) {
  const DType weight = args.down.data.dtype();
  return {.hidden_size = args.x.dim(1),
          .inter = args.down.data.dim(2),
          .experts = args.down.data.dim(0),
          .per_token = args.ids.dim(1),
          .weight = weight,
          .is_f8 = weight == DType::kF8E4M3};
}

struct Scratch {
  char* x_q;  // e4m3[tokens, hidden_size], of plain rows
  float* x_scale;
  char* h;    // bf16[pairs, inter], f32 with f8 weights
  char* h_q;  // e4m3[pairs, inter]
  float* h_scale;
  float* y;  // f32[pairs, hidden_size]
  ExpertGroup* groups;
  int* pairs;
  int* num_groups;
};

Scratch carve(const ops::MoeExpertsArgs& args, DeviceArena& arena) {
  const Sizes s = sizes_of(args);
  const int64_t tokens = std::min(args.x.dim(0), kSlabTokens), pairs = tokens * s.per_token;
  const int64_t x_rows = s.is_f8 && !args.x.is_quantised() ? tokens : 0;
  const int64_t h_rows = s.is_f8 ? pairs : 0;
  return {.x_q = arena.take<char>(x_rows * s.hidden_size),
          .x_scale = arena.take<float>(x_rows * num_scale_blocks(s.hidden_size)),
          .h = arena.take<char>(pairs * s.inter * (s.is_f8 ? 4 : 2)),
          .h_q = arena.take<char>(h_rows * s.inter),
          .h_scale = arena.take<float>(h_rows * num_scale_blocks(s.inter)),
          .y = arena.take<float>(pairs * s.hidden_size),
          .groups = arena.take<ExpertGroup>(pairs),
          .pairs = arena.take<int>(pairs),
          .num_groups = arena.take<int>(1)};
}

// Whether all rows can be read in pieces of 16 bytes.
bool rows_are_aligned(const ops::MoeExpertsArgs& args) {
  const Sizes s = sizes_of(args);
  const auto aligned = [](auto value) { return value % 16 == 0; };
  const auto address = [](const ops::Weight& w) {
    return reinterpret_cast<uintptr_t>(w.data.data());
  };
  const int64_t bytes = std::min<int64_t>(tensor::dtype_bytes(s.weight), 2);
  const int64_t x_stride = args.x.values.stride(0) * tensor::dtype_bytes(args.x.values.dtype());
  return aligned(s.hidden_size * bytes) && aligned(s.inter * bytes) && aligned(x_stride) &&
         aligned(reinterpret_cast<uintptr_t>(args.x.values.data())) &&
         aligned(address(args.gate_up)) && aligned(address(args.down));
}

// gate_up's parameters without its lists; quantises the rows if need be.
ExpertProductParams gate_up_params(const ops::MoeExpertsArgs& args, const Scratch& scratch,
                                   ops::Stream& stream) {
  const Sizes s = sizes_of(args);
  const tensor::Tensor& values = args.x.values;
  ExpertProductParams params;
  params.x = static_cast<const char*>(values.data());
  params.x_stride_bytes = values.stride(0) * tensor::dtype_bytes(values.dtype());
  params.pairs_per_row = static_cast<int>(s.per_token);
  params.weight = static_cast<const char*>(args.gate_up.data.data());
  params.rows = static_cast<int>(s.inter);
  params.in = static_cast<int>(s.hidden_size);
  params.out = scratch.h;
  params.is_aligned = rows_are_aligned(args);
  if (!s.is_f8) return params;
  params.w_scale = args.gate_up.scale.as<float>();
  params.x_scale = args.x.is_quantised() ? args.x.scale.as<float>() : scratch.x_scale;
  if (args.x.is_quantised()) return params;
  quantize_rows({.x = values.data(),
                 .stride = values.stride(0),
                 .q = scratch.x_q,
                 .scale = scratch.x_scale,
                 .rows = args.x.dim(0),
                 .dim = params.in},
                stream);
  params.x = scratch.x_q;
  params.x_stride_bytes = params.in;
  return params;
}

// down's; quantises h if need be.
ExpertProductParams down_params(const ops::MoeExpertsArgs& args, const Scratch& scratch,
                                const ExpertProductParams& gate_up, ops::Stream& stream) {
  const Sizes s = sizes_of(args);
  ExpertProductParams params;
  params.x = s.is_f8 ? scratch.h_q : scratch.h;
  params.x_stride_bytes = s.inter * (s.is_f8 ? 1 : 2);
  params.weight = static_cast<const char*>(args.down.data.data());
  params.lists = gate_up.lists;
  params.rows = static_cast<int>(s.hidden_size);
  params.in = static_cast<int>(s.inter);
  params.out = scratch.y;
  params.is_aligned = gate_up.is_aligned;
  if (!s.is_f8) return params;
  params.w_scale = args.down.scale.as<float>();
  params.x_scale = scratch.h_scale;
  quantize_rows({.x = scratch.h,
                 .stride = s.inter,
                 .x_is_float = true,
                 .q = scratch.h_q,
                 .scale = scratch.h_scale,
                 .rows = args.x.dim(0) * s.per_token,
                 .dim = params.in},
                stream);
  return params;
}

// Enqueues what makes them; few pairs need none.
ExpertLists make_lists(const ops::MoeExpertsArgs& args, const Scratch& scratch, bool sorted,
                       int group_tokens, ops::Stream& stream) {
  const Sizes s = sizes_of(args);
  const int64_t pairs = args.x.dim(0) * s.per_token;
  ExpertLists lists;
  lists.ids = args.ids.as<int32_t>();
  lists.most_groups = static_cast<int>(pairs);
  if (!sorted) return lists;
  sort_pairs({.ids = lists.ids,
              .groups = scratch.groups,
              .num_groups = scratch.num_groups,
              .pairs = scratch.pairs,
              .num_pairs = static_cast<int>(pairs),
              .experts = static_cast<int>(s.experts),
              .group_tokens = group_tokens},
             stream);
  lists.groups = scratch.groups;
  lists.num_groups = scratch.num_groups;
  lists.pairs = scratch.pairs;
  lists.most_groups = static_cast<int>(std::min(pairs, s.experts + pairs / group_tokens));
  return lists;
}

void run_slab(const ops::MoeExpertsArgs& args, ops::Stream& stream) {
  const Sizes s = sizes_of(args);
  DeviceArena arena(stream.scratch());
  const Scratch scratch = carve(args, arena);
  const int64_t tokens = args.x.dim(0);
  ExpertProductParams gate_up = gate_up_params(args, scratch, stream);
  const bool has_wide = gate_up.is_aligned && s.weight != DType::kF32;
  const bool sorted = tokens > kUnsortedTokens || !has_wide;
  // Wide groups where most experts have more than eight tokens.
  const int group_tokens = has_wide && tokens * s.per_token > 6 * s.experts ? 32 : 8;
  gate_up.lists = make_lists(args, scratch, sorted, group_tokens, stream);
  run_gate_up(s.weight, gate_up, group_tokens, stream);
  const ExpertProductParams down = down_params(args, scratch, gate_up, stream);
  const CombineParams combining{.ids = args.ids.as<int32_t>(),
                                .weights = args.weights.as<float>(),
                                .out = args.out.data(),
                                .out_stride = args.out.stride(0),
                                .tokens = static_cast<int>(tokens),
                                .per_token = static_cast<int>(s.per_token),
                                .hidden_size = static_cast<int>(s.hidden_size),
                                .accumulate = args.accumulate};
  if (!sorted) return run_down_and_combine(s.weight, down, combining, stream);
  run_down(s.weight, down, group_tokens, stream);
  combine(combining, scratch.y, stream);
}

bool may_be_large(const ops::MoeExpertsArgs& args, const ops::Stream& stream) {
  return args.x.dim(0) > kMaxStreamedTokens && !stream.backend().batch_invariant;
}

}  // namespace

int64_t moe_experts_scratch(const ops::MoeExpertsArgs& args, const ops::Stream& stream) {
  DeviceArena arena;
  carve(args, arena);
  const int64_t large = may_be_large(args, stream) ? large_moe_experts_scratch(args) : 0;
  return std::max(arena.bytes(), large);
}

void moe_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream) {
  if (may_be_large(args, stream) && large_moe_experts(args, stream)) return;
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

void run_gate_up(DType weight, const ExpertProductParams& params, int group_tokens,
                 ops::Stream& stream) {
  if (weight == DType::kF8E4M3) return run_gate_up_of<F8E4M3>(params, group_tokens, stream);
  if (weight == DType::kBf16) return run_gate_up_of<Bf16>(params, group_tokens, stream);
  run_gate_up_of<float>(params, group_tokens, stream);
}

void run_down(DType weight, const ExpertProductParams& params, int group_tokens,
              ops::Stream& stream) {
  if (weight == DType::kF8E4M3) return run_down_of<F8E4M3>(params, group_tokens, stream);
  if (weight == DType::kBf16) return run_down_of<Bf16>(params, group_tokens, stream);
  run_down_of<float>(params, group_tokens, stream);
}

void run_down_and_combine(DType weight, const ExpertProductParams& params,
                          const CombineParams& combining, ops::Stream& stream) {
  if (weight == DType::kF8E4M3) return run_down_and_combine_of<F8E4M3>(params, combining, stream);
  run_down_and_combine_of<Bf16>(params, combining, stream);
}

}  // namespace fathom::cuda
