#include "ops/linear.h"

#include <algorithm>

#include "cuda/gemm/choice.h"
#include "cuda/gemm/large.h"
#include "cuda/gemm/quantize_rows.h"
#include "cuda/linear/batch_product.h"
#include "cuda/linear/choose.h"
#include "cuda/linear/held_product.h"
#include "cuda/linear/ops.h"
#include "cuda/linear/zero_points.h"
#include "cuda/runtime/device_arena.h"
#include "cuda/runtime/stream.cuh"
#include "ops/head_linear.h"

namespace fathom::cuda {
namespace {

using tensor::DType, tensor::Tensor;

struct Scratch {
  void* q = nullptr;
  float* scale = nullptr;
};

bool quantises(const ops::Activation& x, Stored weight) {
  return takes_quantised(weight) && !x.is_quantised();
}

// Scratch for rows that are quantised here, each head's for itself.
Scratch carve(Stored weight, int64_t rows, int64_t dim, DeviceArena& arena) {
  return {.q = arena.take<char>(rows * dim),
          .scale = arena.take<float>(rows * num_row_scales(weight, dim))};
}

int64_t quantised_bytes(Stored weight, int64_t rows, int64_t dim) {
  DeviceArena arena;
  carve(weight, rows, dim, arena);
  return arena.bytes();
}

// From now on `params` has the rows quantised, in scratch.
void quantise(QuantizeRowsParams rows, Stored weight, ProductParams& params, ops::Stream& stream) {
  DeviceArena arena(stream.scratch());
  const Scratch scratch = carve(weight, rows.rows * rows.heads, rows.dim, arena);
  rows.kind = row_kind(weight);
  rows.q = scratch.q;
  rows.scale = scratch.scale;
  rows.starts_next_early = true;  // the product reads its weights and waits
  quantize_rows(rows, stream);
  params.x = static_cast<const char*>(scratch.q);
  params.x_scale = scratch.scale;
  params.x_head_bytes = rows.dim;
  params.x_stride_bytes = int64_t{rows.heads} * rows.dim;
}

bool may_be_large(int64_t tokens, const ops::Stream& stream) {
  return tokens > kMaxBatchTokens && !stream.backend().batch_invariant;
}
// Calls of many rows that the kernels of a batch take, of one matrix or of two.
bool is_many_for_batch(const ops::Activation& x, const ops::Weight& a, int64_t rows_of_b) {
  const int64_t rows_of_a = a.data.dim(0);
  if (has_zero_points(a) || is_chosen(a.data.dtype(), rows_of_a + rows_of_b, x.dim(1), x.dim(0)))
    return false;
  ProductParams params;
  params.tokens = static_cast<int>(x.dim(0));
  params.a.rows = static_cast<int>(rows_of_a);
  params.b.rows = static_cast<int>(rows_of_b);
  return takes_many_rows(stored_as(a), params);
}

ProductPart part_of(const ops::Weight& weight, const Tensor& out) {
  ProductPart part{.weight = static_cast<const char*>(weight.data.data()),
                   .out = static_cast<char*>(out.data()),
                   .out_stride = out.stride(0),
                   .rows = static_cast<int>(weight.data.dim(0)),
                   .out_is_float = out.dtype() == DType::kF32};
  if (has_zero_points(weight)) {
    part.zero_points = static_cast<const uint16_t*>(weight.scale.data());
    part.group_channels = static_cast<int>(ops::zero_point_channels(weight));
  } else if (!weight.scale.is_null()) {
    part.w_scale = weight.scale.as<float>();
  }
  return part;
}

// The rows as the kernels read them, quantised if need be.
ProductParams params_of(const ops::Activation& x, Stored weight, ops::Stream& stream) {
  const Tensor& values = x.values;
  ProductParams params;
  params.tokens = static_cast<int>(x.dim(0));
  params.in = static_cast<int>(x.dim(1));
  params.x = static_cast<const char*>(values.data());
  params.x_stride_bytes = values.stride(0) * tensor::dtype_bytes(values.dtype());
  if (x.is_quantised()) params.x_scale = x.scale.as<float>();
  if (!quantises(x, weight)) return params;
  quantise(
      {.x = values.data(), .stride = values.stride(0), .rows = params.tokens, .dim = params.in},
      weight, params, stream);
  return params;
}

// The kernel of few rows expands the pairs again for every 32 rows, and nothing divides what a block has: 32 outputs.
bool run_zero_point_batch(const ops::LinearArgs& args, ops::Stream& stream) {
  const bool fills_device = args.weight.data.dim(0) >= int64_t{32} * num_multiprocessors();
  const bool has_few_rows = args.x.dim(0) <= kMaxStreamedTokens;
  if ((has_few_rows && fills_device) || stream.backend().batch_invariant) return false;
  ProductParams params = params_of(args.x, Stored::kU4, stream);
  params.a = part_of(args.weight, args.out);
  params.accumulate = args.accumulate;
  return run_batch_product(Stored::kU4, params, stream);
}

}  // namespace

int64_t linear_scratch(const ops::LinearArgs& args, const ops::Stream& stream) {
  const Stored weight = stored_as(args.weight);
  const bool quantised = quantises(args.x, weight);
  const int64_t mine = quantised ? quantised_bytes(weight, args.x.dim(0), args.x.dim(1)) : 0;
  const bool large = may_be_large(args.x.dim(0), stream);
  return large ? std::max(mine, large_linear_scratch(args)) : mine;
}

void linear(const ops::LinearArgs& args, ops::Stream& stream) {
  if (args.x.dim(0) == 0 || args.weight.data.dim(0) == 0) return;
  if (may_be_large(args.x.dim(0), stream) && !is_many_for_batch(args.x, args.weight, 0) &&
      large_linear(args, stream))
    return;
  if (has_zero_points(args.weight)) {
    if (!run_zero_point_batch(args, stream)) zero_point_linear(args, stream);
    return;
  }
  const Stored weight = stored_as(args.weight);
  ProductParams params = params_of(args.x, weight, stream);
  params.a = part_of(args.weight, args.out);
  params.accumulate = args.accumulate;
  run_product(weight, params, stream);
}

int64_t linear_pair_scratch(const ops::LinearPairArgs& args, const ops::Stream& stream) {
  const bool large = may_be_large(args.x.dim(0), stream);
  return std::max(
      {large ? large_linear_pair_scratch(args) : 0,
       linear_scratch({.x = args.x, .weight = args.a.weight, .out = args.a.out}, stream),
       linear_scratch({.x = args.x, .weight = args.b.weight, .out = args.b.out}, stream)});
}

void linear_pair(const ops::LinearPairArgs& args, ops::Stream& stream) {
  const bool one_is_empty = args.a.weight.data.dim(0) == 0 || args.b.weight.data.dim(0) == 0;
  const bool large = may_be_large(args.x.dim(0), stream) &&
                     !is_many_for_batch(args.x, args.a.weight, args.b.weight.data.dim(0));
  if (large && large_linear_pair(args, stream)) return;
  if (one_is_empty || large || has_zero_points(args.a.weight)) {
    cuda::linear({.x = args.x, .weight = args.a.weight, .out = args.a.out}, stream);
    cuda::linear({.x = args.x, .weight = args.b.weight, .out = args.b.out}, stream);
    return;
  }
  if (args.x.dim(0) == 0) return;
  const Stored weight = stored_as(args.a.weight);
  ProductParams params = params_of(args.x, weight, stream);
  params.a = part_of(args.a.weight, args.a.out);
  params.b = part_of(args.b.weight, args.b.out);
  run_product(weight, params, stream);
}

int64_t head_linear_scratch(const ops::HeadLinearArgs& args, const ops::Stream&) {
  if (args.weight.data.dtype() != DType::kF8E4M3) return 0;
  return quantised_bytes(Stored::kF8, args.x.dim(0) * args.x.dim(1), args.x.dim(2));
}

ProductParams head_product(const Tensor& x, const ops::Weight& weight) {
  const int64_t x_bytes = tensor::dtype_bytes(x.dtype());
  ProductParams params;
  params.tokens = static_cast<int>(x.dim(0));
  params.heads = static_cast<int>(x.dim(1));
  params.in = static_cast<int>(x.dim(2));
  params.x = static_cast<const char*>(x.data());
  params.x_stride_bytes = x.stride(0) * x_bytes;
  params.x_head_bytes = x.stride(1) * x_bytes;
  params.a = {.weight = static_cast<const char*>(weight.data.data()),
              .weight_head_bytes = weight.data.stride(0) * tensor::dtype_bytes(weight.data.dtype()),
              .rows = static_cast<int>(weight.data.dim(1))};
  return params;
}

void head_linear(const ops::HeadLinearArgs& args, ops::Stream& stream) {
  const Tensor& scale = args.weight.scale;
  if (args.x.dim(0) == 0 || args.x.dim(1) == 0 || args.weight.data.dim(1) == 0) return;
  ProductParams params = head_product(args.x, args.weight);
  params.a.out = static_cast<char*>(args.out.data());
  params.a.out_stride = args.out.stride(0);
  params.a.out_head = args.out.stride(1);
  const Stored stored = stored_as(args.weight);
  if (stored == Stored::kF8) {
    params.a.w_scale = scale.as<float>();
    params.a.w_scale_head = scale.stride(0);
    quantise({.x = args.x.data(),
              .stride = args.x.stride(0),
              .head_stride = args.x.stride(1),
              .rows = params.tokens,
              .heads = params.heads,
              .dim = params.in},
             stored, params, stream);
  }
  run_product(stored, params, stream);
}

namespace {

// Of two matrices both or, where one alone is held, each by itself: what is held does not depend on the other one.
bool run_held(Stored weight, const ProductParams& params, ops::Stream& stream) {
  if (params.tokens > kMaxStreamedTokens || stream.backend().batch_invariant) return false;
  const bool a = is_held(weight, params, params.a);
  const bool b = params.b.rows > 0 && is_held(weight, params, params.b);
  if (!a && !b) return false;
  if (params.b.rows > 0 && a != b) {
    for (const ProductPart& part : {params.a, params.b}) {
      ProductParams alone = params;
      alone.a = part;
      alone.b = {};
      run_product(weight, alone, stream);
    }
    return true;
  }
  run_held_product(weight, params, stream);
  return true;
}

}  // namespace

void run_product(Stored weight, const ProductParams& all, ops::Stream& stream) {
  ProductParams params = all;
  take_choices(dtype_of(weight), params, stream);
  if (run_held(weight, params, stream)) return;
  const bool may_be_batch = params.tokens > kMaxStreamedTokens && !stream.backend().batch_invariant;
  if (may_be_batch && run_batch_product(weight, params, stream)) return;
  switch (weight) {
    case Stored::kF32:
      return run_product_f32(params, stream);
    case Stored::kBf16:
      return run_product_bf16(params, stream);
    case Stored::kF8:
      return run_product_f8(params, stream);
    case Stored::kI4:
      return run_product_i4(params, stream);
    case Stored::kI8Blocks:
      return run_product_i8_blocks(params, stream);
    case Stored::kI8Channels:
      return run_product_i8_channels(params, stream);
    case Stored::kU4:
      FATHOM_CHECK(false, "these kernels take no zero points");
  }
}

}  // namespace fathom::cuda
