// Floors, decode (one row of x): the bytes of the weight, once, against the read bandwidth. Prefill: 2 *
// tokens * out * in floating-point operations against the FMA units; a widened weight tile is used by
// kTileTokens rows, so conversion stays a few percent.
#include "ops/linear.h"

#include <algorithm>
#include <span>

#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/fast/weight_rows.h"
#include "ops/head_linear.h"

namespace fathom::cpu::fast {

namespace {

// Rows of x as the kernels read them and, for f8 and i8, the quantised rows behind them, all in scratch.
struct PreparedRows {
  const float** values = nullptr;
  const float** scales = nullptr;  // null without quantised weights
  float* q = nullptr;              // f8, i8: [tokens, grid_row_floats(in)]
  float* q_scale = nullptr;        // f8, i8: [tokens, ceil(in / 128)]
};

PreparedRows carve(const ops::Activation& x, const ops::Weight& weight, ScratchArena& arena) {
  const int64_t tokens = x.dim(0), in = x.dim(1);
  PreparedRows rows{.values = arena.take<const float*>(tokens)};
  if (ops::quantises_rows(weight)) {
    rows.scales = arena.take<const float*>(tokens);
    rows.q = arena.take<float>(tokens * grid_row_floats(in));
    rows.q_scale = arena.take<float>(tokens * num_scale_blocks(in));
  }
  return rows;
}

XRows prepare(const ops::Activation& x, const ops::Weight& weight, const PreparedRows& rows,
              FastStream& stream) {
  const int64_t tokens = x.dim(0), in = x.dim(1);
  const int64_t stride = grid_row_floats(in), blocks = num_scale_blocks(in);
  const bool quantised = rows.scales != nullptr;
  for (int64_t i = 0; i < tokens; ++i) {
    rows.values[i] = quantised ? rows.q + i * stride : x.values.row<float>(i);
    if (quantised)
      rows.scales[i] = x.is_quantised() ? x.scale.row<float>(i) : rows.q_scale + i * blocks;
  }
  if (quantised) {
    stream.run(tokens, tokens * in, [&](int64_t i, int) {
      quantised_row(stream.kernels(), weight, x, i,
                    {.q = rows.q + i * stride, .scale = rows.q_scale + i * blocks});
    });
  }
  return {rows.values, rows.scales, tokens};
}

// One product of the prepared rows.
struct Target {
  WeightRows weight;
  float** out = nullptr;  // [tokens]
};

Target make_target(const ops::Weight& weight, const tensor::Tensor& out, float** rows) {
  for (int64_t i = 0; i < out.dim(0); ++i) rows[i] = out.row<float>(i);
  return {.weight = WeightRows::of(weight), .out = rows};
}

// Tasks over columns of all targets and groups of tokens.
void run_products(const XRows& x, std::span<const Target> targets, bool accumulate,
                  FastStream& stream) {
  const int64_t tokens = x.count, in = targets[0].weight.in;
  const bool direct = tokens <= stream.kernels().direct_tokens;
  int64_t rows = 0;
  for (const Target& target : targets) rows += target.weight.rows;
  const TokenGroups groups(tokens);
  const int64_t step =
      direct ? rows_per_task(rows, in, tokens, stream.num_threads())
             : wide_rows_per_task(rows, groups.count, stream.num_threads(),
                                  std::max(kWideTaskRows, stream.kernels().wide_rows));
  const auto columns_of = [&](const Target& t) { return (t.weight.rows + step - 1) / step; };
  int64_t num_columns = 0;
  for (const Target& target : targets) num_columns += columns_of(target);
  stream.run(num_columns * groups.count, tokens * rows * in, [&](int64_t task, int worker) {
    int64_t column = task % num_columns;
    const Target* target = targets.data();
    while (column >= columns_of(*target)) column -= columns_of(*target++);
    const int64_t begin = column * step, row = groups.begin(task / num_columns);
    multiply(stream.kernels(), target->weight,
             {.x = x.slice(row, groups.begin(task / num_columns + 1)),
              .out = target->out + row,
              .accumulate = accumulate,
              .workspace = stream.workspace(worker)},
             begin, std::min(begin + step, target->weight.rows));
  });
}

// Row pointers of every head: [heads, tokens]. A task has rows of one head, which nobody else reads: it quantises them
// into its worker's part of the rest.
struct HeadRows {
  const float** x = nullptr;
  float** out = nullptr;
  // f8: kTileTokens rows of each worker.
  const float** scales = nullptr;  // into q_scale
  float* q = nullptr;              // [workers, kTileTokens, grid_row_floats(in)]
  float* q_scale = nullptr;        // [workers, kTileTokens, ceil(in / 128)]

  // `count` rows from `from` on, which point to the quantised values afterwards.
  XRows quantise(const KernelTable& kernels, const float** from, int64_t count, int64_t in,
                 int worker) const {
    const int64_t first = worker * kTileTokens, blocks = num_scale_blocks(in);
    for (int64_t i = 0; i < count; ++i) {
      float* const values = q + (first + i) * grid_row_floats(in);
      float* const scale = q_scale + (first + i) * blocks;
      kernels.quantize_row(from[i], in, values, scale);
      from[i] = values;
      scales[first + i] = scale;
    }
    return {from, scales + first, count};
  }
};

HeadRows carve(const ops::HeadLinearArgs& args, int64_t workers, ScratchArena& arena) {
  const int64_t rows = args.x.dim(0) * args.x.dim(1), in = args.x.dim(2);
  const int64_t quantised = ops::quantises_rows(args.weight) ? workers * kTileTokens : 0;
  return {.x = arena.take<const float*>(rows),
          .out = arena.take<float*>(rows),
          .scales = arena.take<const float*>(quantised),
          .q = arena.take<float>(quantised * grid_row_floats(in)),
          .q_scale = arena.take<float>(quantised * num_scale_blocks(in))};
}

}  // namespace

int64_t linear_scratch(const ops::LinearArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args.x, args.weight, arena);
  arena.take<float*>(args.x.dim(0));
  return arena.bytes();
}

int64_t linear_pair_scratch(const ops::LinearPairArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args.x, args.a.weight, arena);
  arena.take<float*>(args.x.dim(0));
  arena.take<float*>(args.x.dim(0));
  return arena.bytes();
}

int64_t head_linear_scratch(const ops::HeadLinearArgs& args, const ops::Stream& stream) {
  ScratchArena arena;
  carve(args, fast_stream(stream).num_threads(), arena);
  return arena.bytes();
}

void linear(const ops::LinearArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  ScratchArena arena(stream.scratch());
  const PreparedRows rows = carve(args.x, args.weight, arena);
  const Target target = make_target(args.weight, args.out, arena.take<float*>(args.x.dim(0)));
  run_products(prepare(args.x, args.weight, rows, stream), {&target, 1}, args.accumulate, stream);
}

void linear_pair(const ops::LinearPairArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  ScratchArena arena(stream.scratch());
  const PreparedRows rows = carve(args.x, args.a.weight, arena);
  const Target targets[] = {
      make_target(args.a.weight, args.a.out, arena.take<float*>(args.x.dim(0))),
      make_target(args.b.weight, args.b.out, arena.take<float*>(args.x.dim(0)))};
  run_products(prepare(args.x, args.a.weight, rows, stream), targets, /*accumulate=*/false, stream);
}

void head_linear(const ops::HeadLinearArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.x.dim(0), heads = args.x.dim(1);
  const int64_t out_dim = args.weight.data.dim(1), in_dim = args.weight.data.dim(2);
  const bool quantised = ops::quantises_rows(args.weight);
  ScratchArena arena(stream.scratch());
  const HeadRows rows = carve(args, stream.num_threads(), arena);
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t token = 0; token < tokens; ++token) {
      rows.x[head * tokens + token] = args.x.row<float>(token, head);
      rows.out[head * tokens + token] = args.out.row<float>(token, head);
    }
  }
  const TokenGroups groups(tokens);
  stream.run(
      heads * groups.count, tokens * heads * out_dim * in_dim, [&](int64_t task, int worker) {
        const int64_t head = task / groups.count, row = groups.begin(task % groups.count);
        const int64_t end = groups.begin(task % groups.count + 1), at = head * tokens + row;
        const WeightRows weight =
            WeightRows::of({.data = args.weight.data[head],
                            .scale = quantised ? args.weight.scale[head] : tensor::Tensor()});
        const XRows x =
            quantised ? rows.quantise(stream.kernels(), rows.x + at, end - row, in_dim, worker)
                      : XRows{rows.x + at, nullptr, end - row};
        multiply(stream.kernels(), weight,
                 {.x = x, .out = rows.out + at, .workspace = stream.workspace(worker)}, 0, out_dim);
      });
}

}  // namespace fathom::cpu::fast
