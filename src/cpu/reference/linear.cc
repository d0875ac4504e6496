#include "ops/linear.h"

#include <algorithm>

#include "cpu/reference/matmul.h"
#include "cpu/reference/ops.h"
#include "cpu/stream.h"
#include "ops/head_linear.h"

namespace fathom::cpu::reference {

using tensor::num_scale_blocks, tensor::Tensor;

namespace {

struct LinearScratch {
  float* weight_row;  // [in]
  float* q;           // f8, i8: [kTileTokens, in]
  float* q_scale;     // f8, i8: [kTileTokens, ceil(in / 128)]
};

LinearScratch carve(const ops::Weight& weight, int64_t in, ScratchArena& arena) {
  const int64_t quantised_rows = ops::quantises_rows(weight) ? kTileTokens : 0;
  return {.weight_row = arena.take<float>(in),
          .q = arena.take<float>(quantised_rows * in),
          .q_scale = arena.take<float>(quantised_rows * num_scale_blocks(in))};
}

}  // namespace

int64_t linear_scratch(const ops::LinearArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args.weight, args.x.dim(1), arena);
  return arena.bytes();
}

// Of the products one after the other.
int64_t linear_pair_scratch(const ops::LinearPairArgs& args, const ops::Stream& stream) {
  return std::max(
      linear_scratch({.x = args.x, .weight = args.a.weight, .out = args.a.out}, stream),
      linear_scratch({.x = args.x, .weight = args.b.weight, .out = args.b.out}, stream));
}

int64_t head_linear_scratch(const ops::HeadLinearArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args.weight, args.x.dim(2), arena);
  return arena.bytes();
}

void linear(const ops::LinearArgs& args, ops::Stream& stream) {
  const Tensor& weight = args.weight.data;
  const int64_t tokens = args.x.dim(0), in = args.x.dim(1), out = weight.dim(0);
  const int64_t in_blocks = num_scale_blocks(in);
  const bool quantised = ops::quantises_rows(args.weight);
  ScratchArena arena(stream.scratch());
  const LinearScratch scratch = carve(args.weight, in, arena);
  for (int64_t begin = 0; begin < tokens; begin += kTileTokens) {
    const int64_t rows = std::min(kTileTokens, tokens - begin);
    for (int64_t row = 0; quantised && row < rows; ++row) {
      quantised_floats(args.weight, args.x, begin + row, scratch.q + row * in,
                       scratch.q_scale + row * in_blocks);
    }
    matmul({.x = quantised ? scratch.q : args.x.values.row<float>(begin),
            .x_stride = quantised ? in : args.x.values.stride(0),
            .x_scale = scratch.q_scale,
            .rows = rows,
            .weight = weight.data(),
            .dtype = weight.dtype(),
            .form = ops::scale_form(args.weight),
            .scale = ops::matrix_scale(args.weight),
            .zero_channels = ops::zero_point_channels(args.weight),
            .in = in,
            .out = out,
            .weight_row = scratch.weight_row,
            .y = args.out.row<float>(begin),
            .y_stride = args.out.stride(0),
            .accumulate = args.accumulate});
  }
}

void linear_pair(const ops::LinearPairArgs& args, ops::Stream& stream) {
  reference::linear({.x = args.x, .weight = args.a.weight, .out = args.a.out}, stream);
  reference::linear({.x = args.x, .weight = args.b.weight, .out = args.b.out}, stream);
}

void head_linear(const ops::HeadLinearArgs& args, ops::Stream& stream) {
  const int64_t tokens = args.x.dim(0), heads = args.x.dim(1), in = args.x.dim(2);
  const int64_t in_blocks = num_scale_blocks(in);
  const bool quantised = ops::quantises_rows(args.weight);
  ScratchArena arena(stream.scratch());
  const LinearScratch scratch = carve(args.weight, in, arena);
  for (int64_t head = 0; head < heads; ++head) {
    const Tensor weight = args.weight.data[head];
    for (int64_t begin = 0; begin < tokens; begin += kTileTokens) {
      const int64_t rows = std::min(kTileTokens, tokens - begin);
      for (int64_t row = 0; quantised && row < rows; ++row) {
        quantize_row_to_floats(args.x.row<float>(begin + row, head), in, scratch.q + row * in,
                               scratch.q_scale + row * in_blocks);
      }
      matmul({.x = quantised ? scratch.q : args.x.row<float>(begin, head),
              .x_stride = quantised ? in : args.x.stride(0),
              .x_scale = scratch.q_scale,
              .rows = rows,
              .weight = weight.data(),
              .dtype = weight.dtype(),
              .form = ops::scale_form(args.weight),
              .scale = ops::matrix_scale(args.weight, head),
              .in = in,
              .out = weight.dim(0),
              .weight_row = scratch.weight_row,
              .y = args.out.row<float>(begin, head),
              .y_stride = args.out.stride(0)});
    }
  }
}

}  // namespace fathom::cpu::reference
