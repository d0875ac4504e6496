#include "cuda/gemm/large.h"

#include <algorithm>

#include "cuda/device_arena.h"
#include "cuda/gemm/groups.cuh"
#include "cuda/gemm/product.cuh"
#include "cuda/gemm/rows.h"

namespace fathom::cuda {
namespace {

using tensor::Bf16, tensor::DType, tensor::F8E4M3, tensor::num_scale_blocks, tensor::Tensor;

bool is_aligned(const Tensor& rows) {
  constexpr int64_t kBytes = 16;
  return reinterpret_cast<uintptr_t>(rows.data()) % kBytes == 0 &&
         rows.stride(0) * tensor::dtype_bytes(rows.dtype()) % kBytes == 0;
}

bool is_weight(DType dtype) { return dtype == DType::kBf16 || dtype == DType::kF8E4M3; }

// By shapes and types alone: what decides the scratch.
bool takes_shape(const ops::LinearArgs& args) {
  const Tensor& weight = args.weight.data;
  return is_weight(weight.dtype()) && weight.dim(1) % 16 == 0 && weight.dim(0) % 8 == 0 &&
         weight.dim(0) > 0 && weight.dim(1) > 0;
}

bool quantises(const ops::Activation& x, const ops::Weight& weight) {
  return weight.data.dtype() == DType::kF8E4M3 && !x.is_quantised();
}

struct QuantisedRows {
  F8E4M3* q;
  float* scale;
};
QuantisedRows carve_rows(int64_t rows, int64_t dim, DeviceArena& arena) {
  return {.q = arena.take<F8E4M3>(rows * dim),
          .scale = arena.take<float>(rows * num_scale_blocks(dim))};
}

}  // namespace

int64_t large_linear_scratch(const ops::LinearArgs& args) {
  if (!takes_shape(args) || !quantises(args.x, args.weight)) return 0;
  DeviceArena arena;
  carve_rows(args.x.dim(0), args.x.dim(1), arena);
  return arena.bytes();
}

bool large_linear(const ops::LinearArgs& args, ops::Stream& stream) {
  const int64_t tokens = args.x.dim(0), in = args.x.dim(1), out = args.weight.data.dim(0);
  if (tokens == 0) return true;
  if (!takes_shape(args) || !is_aligned(args.x.values) || !is_aligned(args.out) ||
      !is_aligned(args.weight.data))
    return false;
  ProductArgs product{.a = {.data = args.x.values.data(),
                            .dtype = args.weight.data.dtype(),
                            .rows = tokens,
                            .columns = in,
                            .stride = args.x.values.stride(0)},
                      .b = args.weight.data.data(),
                      .n = out,
                      .accumulate = args.accumulate,
                      .out = args.out.data(),
                      .out_dtype = args.out.dtype(),
                      .out_stride = args.out.stride(0)};
  if (product.a.dtype == DType::kF8E4M3) {
    product.b_scale = args.weight.scale.as<float>();
    if (args.x.is_quantised()) product.a_scale = args.x.scale.as<float>();
  }
  if (quantises(args.x, args.weight)) {
    DeviceArena arena(stream.scratch());
    const QuantisedRows rows = carve_rows(tokens, in, arena);
    quantise_rows({.x = args.x.values.as<Bf16>(),
                   .x_stride = args.x.values.stride(0),
                   .tokens = tokens,
                   .dim = in,
                   .q = rows.q,
                   .scale = rows.scale},
                  stream);
    product.a.data = rows.q;
    product.a.stride = in;
    product.a_scale = rows.scale;
  }
  tiled_product(product, stream);
  return true;
}

namespace {

struct ExpertScratch {
  Groups groups;
  void* x;         // bf16|f8[max_rows, hidden_size], then
  Bf16* y;         // bf16[max_rows, hidden_size] in the same place
  float* x_scale;  // f32[max_rows, ceil(hidden_size / 128)]
  void* h;         // bf16|f8[max_rows, inter]
  float* h_scale;  // f32[max_rows, ceil(inter / 128)]
};

struct ExpertSizes {
  GroupSizes groups;
  int64_t hidden_size, inter;
  DType dtype;
  bool is_f8() const { return dtype == DType::kF8E4M3; }
};

ExpertSizes sizes_of(const ops::MoeExpertsArgs& args) {
  return {.groups = {.tokens = args.ids.dim(0),
                     .num_experts_per_tok = args.ids.dim(1),
                     .experts = args.down.data.dim(0)},
          .hidden_size = args.down.data.dim(1),
          .inter = args.down.data.dim(2),
          .dtype = args.down.data.dtype()};
}

// The scale blocks of gate and up must join.
bool takes_shape(const ExpertSizes& s) {
  return is_weight(s.dtype) && s.hidden_size % 16 == 0 && s.inter % 16 == 0 && s.inter > 0 &&
         s.hidden_size > 0 && s.groups.experts <= kMaxGroups && s.groups.experts > 0 &&
         (!s.is_f8() || s.inter % tensor::kScaleBlock == 0);
}

ExpertScratch carve(const ExpertSizes& s, DeviceArena& arena) {
  ExpertScratch scratch{};
  const int64_t rows = s.groups.max_rows(), element_bytes = tensor::dtype_bytes(s.dtype);
  scratch.groups = carve_groups(s.groups, arena);
  const int64_t x_bytes = rows * s.hidden_size * element_bytes;
  const int64_t y_bytes = rows * s.hidden_size * 2;
  scratch.x = arena.take<char>(std::max(x_bytes, y_bytes));
  scratch.y = static_cast<Bf16*>(scratch.x);
  scratch.h = arena.take<char>(rows * s.inter * element_bytes);
  if (!s.is_f8()) return scratch;
  scratch.x_scale = arena.take<float>(rows * num_scale_blocks(s.hidden_size));
  scratch.h_scale = arena.take<float>(rows * num_scale_blocks(s.inter));
  return scratch;
}

void gather(const ops::MoeExpertsArgs& args, const ExpertSizes& s, const ExpertScratch& scratch,
            ops::Stream& stream) {
  RowArgs rows{.x_stride = args.x.values.stride(0),
               .tokens = s.groups.tokens,
               .dim = s.hidden_size,
               .row_of_pair = scratch.groups.row_of_pair,
               .copies = s.groups.num_experts_per_tok,
               .scale = scratch.x_scale};
  if (s.is_f8()) {
    rows.q = static_cast<F8E4M3*>(scratch.x);
  } else {
    rows.out = static_cast<Bf16*>(scratch.x);
  }
  if (args.x.is_quantised()) {
    rows.x_q = args.x.values.as<F8E4M3>();
    rows.x_scale = args.x.scale.as<float>();
  } else {
    rows.x = args.x.values.as<Bf16>();
  }
  if (quantises(args.x, args.gate_up)) {
    quantise_rows(rows, stream);
  } else {
    copy_rows(rows, stream);
  }
}

// Sorted rows times the experts' matrices.
ProductArgs grouped_product(const ExpertSizes& s, const Groups& groups, const ops::Weight& weight,
                            int64_t in, int64_t out) {
  return {.a = {.data = nullptr,
                .dtype = s.dtype,
                .rows = s.groups.max_rows(),
                .columns = in,
                .stride = in},
          .b = weight.data.data(),
          .b_scale = s.is_f8() ? weight.scale.as<float>() : nullptr,
          .groups = s.groups.experts,
          .n = out,
          .out_stride = out,
          .tiles = groups.tiles,
          .num_tiles = groups.num_tiles,
          .max_tiles = s.groups.max_tiles()};
}

// h = silu(gate) * up, in the registers of the product; quantised for f8.
void run_gate_up(const ops::MoeExpertsArgs& args, const ExpertSizes& s,
                 const ExpertScratch& scratch, ops::Stream& stream) {
  ProductArgs up = grouped_product(s, scratch.groups, args.gate_up, s.hidden_size, 2 * s.inter);
  up.a.data = scratch.x;
  up.a_scale = scratch.x_scale;
  up.is_gated = true;
  up.out = scratch.h;
  up.out_scale = scratch.h_scale;
  up.out_stride = s.inter;
  tiled_product(up, stream);
}

void run_down(const ops::MoeExpertsArgs& args, const ExpertSizes& s, const ExpertScratch& scratch,
              ops::Stream& stream) {
  ProductArgs down = grouped_product(s, scratch.groups, args.down, s.inter, s.hidden_size);
  down.a.data = scratch.h;
  down.a_scale = scratch.h_scale;
  down.out = scratch.y;
  tiled_product(down, stream);
}

}  // namespace

int64_t large_moe_experts_scratch(const ops::MoeExpertsArgs& args) {
  const ExpertSizes s = sizes_of(args);
  if (!takes_shape(s)) return 0;
  DeviceArena arena;
  carve(s, arena);
  return arena.bytes();
}

bool large_moe_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream) {
  const ExpertSizes s = sizes_of(args);
  if (s.groups.tokens == 0) return true;
  if (!takes_shape(s) || !is_aligned(args.x.values) || !is_aligned(args.out) ||
      !is_aligned(args.gate_up.data) || !is_aligned(args.down.data))
    return false;
  DeviceArena arena(stream.scratch());
  const ExpertScratch scratch = carve(s, arena);
  sort_pairs(s.groups, args.ids.as<int32_t>(), scratch.groups, stream);
  gather(args, s, scratch, stream);
  run_gate_up(args, s, scratch, stream);
  run_down(args, s, scratch, stream);
  combine_rows({.y = scratch.y,
                .weights = args.weights.as<float>(),
                .row_of_pair = scratch.groups.row_of_pair,
                .tokens = s.groups.tokens,
                .copies = s.groups.num_experts_per_tok,
                .dim = s.hidden_size,
                .accumulate = args.accumulate,
                .out = args.out.as<Bf16>(),
                .out_stride = args.out.stride(0)},
               stream);
  return true;
}

}  // namespace fathom::cuda
