#include "cuda/gemm/large.h"

#include <algorithm>

#include "cuda/elementwise/combine_rows.h"
#include "cuda/elementwise/ops.h"
#include "cuda/gemm/choice.h"
#include "cuda/gemm/cublaslt.h"
#include "cuda/gemm/few_rows.h"
#include "cuda/gemm/few_rows_bf16.h"
#include "cuda/gemm/groups.cuh"
#include "cuda/gemm/product.cuh"
#include "cuda/gemm/quantize_rows.h"
#include "cuda/runtime/device_arena.h"
#include "ops/quantize_fp8.h"
#include "tuned/table.h"

namespace fathom::cuda {
namespace {

using tensor::Bf16, tensor::DType, tensor::num_scale_blocks, tensor::Tensor;

bool is_aligned(const Tensor& rows) {
  constexpr int64_t kBytes = 16;
  return reinterpret_cast<uintptr_t>(rows.data()) % kBytes == 0 &&
         rows.stride(0) * tensor::dtype_bytes(rows.dtype()) % kBytes == 0;
}

bool is_matrix(const ops::Weight& weight) {
  const DType dtype = weight.data.dtype();
  return dtype == DType::kBf16 || dtype == DType::kF8E4M3 || dtype == DType::kI8 ||
         dtype == DType::kU4x2;
}

// Rows of pairs are multiples of 16 bytes, too.
int64_t row_multiple(Stored weight) { return holds_pairs(weight) ? 32 : 16; }

// By shapes and types alone: what decides the scratch.
bool takes_shape(const ops::LinearArgs& args) {
  const ops::Weight& weight = args.weight;
  const int64_t in = args.x.dim(1), out = weight.data.dim(0);
  return is_matrix(weight) && in % row_multiple(stored_as(weight)) == 0 && out % 8 == 0 &&
         out > 0 && in > 0;
}

bool quantises(const ops::Activation& x, Stored weight) {
  return takes_quantised(weight) && !x.is_quantised();
}

struct QuantisedRows {
  void* q;
  float* scale;
};
QuantisedRows carve_rows(Stored weight, int64_t rows, int64_t dim, DeviceArena& arena) {
  return {.q = arena.take<char>(rows * dim),
          .scale = arena.take<float>(rows * num_row_scales(weight, dim))};
}

void quantise(const Tensor& values, Stored weight, const QuantisedRows& rows, ops::Stream& stream) {
  const int64_t tokens = values.dim(0), dim = values.dim(1);
  if (takes_i8(weight))
    return quantize_rows({.kind = row_kind(weight),
                          .x = values.data(),
                          .stride = values.stride(0),
                          .q = rows.q,
                          .scale = rows.scale,
                          .rows = tokens,
                          .dim = static_cast<int>(dim)},
                         stream);
  cuda::quantize_fp8(
      {.x = values,
       .q = Tensor::contiguous(rows.q, DType::kF8E4M3, {tokens, dim}),
       .scale = Tensor::contiguous(rows.scale, DType::kF32, {tokens, num_scale_blocks(dim)})},
      stream);
}
// Sets the rows of the product to those of x, quantised if need be.
void take_rows(const ops::Activation& x, const QuantisedRows& rows, ProductArgs& product,
               ops::Stream& stream) {
  const int64_t tokens = x.dim(0), dim = x.dim(1);
  product.a = {.data = x.values.data(),
               .dtype = product.a.dtype,
               .rows = tokens,
               .columns = dim,
               .stride = x.values.stride(0)};
  if (!takes_quantised(product.weight)) return;
  if (x.is_quantised()) {
    product.a_scale = x.scale.as<float>();
    return;
  }
  quantise(x.values, product.weight, rows, stream);
  product.a.data = rows.q;
  product.a.stride = dim;
  product.a_scale = rows.scale;
}

const float* scales_of(const ops::Weight& weight) {
  return takes_quantised(stored_as(weight)) ? weight.scale.as<float>() : nullptr;
}
const uint16_t* zero_points_of(const ops::Weight& weight) {
  const bool has_some = stored_as(weight) == Stored::kU4;
  return has_some ? static_cast<const uint16_t*>(weight.scale.data()) : nullptr;
}

// The product without the address of its rows.
ProductArgs dense_product(const ops::LinearArgs& args) {
  const ops::Weight& weight = args.weight;
  const Stored stored = stored_as(weight);
  const int64_t dim = args.x.dim(1);
  return {.weight = stored,
          .a = {.dtype = row_dtype_of(stored),
                .rows = args.x.dim(0),
                .columns = dim,
                .stride = quantises(args.x, stored) ? dim : args.x.values.stride(0)},
          .b = weight.data.data(),
          .b_scale = scales_of(weight),
          .zero_points = zero_points_of(weight),
          .group_channels = ops::zero_point_channels(weight),
          .n = weight.data.dim(0),
          .accumulate = args.accumulate,
          .out = args.out.data(),
          .out_dtype = args.out.dtype(),
          .out_stride = args.out.stride(0)};
}

struct LinearScratch {
  QuantisedRows rows;       // of plain rows
  CublasLtScratch library;  // of calls that it may get, or that smaller ones may
};
LinearScratch carve(const ops::LinearArgs& args, DeviceArena& arena) {
  const ProductArgs product = dense_product(args);
  const int64_t rows = product.a.rows, dim = product.a.columns;
  LinearScratch scratch{};
  if (quantises(args.x, product.weight))
    scratch.rows = carve_rows(product.weight, rows, dim, arena);
  if (!library_knows(product.weight)) return scratch;
  const std::vector<int64_t> measured = library_rows_up_to(product.a.dtype, product.n, dim, rows);
  for (const int64_t measured_rows : measured) prepare_cublaslt(product, measured_rows);
  if (!measured.empty()) scratch.library = carve_cublaslt(product, arena);
  return scratch;
}

}  // namespace

int64_t large_linear_scratch(const ops::LinearArgs& args) {
  if (!takes_shape(args)) return 0;
  DeviceArena arena;
  carve(args, arena);
  return arena.bytes();
}

namespace {

// By the library if `measured_rows` says so and it can, else by our kernels unless it has to be the library.
bool run_linear(const ops::LinearArgs& args, std::optional<int64_t> measured_rows,
                bool has_to_be_library, ops::Stream& stream) {
  if (!takes_shape(args) || !is_aligned(args.x.values) || !is_aligned(args.out) ||
      !is_aligned(args.weight.data))
    return false;
  DeviceArena arena(stream.scratch());
  const LinearScratch scratch = carve(args, arena);
  ProductArgs product = dense_product(args);
  take_rows(args.x, scratch.rows, product, stream);
  if (measured_rows && cublaslt_takes(product) &&
      cublaslt_product(product, *measured_rows, scratch.library, stream))
    return true;
  if (has_to_be_library) return false;
  const tuned::MatrixChoice tiles =
      choose_tiles(dtype_of(product.weight), product.n, product.a.columns, product.a.rows);
  product.tile = tiles.tile;
  product.raster = tiles.raster;
  tiled_product(product, stream);
  return true;
}

}  // namespace

bool large_linear(const ops::LinearArgs& args, ops::Stream& stream) {
  const Tensor& weight = args.weight.data;
  const int64_t rows = args.x.dim(0);
  if (rows == 0) return true;
  return run_linear(args, library_rows(weight.dtype(), weight.dim(0), weight.dim(1), rows),
                    /*has_to_be_library=*/false, stream);
}

bool library_linear(const ops::LinearArgs& args, ops::Stream& stream) {
  return run_linear(args, args.x.dim(0), /*has_to_be_library=*/true, stream);
}

namespace {

ops::LinearArgs first_of(const ops::LinearPairArgs& pair) {
  return {.x = pair.x, .weight = pair.a.weight, .out = pair.a.out};
}
ops::LinearArgs second_of(const ops::LinearPairArgs& pair) {
  return {.x = pair.x, .weight = pair.b.weight, .out = pair.b.out};
}

bool takes_shape(const ops::LinearPairArgs& pair) {
  return takes_shape(first_of(pair)) && takes_shape(second_of(pair)) &&
         !holds_pairs(stored_as(pair.a.weight)) &&
         pair.a.weight.data.dim(0) % kSecondAlignment == 0 && pair.a.out.dtype() == DType::kBf16 &&
         pair.b.out.dtype() == DType::kBf16;
}

}  // namespace

int64_t large_linear_pair_scratch(const ops::LinearPairArgs& args) {
  const Stored weight = stored_as(args.a.weight);
  if (!takes_shape(args) || !quantises(args.x, weight)) return 0;
  DeviceArena arena;
  carve_rows(weight, args.x.dim(0), args.x.dim(1), arena);
  return arena.bytes();
}

bool large_linear_pair(const ops::LinearPairArgs& args, ops::Stream& stream) {
  if (!takes_shape(args) || !is_aligned(args.x.values)) return false;
  for (const ops::LinearPairArgs::Product& part : {args.a, args.b})
    if (!is_aligned(part.weight.data) || !is_aligned(part.out)) return false;
  ProductArgs product = dense_product(first_of(args));
  const ProductArgs second = dense_product(second_of(args));
  if (library_rows(product.a.dtype, product.n + second.n, product.a.columns, product.a.rows))
    return false;
  if (product.a.rows == 0) return true;
  const double apart = rounds_of(product) + rounds_of(second);
  product.second = {.b = second.b,
                    .b_scale = second.b_scale,
                    .n = second.n,
                    .out = second.out,
                    .out_stride = second.out_stride};
  if (rounds_of(product) > apart) return false;
  QuantisedRows rows{};
  if (quantises(args.x, product.weight)) {
    DeviceArena arena(stream.scratch());
    rows = carve_rows(product.weight, product.a.rows, product.a.columns, arena);
  }
  take_rows(args.x, rows, product, stream);
  tiled_product(product, stream);
  return true;
}

namespace {

struct ExpertScratch {
  Groups groups;
  QuantisedRows x;  // [tokens, hidden_size], of plain rows
  void* h;          // as down takes it, [max_rows, inter]
  float* h_scale;   // f32[max_rows, scales of a row]
  float* h_f32;     // f32[max_rows, inter], of i8 with scales of channels: a row is in many tiles
  float* carried;   // of few rows, few_rows.h
  Bf16* y;          // bf16[max_rows, hidden_size]
};

struct ExpertSizes {
  GroupSizes groups;
  int64_t hidden_size, inter;
  Stored weight;
  bool takes_few_rows;  // calls of few tokens by kernels of their own
  bool quantises_whole_rows() const { return weight == Stored::kI8Channels; }
  bool has_few_rows() const { return groups.tile_rows == kFewTileRows; }
};

ExpertSizes sizes_of(const ops::MoeExpertsArgs& args) {
  const int64_t inter = ops::row_values(args.down.data), hidden_size = args.down.data.dim(1);
  const Stored weight = stored_as(args.down);
  const bool may_have_few =
      takes_few_rows(weight, inter, hidden_size) || takes_few_rows_bf16(weight, inter, hidden_size);
  const int64_t most_few = weight == Stored::kBf16 ? kFewRowsBf16Tokens : kFewRowsTokens;
  const bool has_few = may_have_few && args.ids.dim(0) <= most_few;
  return {.groups = {.tokens = args.ids.dim(0),
                     .num_experts_per_tok = args.ids.dim(1),
                     .first_expert = args.first_expert,
                     .experts = args.down.data.dim(0),
                     .gathered_columns = (inter + kGatheredTileColumns - 1) / kGatheredTileColumns,
                     .tile_rows = has_few ? kFewTileRows : kGroupTileRows},
          .hidden_size = hidden_size,
          .inter = inter,
          .weight = weight,
          .takes_few_rows = may_have_few};
}

// The scale blocks of gate and up must join.
bool takes_shape(const ExpertSizes& s) {
  const int64_t row_of = row_multiple(s.weight);
  const bool has_blocks = takes_quantised(s.weight) && !s.quantises_whole_rows();
  return s.weight != Stored::kF32 && s.hidden_size % row_of == 0 && s.inter % row_of == 0 &&
         s.inter > 0 && s.hidden_size > 0 && s.groups.all_experts() <= kMaxGroups &&
         s.groups.experts > 0 && (!has_blocks || s.inter % tensor::kScaleBlock == 0);
}

ExpertScratch carve(const ExpertSizes& s, bool quantises_x, DeviceArena& arena) {
  ExpertScratch scratch{};
  const int64_t rows = s.groups.max_rows();
  scratch.groups = carve_groups(s.groups, arena);
  if (quantises_x) scratch.x = carve_rows(s.weight, s.groups.tokens, s.hidden_size, arena);
  scratch.h = arena.take<char>(rows * s.inter * tensor::dtype_bytes(row_dtype_of(s.weight)));
  if (takes_quantised(s.weight))
    scratch.h_scale = arena.take<float>(rows * num_row_scales(s.weight, s.inter));
  if (s.quantises_whole_rows()) scratch.h_f32 = arena.take<float>(rows * s.inter);
  // This call may have many rows, but a smaller one has few.
  if (s.takes_few_rows && takes_quantised(s.weight))
    scratch.carried = arena.take<float>(few_rows_carried());
  scratch.y = arena.take<Bf16>(rows * s.hidden_size);
  return scratch;
}

// Rows sorted by expert times the experts' matrices, without the rows.
ProductArgs grouped_product(const ExpertSizes& s, const GroupTiles& tiles, int64_t max_tiles,
                            const ops::Weight& weight, int64_t out) {
  return {.weight = s.weight,
          .a = {.dtype = row_dtype_of(s.weight)},
          .b = weight.data.data(),
          .b_scale = scales_of(weight),
          .zero_points = zero_points_of(weight),
          .group_channels = ops::zero_point_channels(weight),
          .groups = s.groups.experts,
          .n = out,
          .out_stride = out,
          .tiles = tiles.tiles,
          .num_tiles = tiles.count,
          .max_tiles = max_tiles,
          .taken = tiles.taken};
}

// h = silu(gate) * up, in the registers of the product; quantised there if a scale is of 128 channels. shared: null
// without shared experts, as below.
void run_gate_up(const ops::MoeExpertsArgs& args, const ops::MoeExpertsSharedArgs* shared,
                 const ExpertSizes& s, const ExpertScratch& scratch, ops::Stream& stream) {
  const Groups& groups = scratch.groups;
  ProductArgs up = grouped_product(s, groups.gathered_tiles, s.groups.max_gathered_tiles(),
                                   args.gate_up, 2 * s.inter);
  take_rows(args.x, scratch.x, up, stream);
  up.a_rows = groups.token_of_row;
  up.num_rows = s.groups.max_rows();
  up.is_gated = true;
  if (shared != nullptr)
    up.more = {.b = shared->shared_gate_up.data.data(), .groups = s.groups.shared};
  up.out = s.quantises_whole_rows() ? scratch.h_f32 : scratch.h;
  up.out_dtype = s.quantises_whole_rows() ? DType::kF32 : DType::kBf16;
  up.out_scale = s.quantises_whole_rows() ? nullptr : scratch.h_scale;
  up.out_stride = s.inter;
  tiled_product(up, stream);
  if (!s.quantises_whole_rows()) return;
  quantize_rows({.kind = row_kind(s.weight),
                 .x = scratch.h_f32,
                 .stride = s.inter,
                 .x_is_float = true,
                 .q = scratch.h,
                 .scale = scratch.h_scale,
                 .rows = s.groups.max_rows(),
                 .dim = static_cast<int>(s.inter)},
                stream);
}

// Of FP8 experts with few rows. shared: null without a shared expert.
void run_few_f8(const ops::MoeExpertsArgs& args, const ops::MoeExpertsSharedArgs* shared,
                const ExpertSizes& s, const ExpertScratch& scratch, ops::Stream& stream) {
  ProductArgs rows;
  rows.weight = s.weight;
  take_rows(args.x, scratch.x, rows, stream);
  FewRowsArgs few{.x = rows.a.data,
                  .x_scale = rows.a_scale,
                  .x_stride = rows.a.stride,
                  .hidden_size = s.hidden_size,
                  .inter = s.inter,
                  .experts = s.groups.experts,
                  .gate_up = args.gate_up.data.data(),
                  .gate_up_scale = scales_of(args.gate_up),
                  .down = args.down.data.data(),
                  .down_scale = scales_of(args.down),
                  .tiles = scratch.groups.tiles,
                  .most_tiles = s.groups.max_tiles(),
                  .token_of_row = scratch.groups.token_of_row,
                  .counters = scratch.groups.counters,
                  .carried = scratch.carried,
                  .h = static_cast<uint8_t*>(scratch.h),
                  .h_scale = scratch.h_scale,
                  .y = scratch.y};
  if (shared != nullptr) {
    few.shared_gate_up = shared->shared_gate_up.data.data();
    few.shared_gate_up_scale = scales_of(shared->shared_gate_up);
    few.shared_down = shared->shared_down.data.data();
    few.shared_down_scale = scales_of(shared->shared_down);
  }
  few_rows_experts(few, stream);
}

// Gate and up, then down, of bf16. shared: null without shared experts.
void run_few_bf16(const ops::MoeExpertsArgs& args, const ops::MoeExpertsSharedArgs* shared,
                  const ExpertSizes& s, const ExpertScratch& scratch, ops::Stream& stream) {
  const auto values = [](const Tensor& of) { return static_cast<const Bf16*>(of.data()); };
  few_rows_bf16({.x = values(args.x.values),
                 .x_stride = args.x.values.stride(0),
                 .hidden_size = s.hidden_size,
                 .inter = s.inter,
                 .experts = s.groups.experts,
                 .gate_up = values(args.gate_up.data),
                 .down = values(args.down.data),
                 .shared = s.groups.shared,
                 .shared_gate_up = shared ? values(shared->shared_gate_up.data) : nullptr,
                 .shared_down = shared ? values(shared->shared_down.data) : nullptr,
                 .tiles = scratch.groups.tiles,
                 .most_tiles = s.groups.max_tiles(),
                 .token_of_row = scratch.groups.token_of_row,
                 .counters = scratch.groups.counters,
                 .h = static_cast<Bf16*>(scratch.h),
                 .y = scratch.y},
                stream);
}

void run_down(const ops::MoeExpertsArgs& args, const ops::MoeExpertsSharedArgs* shared,
              const ExpertSizes& s, const ExpertScratch& scratch, ops::Stream& stream) {
  ProductArgs down =
      grouped_product(s, scratch.groups.tiles, s.groups.max_tiles(), args.down, s.hidden_size);
  down.a = {.data = scratch.h,
            .dtype = row_dtype_of(s.weight),
            .rows = s.groups.max_rows(),
            .columns = s.inter,
            .stride = s.inter};
  down.a_scale = scratch.h_scale;
  down.out = scratch.y;
  if (shared != nullptr)
    down.more = {.b = shared->shared_down.data.data(), .groups = s.groups.shared};
  down.tile =
      tuned::choose({.dtype = dtype_of(s.weight), .experts = s.groups.experts, .inter = s.inter},
                    s.groups.tokens)
          .down_tile;
  tiled_product(down, stream);
}

}  // namespace

bool large_takes_few(const ops::MoeExpertsArgs& args) {
  const ExpertSizes s = sizes_of(args);
  return takes_shape(s) && s.takes_few_rows;
}

int64_t large_moe_experts_scratch(const ops::MoeExpertsArgs& args) {
  const ExpertSizes s = sizes_of(args);
  if (!takes_shape(s)) return 0;
  DeviceArena arena;
  carve(s, quantises(args.x, s.weight), arena);
  return arena.bytes();
}

namespace {

// shared: null without shared experts.
bool run_experts(const ops::MoeExpertsArgs& args, const ops::MoeExpertsSharedArgs* shared,
                 const ExpertSizes& s, ops::Stream& stream) {
  if (s.groups.tokens == 0) return true;
  if (!takes_shape(s) || !is_aligned(args.x.values) || !is_aligned(args.out) ||
      !is_aligned(args.gate_up.data) || !is_aligned(args.down.data))
    return false;
  DeviceArena arena(stream.scratch());
  const ExpertScratch scratch = carve(s, quantises(args.x, s.weight), arena);
  sort_pairs(s.groups, args.ids.as<int32_t>(), scratch.groups, stream);
  if (s.has_few_rows()) {
    const auto run = s.weight == Stored::kBf16 ? run_few_bf16 : run_few_f8;
    run(args, shared, s, scratch, stream);
  } else {
    run_gate_up(args, shared, s, scratch, stream);
    run_down(args, shared, s, scratch, stream);
  }
  combine_rows({.y = scratch.y,
                .weights = args.weights.as<float>(),
                .row_of_pair = scratch.groups.row_of_pair,
                .tokens = s.groups.tokens,
                .copies = s.groups.per_token(),
                .dim = s.hidden_size,
                .shared = s.groups.shared,
                .accumulate = args.accumulate,
                .out = args.out.as<Bf16>(),
                .out_stride = args.out.stride(0)},
               stream);
  return true;
}

ExpertSizes sizes_of(const ops::MoeExpertsSharedArgs& args) {
  ExpertSizes s = sizes_of(args.experts);
  s.groups.shared = ops::row_values(args.shared_down.data) / s.inter;
  // Shared experts have all the rows: of bf16 more than one tile of few is slower than tiles of many.
  if (s.weight == Stored::kBf16 && s.groups.tokens > kFewTileRows)
    s.groups.tile_rows = kGroupTileRows;
  return s;
}

}  // namespace

bool large_moe_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream) {
  return run_experts(args, nullptr, sizes_of(args), stream);
}

bool large_takes_shared(const ops::MoeExpertsSharedArgs& args) {
  const ExpertSizes s = sizes_of(args);
  const bool takes_them = s.weight == Stored::kBf16 ? s.groups.tokens <= kMostSharedTokens
                                                    : s.has_few_rows() && s.groups.shared == 1;
  return takes_shape(s) && s.takes_few_rows && takes_them &&
         ops::row_values(args.shared_down.data) == s.groups.shared * s.inter;
}

int64_t large_moe_experts_shared_scratch(const ops::MoeExpertsSharedArgs& args) {
  const ExpertSizes s = sizes_of(args);
  DeviceArena arena;
  carve(s, quantises(args.experts.x, s.weight), arena);
  return arena.bytes();
}

bool large_moe_experts_shared(const ops::MoeExpertsSharedArgs& args, ops::Stream& stream) {
  return is_aligned(args.shared_gate_up.data[0]) && is_aligned(args.shared_down.data) &&
         run_experts(args.experts, &args, sizes_of(args), stream);
}

}  // namespace fathom::cuda
