#include "cuda/experts/experts.h"

#include <algorithm>

#include "cuda/device/convert.cuh"
#include "cuda/experts/few_tokens.h"
#include "cuda/experts/few_tokens_bf16.h"
#include "cuda/experts/ops.h"
#include "cuda/experts/zero_points.h"
#include "cuda/gemm/large.h"
#include "cuda/gemm/quantize_rows.h"
#include "cuda/linear/batch_product.h"
#include "cuda/linear/zero_points.h"
#include "cuda/runtime/device_arena.h"
#include "ops/moe.h"
#include "tuned/table.h"

namespace fathom::cuda {
namespace {

// Tokens that pass at once, which bounds the scratch.
constexpr int64_t kSlabTokens = tuned::kMaxExpertSlab;
// Up to so many tokens the pairs need not be sorted: down's kernel, which adds up the experts itself, is faster. It has
// no form for rows of integers.
constexpr int64_t kUnsortedTokensE4m3 = 4, kUnsortedTokensBf16 = 2, kUnsortedTokensI8 = 0;
// Calls of so many at most run on the streaming kernels, so their rows have the same bits in any company; of fewer
// where few rows of an expert have a kernel of their own (gemm/large.h).
constexpr int64_t kMaxStreamedExpertTokens = tuned::kMaxStreamedExpertRows;
// From so many on the wide kernels are faster.
constexpr int64_t kWideTokensQuantised = 8, kWideTokensBf16 = 48;

using tuned::ExpertChoice, tuned::ExpertKernel;

// Routed experts, and shared ones where the call has them: null otherwise.
using Call = ops::MoeExpertsSharedArgs;

struct Sizes {
  int64_t hidden_size, inter, experts, routed, shared, per_token;
  Stored weight;
  bool quantised() const { return takes_quantised(weight); }
};

Sizes sizes_of(const Call& call) {
  const ops::MoeExpertsArgs& args = call.experts;
  const int64_t inter = ops::row_values(args.down.data), routed = args.ids.dim(1);
  const ops::Weight& shared_down = call.shared_down;
  const int64_t shared = shared_down.data.is_null() ? 0 : ops::row_values(shared_down.data) / inter;
  return {.hidden_size = args.x.dim(1),
          .inter = inter,
          .experts = args.down.data.dim(0),
          .routed = routed,
          .shared = shared,
          .per_token = routed + shared,
          .weight = stored_as(args.down)};
}

struct Scratch {
  char* x_q;  // e4m3|i8[tokens, hidden_size], of plain rows
  float* x_scale;
  char* h;    // bf16[pairs, inter], f32 where it is quantised
  char* h_q;  // e4m3|i8[pairs, inter]
  float* h_scale;
  float* y;  // f32[pairs, hidden_size]
  ExpertGroup* groups;
  int* pairs;
  int* num_groups;
};

Scratch carve(const Call& call, DeviceArena& arena) {
  const Sizes s = sizes_of(call);
  const ops::MoeExpertsArgs& args = call.experts;
  const int64_t tokens = std::min(args.x.dim(0), kSlabTokens), pairs = tokens * s.per_token;
  const int64_t x_rows = s.quantised() && !args.x.is_quantised() ? tokens : 0;
  const int64_t h_rows = s.quantised() ? pairs : 0;
  return {.x_q = arena.take<char>(x_rows * s.hidden_size),
          .x_scale = arena.take<float>(x_rows * num_row_scales(s.weight, s.hidden_size)),
          .h = arena.take<char>(pairs * s.inter * (s.quantised() ? 4 : 2)),
          .h_q = arena.take<char>(h_rows * s.inter),
          .h_scale = arena.take<float>(h_rows * num_row_scales(s.weight, s.inter)),
          .y = arena.take<float>(pairs * s.hidden_size),
          .groups = arena.take<ExpertGroup>(pairs),
          .pairs = arena.take<int>(pairs),
          .num_groups = arena.take<int>(1)};
}

// Whether all rows can be read in pieces of 16 bytes.
bool rows_are_aligned(const Call& call) {
  const Sizes s = sizes_of(call);
  const ops::MoeExpertsArgs& args = call.experts;
  const auto aligned = [](auto value) { return value % 16 == 0; };
  const auto address = [](const ops::Weight& w) {
    return reinterpret_cast<uintptr_t>(w.data.is_null() ? nullptr : w.data.data());
  };
  // The shortest row decides: with f32 weights the activations', with pairs of 4 bits the weight's.
  const Stored shortest = s.weight == Stored::kF32 ? Stored::kBf16 : s.weight;
  const int64_t x_stride = args.x.values.stride(0) * tensor::dtype_bytes(args.x.values.dtype());
  return aligned(stored_row_bytes(shortest, s.hidden_size)) &&
         aligned(stored_row_bytes(shortest, s.inter)) && aligned(x_stride) &&
         aligned(reinterpret_cast<uintptr_t>(args.x.values.data())) &&
         aligned(address(args.gate_up)) && aligned(address(args.down)) &&
         aligned(address(call.shared_gate_up)) && aligned(address(call.shared_down));
}

void take_shared(const ops::Weight& weight, ExpertProductParams& params) {
  if (weight.data.is_null()) return;
  params.shared_weight = static_cast<const char*>(weight.data.data());
  if (!weight.scale.is_null()) params.shared_w_scale = weight.scale.as<float>();
}

// gate_up's parameters without its lists; quantises the rows if need be.
ExpertProductParams gate_up_params(const Call& call, const Scratch& scratch, ops::Stream& stream) {
  const Sizes s = sizes_of(call);
  const ops::MoeExpertsArgs& args = call.experts;
  const tensor::Tensor& values = args.x.values;
  ExpertProductParams params;
  params.x = static_cast<const char*>(values.data());
  params.x_stride_bytes = values.stride(0) * tensor::dtype_bytes(values.dtype());
  params.pairs_per_row = static_cast<int>(s.per_token);
  params.weight = static_cast<const char*>(args.gate_up.data.data());
  take_shared(call.shared_gate_up, params);
  params.rows = static_cast<int>(s.inter);
  params.in = static_cast<int>(s.hidden_size);
  params.out = scratch.h;
  params.is_aligned = rows_are_aligned(call);
  if (!s.quantised()) return params;
  params.w_scale = args.gate_up.scale.as<float>();
  params.x_scale = args.x.is_quantised() ? args.x.scale.as<float>() : scratch.x_scale;
  if (args.x.is_quantised()) return params;
  quantize_rows({.kind = row_kind(s.weight),
                 .x = values.data(),
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

// down's; quantises h if need be, which run_down_and_combine does itself.
ExpertProductParams down_params(const Call& call, const Scratch& scratch,
                                const ExpertProductParams& gate_up, ops::Stream& stream) {
  const Sizes s = sizes_of(call);
  const bool quantises = s.quantised() && gate_up.lists.groups != nullptr;
  ExpertProductParams params;
  params.x = quantises ? scratch.h_q : scratch.h;
  params.x_stride_bytes = s.inter * (quantises ? 1 : s.quantised() ? 4 : 2);
  params.weight = static_cast<const char*>(call.experts.down.data.data());
  take_shared(call.shared_down, params);
  params.lists = gate_up.lists;
  params.rows = static_cast<int>(s.hidden_size);
  params.in = static_cast<int>(s.inter);
  params.out = scratch.y;
  params.is_aligned = gate_up.is_aligned;
  if (s.quantised()) params.w_scale = call.experts.down.scale.as<float>();
  if (!quantises) return params;
  params.x_scale = scratch.h_scale;
  quantize_rows({.kind = row_kind(s.weight),
                 .x = scratch.h,
                 .stride = s.inter,
                 .x_is_float = true,
                 .q = scratch.h_q,
                 .scale = scratch.h_scale,
                 .rows = call.experts.x.dim(0) * s.per_token,
                 .dim = params.in},
                stream);
  return params;
}

PairExperts pairs_of(const Call& call) {
  const Sizes s = sizes_of(call);
  return {.ids = call.experts.ids.as<int32_t>(),
          .routed = static_cast<int>(s.routed),
          .shared = static_cast<int>(s.shared),
          .first = static_cast<int>(call.experts.first_expert),
          .experts = static_cast<int>(s.experts)};
}

CombineParams combining_of(const Call& call) {
  const ops::MoeExpertsArgs& args = call.experts;
  return {.of_pairs = pairs_of(call),
          .weights = args.weights.as<float>(),
          .out = args.out.data(),
          .out_stride = args.out.stride(0),
          .tokens = static_cast<int>(args.x.dim(0)),
          .hidden_size = static_cast<int>(args.out.dim(1)),
          .accumulate = args.accumulate};
}

// Enqueues what makes them; few pairs need none.
ExpertLists make_lists(const Call& call, const Scratch& scratch, bool sorted, int group_tokens,
                       ops::Stream& stream) {
  const Sizes s = sizes_of(call);
  const int64_t pairs = call.experts.x.dim(0) * s.per_token;
  const PairExperts of_pairs = pairs_of(call);
  if (!sorted)
    return {
        .of_pairs = of_pairs, .most_groups = static_cast<int>(pairs), .group_tokens = group_tokens};
  return sort_pairs({.of_pairs = of_pairs,
                     .groups = scratch.groups,
                     .num_groups = scratch.num_groups,
                     .pairs = scratch.pairs,
                     .num_pairs = static_cast<int>(pairs),
                     .group_tokens = group_tokens},
                    stream);
}

int64_t unsorted_tokens(Stored weight) {
  if (takes_i8(weight)) return kUnsortedTokensI8;
  return takes_e4m3(weight) ? kUnsortedTokensE4m3 : kUnsortedTokensBf16;
}

// Whether the grouped products may take it.
bool may_be_large(const ops::MoeExpertsArgs& args, const ops::Stream& stream) {
  const int64_t fewest = large_takes_few(args) ? kFewestLargeTokens : kMaxStreamedExpertTokens + 1;
  return args.x.dim(0) >= fewest && !stream.backend().batch_invariant;
}

// What was measured to be faster (tuned/table.h). It was measured without shared experts, whose weights are read again
// for every pair that is a group by itself.
ExpertChoice tuned_choice(const Call& call, const ops::Stream& stream) {
  const Sizes s = sizes_of(call);
  if (stream.backend().batch_invariant || s.shared > 0) return {};
  return tuned::choose({.dtype = dtype_of(s.weight), .experts = s.experts, .inter = s.inter},
                       call.experts.x.dim(0));
}

// That, else by the limits above.
ExpertChoice choose(const Call& call, const ops::Stream& stream) {
  const Sizes s = sizes_of(call);
  const int64_t tokens = call.experts.x.dim(0);
  const ExpertChoice tuned = tuned_choice(call, stream);
  if (tuned.kernel != ExpertKernel::kDefault) return tuned;
  if (tokens <= unsorted_tokens(s.weight)) return {.kernel = ExpertKernel::kPairs};
  if (may_be_large(call.experts, stream)) return {.kernel = ExpertKernel::kTiled};
  const bool is_wide = tokens >= (s.quantised() ? kWideTokensQuantised : kWideTokensBf16);
  return {.kernel = is_wide ? ExpertKernel::kWide : ExpertKernel::kNarrow};
}

FewTokensSizes few_sizes_of(const Call& call) {
  const Sizes s = sizes_of(call);
  return {.weight = s.weight,
          .tokens = call.experts.x.dim(0),
          .hidden_size = s.hidden_size,
          .inter = s.inter,
          .experts = s.experts,
          .routed = s.routed,
          .shared = s.shared};
}

// Whether the kernels of few tokens take it (few_tokens.h).
bool takes_few(const Call& call, const ops::Stream& stream) {
  return !stream.backend().batch_invariant && takes_few_tokens(few_sizes_of(call)) &&
         rows_are_aligned(call);
}

void run_few(const Call& call, ops::Stream& stream) {
  const ops::MoeExpertsArgs& args = call.experts;
  const Sizes s = sizes_of(call);
  DeviceArena arena(stream.scratch());
  const Scratch scratch = carve(call, arena);
  const ExpertProductParams rows = gate_up_params(call, scratch, stream);
  const int64_t tokens = args.x.dim(0);
  FewTokensArgs few{
      .x = rows.x,
      .x_scale = rows.x_scale,
      .x_stride = rows.x_stride_bytes,
      .tokens = tokens,
      .hidden_size = s.hidden_size,
      .of_pairs = pairs_of(call),
      .weight = rows.weight,
      .weight_scale = rows.w_scale,
      .shared_weight = rows.shared_weight,
      .shared_weight_scale = rows.shared_w_scale,
  };
  const FewTokensHidden h{.values = reinterpret_cast<uint8_t*>(scratch.h_q),
                          .scales = scratch.h_scale};
  few_tokens_gate_up(few, h, stream);
  few.weight = args.down.data.data();
  few.weight_scale = args.down.scale.as<float>();
  if (s.shared > 0) {
    few.shared_weight = call.shared_down.data.data();
    few.shared_weight_scale = call.shared_down.scale.as<float>();
  }
  few_tokens_down(few, h, combining_of(call), stream);
}

// Whether the kernels of few tokens of bf16 take it (few_tokens_bf16.h), which changes no bits.
bool takes_few_bf16(const Call& call, const ops::Stream& stream) {
  return takes_few_tokens_bf16(few_sizes_of(call)) &&
         tuned_choice(call, stream).kernel == ExpertKernel::kDefault && rows_are_aligned(call);
}

void run_few_bf16(const Call& call, ops::Stream& stream) {
  const ops::MoeExpertsArgs& args = call.experts;
  const Sizes s = sizes_of(call);
  DeviceArena arena(stream.scratch());
  const Scratch scratch = carve(call, arena);
  const auto data = [](const ops::Weight& w) { return w.data.is_null() ? nullptr : w.data.data(); };
  const FewTokensBf16Args few{
      .x = args.x.values.as<Bf16>(),
      .x_stride = args.x.values.stride(0),
      .tokens = static_cast<int>(args.x.dim(0)),
      .hidden_size = static_cast<int>(s.hidden_size),
      .inter = static_cast<int>(s.inter),
      .of_pairs = pairs_of(call),
      .gate_up = data(args.gate_up),
      .down = data(args.down),
      .shared_gate_up = data(call.shared_gate_up),
      .shared_down = data(call.shared_down),
  };
  Bf16* const h = reinterpret_cast<Bf16*>(scratch.h);
  few_gate_up_bf16(few, h, stream);
  few_down_bf16(few, h, combining_of(call), stream);
}

void run_slab(const Call& call, ops::Stream& stream) {
  const ops::MoeExpertsArgs& args = call.experts;
  const Sizes s = sizes_of(call);
  DeviceArena arena(stream.scratch());
  const Scratch scratch = carve(call, arena);
  const int64_t tokens = args.x.dim(0);
  ExpertProductParams gate_up = gate_up_params(call, scratch, stream);
  const bool has_wide = takes_wide_groups(s.weight, gate_up);
  const ExpertChoice choice = choose(call, stream);
  const bool sorted = choice.kernel != ExpertKernel::kPairs || !has_wide;
  const bool wide = has_wide && (choice.kernel == ExpertKernel::kWide ||
                                 choice.kernel == ExpertKernel::kTiled);  // which did not take it
  gate_up.chosen_stages = choice.gate_up_stages;
  gate_up.lists = make_lists(call, scratch, sorted, wide ? kWideGroup : kNarrowGroup, stream);
  run_gate_up(s.weight, gate_up, stream);
  ExpertProductParams down = down_params(call, scratch, gate_up, stream);
  down.chosen_stages = choice.down_stages;
  const CombineParams combining = combining_of(call);
  if (!sorted) return run_down_and_combine(s.weight, down, combining, stream);
  run_down(s.weight, down, stream);
  combine(combining, scratch.y, stream);
}

int64_t slab_scratch(const Call& call) {
  DeviceArena arena;
  carve(call, arena);
  return arena.bytes();
}

void run_slabs(const Call& call, ops::Stream& stream) {
  const int64_t tokens = call.experts.x.dim(0);
  for (int64_t begin = 0; begin < tokens; begin += kSlabTokens) {
    const int64_t end = std::min(begin + kSlabTokens, tokens);
    Call slab = call;
    slab.experts.x = call.experts.x.rows(begin, end);
    slab.experts.ids = call.experts.ids.slice(0, begin, end);
    slab.experts.weights = call.experts.weights.slice(0, begin, end);
    slab.experts.out = call.experts.out.slice(0, begin, end);
    run_slab(slab, stream);
  }
}

// Whether the shared FFN is some experts of the routed ones' width, each with scale blocks of its own; with scales of
// channels a hidden vector has one scale, so it cannot be cut.
bool divides(const ops::MoeExpertsSharedArgs& args) {
  const Sizes s = sizes_of(args);
  const bool scales_divide = s.weight == Stored::kI8Channels
                                 ? s.shared == 1
                                 : !s.quantised() || s.inter % tensor::kScaleBlock == 0;
  return ops::row_values(args.shared_down.data) == s.shared * s.inter && scales_divide;
}

}  // namespace

int64_t moe_experts_scratch(const ops::MoeExpertsArgs& args, const ops::Stream& stream) {
  const int64_t large = may_be_large(args, stream) ? large_moe_experts_scratch(args) : 0;
  const int64_t few =
      has_zero_points(args.down)
          ? zero_point_experts_scratch(args)
          : slab_scratch({.experts = args, .shared_gate_up = {}, .shared_down = {}});
  return std::max(few, large);
}

void moe_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream) {
  if (has_zero_points(args.down)) {
    if (may_be_large(args, stream) && large_moe_experts(args, stream)) return;
    return zero_point_experts(args, stream);
  }
  const Call call{.experts = args, .shared_gate_up = {}, .shared_down = {}};
  if (takes_few(call, stream)) return run_few(call, stream);
  if (takes_few_bf16(call, stream)) return run_few_bf16(call, stream);
  if (choose(call, stream).kernel == ExpertKernel::kTiled && large_moe_experts(args, stream))
    return;
  run_slabs(call, stream);
}

int64_t moe_experts_shared_scratch(const ops::MoeExpertsSharedArgs& args,
                                   const ops::Stream& stream) {
  const int64_t large = large_takes_shared(args) ? large_moe_experts_shared_scratch(args) : 0;
  const int64_t few = divides(args) ? slab_scratch(args) : shared_in_parts_scratch(args, stream);
  return std::max(few, large);
}

bool takes_moe_experts_shared(const ops::MoeExpertsSharedArgs& args, const ops::Stream&) {
  return args.experts.out.dim(0) <= kMaxStreamedTokens || large_takes_shared(args);
}

void moe_experts_shared(const ops::MoeExpertsSharedArgs& args, ops::Stream& stream) {
  if (args.experts.x.dim(0) == 0) return;
  if (args.experts.x.dim(0) > kMaxStreamedTokens && large_moe_experts_shared(args, stream)) return;
  if (!divides(args)) return shared_in_parts(args, stream);
  if (takes_few(args, stream)) return run_few(args, stream);
  if (takes_few_bf16(args, stream)) return run_few_bf16(args, stream);
  run_slabs(args, stream);
}

void run_gate_up(Stored weight, const ExpertProductParams& params, ops::Stream& stream) {
  with_stored(weight, [&](auto w) { run_gate_up_of<decltype(w)>(params, stream); });
}

void run_down(Stored weight, const ExpertProductParams& params, ops::Stream& stream) {
  with_stored(weight, [&](auto w) { run_down_of<decltype(w)>(params, stream); });
}

void run_down_and_combine(Stored weight, const ExpertProductParams& params,
                          const CombineParams& combining, ops::Stream& stream) {
  if (weight == Stored::kF8) return run_down_and_combine_of<F8E4M3>(params, combining, stream);
  if (weight == Stored::kI4)
    return run_down_and_combine_of<tensor::I4x2>(params, combining, stream);
  run_down_and_combine_of<Bf16>(params, combining, stream);
}

}  // namespace fathom::cuda
