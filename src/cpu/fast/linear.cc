// Floors, decode (one row of x): the bytes of the weight, once, against the read bandwidth. Prefill: 2 *
// tokens * out * in floating-point operations against the FMA units; a widened weight tile is used by
// kTileTokens rows, so conversion stays a few percent.
#include "ops/linear.h"

#include <algorithm>

#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/fast/weight_rows.h"
#include "ops/head_linear.h"

namespace fathom::cpu::fast {

namespace {

// Row pointers of a product and, for f8, the quantised rows behind them, all in scratch.
struct PreparedRows {
  const float** values = nullptr;
  const float** scales = nullptr;  // null without f8
  float** out = nullptr;
  float* q = nullptr;        // f8: [tokens, q_stride(in)]
  float* q_scale = nullptr;  // f8: [tokens, ceil(in / 128)]
};

// Quantised rows start on a vector boundary.
int64_t q_stride(int64_t in) { return (in + 15) / 16 * 16; }

PreparedRows carve(const ops::LinearArgs& args, ScratchArena& arena) {
  const int64_t tokens = args.x.dim(0), in = args.x.dim(1);
  PreparedRows rows{.values = arena.take<const float*>(tokens), .out = arena.take<float*>(tokens)};
  if (args.weight.data.dtype() == tensor::DType::kF8E4M3) {
    rows.scales = arena.take<const float*>(tokens);
    rows.q = arena.take<float>(tokens * q_stride(in));
    rows.q_scale = arena.take<float>(tokens * num_scale_blocks(in));
  }
  return rows;
}

PreparedRows prepare(const ops::LinearArgs& args, FastStream& stream) {
  const int64_t tokens = args.x.dim(0), in = args.x.dim(1);
  const int64_t stride = q_stride(in), blocks = num_scale_blocks(in);
  ScratchArena arena(stream.scratch());
  const PreparedRows rows = carve(args, arena);
  const bool quantised = rows.scales != nullptr;
  for (int64_t i = 0; i < tokens; ++i) {
    rows.out[i] = args.out.row<float>(i);
    rows.values[i] = quantised ? rows.q + i * stride : args.x.row<float>(i);
    if (quantised) rows.scales[i] = rows.q_scale + i * blocks;
  }
  if (quantised) {
    stream.run(tokens, tokens * in, [&](int64_t i, int) {
      stream.kernels().quantize_row(args.x.row<float>(i), in, rows.q + i * stride,
                                    rows.q_scale + i * blocks);
    });
  }
  return rows;
}

// Row pointers of every head: [heads, tokens].
struct HeadRows {
  const float** x = nullptr;
  float** out = nullptr;
};

HeadRows carve(const ops::HeadLinearArgs& args, ScratchArena& arena) {
  const int64_t rows = args.x.dim(0) * args.x.dim(1);
  return {.x = arena.take<const float*>(rows), .out = arena.take<float*>(rows)};
}

template <class Args>
int64_t carved_bytes(const Args& args) {
  ScratchArena arena;
  carve(args, arena);
  return arena.bytes();
}

}  // namespace

int64_t linear_scratch(const ops::LinearArgs& args, const ops::Stream&) {
  return carved_bytes(args);
}

int64_t head_linear_scratch(const ops::HeadLinearArgs& args, const ops::Stream&) {
  return carved_bytes(args);
}

void linear(const ops::LinearArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const WeightRows weight = WeightRows::of(args.weight);
  const int64_t tokens = args.x.dim(0);
  const PreparedRows rows = prepare(args, stream);
  const bool direct = tokens <= stream.kernels().direct_tokens;
  const int64_t step =
      direct ? rows_per_task(weight.rows, weight.in, tokens, stream.num_threads()) : kTileRows;
  const int64_t num_columns = (weight.rows + step - 1) / step;
  const TokenGroups groups(tokens);
  stream.run(num_columns * groups.count, tokens * weight.rows * weight.in,
             [&](int64_t task, int worker) {
               const int64_t begin = task % num_columns * step;
               const int64_t row = groups.begin(task / num_columns);
               const XRows x{rows.values, rows.scales, tokens};
               multiply(stream.kernels(), weight,
                        {.x = x.slice(row, groups.begin(task / num_columns + 1)),
                         .out = rows.out + row,
                         .accumulate = args.accumulate,
                         .workspace = stream.workspace(worker)},
                        begin, std::min(begin + step, weight.rows));
             });
}

void head_linear(const ops::HeadLinearArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.x.dim(0), heads = args.x.dim(1);
  const int64_t out_dim = args.weight.dim(1), in_dim = args.weight.dim(2);
  ScratchArena arena(stream.scratch());
  const HeadRows rows = carve(args, arena);
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t token = 0; token < tokens; ++token) {
      rows.x[head * tokens + token] = args.x.row<float>(token, head);
      rows.out[head * tokens + token] = args.out.row<float>(token, head);
    }
  }
  const TokenGroups groups(tokens);
  stream.run(heads * groups.count, tokens * heads * out_dim * in_dim,
             [&](int64_t task, int worker) {
               const int64_t head = task / groups.count, row = groups.begin(task % groups.count);
               const int64_t end = groups.begin(task % groups.count + 1), at = head * tokens + row;
               const WeightRows weight = WeightRows::of({.data = args.weight[head], .scale = {}});
               multiply(stream.kernels(), weight,
                        {.x = {rows.x + at, nullptr, end - row},
                         .out = rows.out + at,
                         .workspace = stream.workspace(worker)},
                        0, out_dim);
             });
}

}  // namespace fathom::cpu::fast
