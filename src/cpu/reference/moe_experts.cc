#include <algorithm>

#include "cpu/reference/matmul.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "cpu/stream.h"
#include "ops/moe.h"

// Expert by expert over a tile of tokens, so that each weight row is converted once per tile; the
// results wait per (token, j) and are summed in the order of j at the end.

namespace fathom::cpu::reference {
namespace {

struct Sizes {
  int64_t hidden_size, inter, hidden_blocks, inter_blocks, num_experts_per_tok, experts;
  bool quantised;
};

// Rows of the tile that go to one expert: gathered input, both layers, and where the results
// belong.
struct ExpertScratch {
  float* x;           // f32[rows, hidden_size]; quantised values with quantised weights
  float* x_scale;     // f32[rows, hidden_blocks]
  float* gate_up;     // f32[rows, 2 * inter]
  float* h;           // f32[rows, inter]; quantised in place with quantised weights
  float* h_scale;     // f32[rows, inter_blocks]
  float* y;           // f32[rows, hidden_size]
  float* weight_row;  // f32[max(hidden_size, inter)]
  float* results;     // f32[tile, num_experts_per_tok, hidden_size]
  int64_t* members;   // i64[rows]  (token in tile) * num_experts_per_tok + j
};

Sizes sizes_of(const ops::MoeExpertsArgs& args) {
  const int64_t hidden_size = args.x.dim(1), inter = ops::row_values(args.down.data);
  return {.hidden_size = hidden_size,
          .inter = inter,
          .hidden_blocks = tensor::num_scale_blocks(hidden_size),
          .inter_blocks = tensor::num_scale_blocks(inter),
          .num_experts_per_tok = args.ids.dim(1),
          .experts = args.down.data.dim(0),
          .quantised = ops::quantises_rows(args.down)};
}

ExpertScratch carve(const Sizes& s, ScratchArena& arena) {
  // An expert may be named by every (token, j) of a tile.
  const int64_t rows = kTileTokens * s.num_experts_per_tok;
  return {.x = arena.take<float>(rows * s.hidden_size),
          .x_scale = arena.take<float>(rows * s.hidden_blocks),
          .gate_up = arena.take<float>(rows * 2 * s.inter),
          .h = arena.take<float>(rows * s.inter),
          .h_scale = arena.take<float>(rows * s.inter_blocks),
          .y = arena.take<float>(rows * s.hidden_size),
          .weight_row = arena.take<float>(std::max(s.hidden_size, s.inter)),
          .results = arena.take<float>(rows * s.hidden_size),
          .members = arena.take<int64_t>(rows)};
}

// The (token, j) pairs of the tile that name this expert, and their inputs side by side.
int64_t gather_members(const ops::MoeExpertsArgs& args, int64_t expert, int64_t begin, int64_t end,
                       const ExpertScratch& scratch) {
  const Sizes s = sizes_of(args);
  int64_t rows = 0;
  for (int64_t token = begin; token < end; ++token) {
    for (int64_t j = 0; j < s.num_experts_per_tok; ++j) {
      if (args.place_of(args.ids.row<int32_t>(token)[j]) != expert) continue;
      float* x = scratch.x + rows * s.hidden_size;
      if (s.quantised) {
        quantised_floats(args.gate_up, args.x, token, x, scratch.x_scale + rows * s.hidden_blocks);
      } else {
        std::copy_n(args.x.values.row<float>(token), s.hidden_size, x);
      }
      scratch.members[rows++] = (token - begin) * s.num_experts_per_tok + j;
    }
  }
  return rows;
}

// gate_up of the gathered rows, then h = silu(gate) * up.
void run_gate_up(const ops::MoeExpertsArgs& args, const Sizes& s, int64_t expert, int64_t rows,
                 const ExpertScratch& scratch) {
  for (int64_t half = 0; half < 2; ++half) {
    const tensor::Tensor weight = args.gate_up.data[expert][half];
    matmul({.x = scratch.x,
            .x_stride = s.hidden_size,
            .x_scale = scratch.x_scale,
            .rows = rows,
            .weight = weight.data(),
            .dtype = weight.dtype(),
            .form = ops::scale_form(args.gate_up),
            .scale = ops::matrix_scale(args.gate_up, 2 * expert + half),
            .zero_channels = ops::zero_point_channels(args.gate_up),
            .in = s.hidden_size,
            .out = s.inter,
            .weight_row = scratch.weight_row,
            .y = scratch.gate_up + half * s.inter,
            .y_stride = 2 * s.inter});
  }
  for (int64_t row = 0; row < rows; ++row) {
    const float* gate = scratch.gate_up + row * 2 * s.inter;
    float* h = scratch.h + row * s.inter;
    for (int64_t i = 0; i < s.inter; ++i) h[i] = silu(gate[i]) * gate[s.inter + i];
    if (s.quantised)
      quantize_row_for(args.down, h, s.inter, h, scratch.h_scale + row * s.inter_blocks);
  }
}

void run_expert(const ops::MoeExpertsArgs& args, const Sizes& s, int64_t expert, int64_t rows,
                const ExpertScratch& scratch) {
  run_gate_up(args, s, expert, rows, scratch);
  const tensor::Tensor weight = args.down.data[expert];
  matmul({.x = scratch.h,
          .x_stride = s.inter,
          .x_scale = scratch.h_scale,
          .rows = rows,
          .weight = weight.data(),
          .dtype = weight.dtype(),
          .form = ops::scale_form(args.down),
          .scale = ops::matrix_scale(args.down, expert),
          .zero_channels = ops::zero_point_channels(args.down),
          .in = s.inter,
          .out = s.hidden_size,
          .weight_row = scratch.weight_row,
          .y = scratch.y,
          .y_stride = s.hidden_size});
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(scratch.y + row * s.hidden_size, s.hidden_size,
                scratch.results + scratch.members[row] * s.hidden_size);
  }
}

// out[token] = sum over j, in rising order; `sums` is scratch of hidden_size values.
void combine(const ops::MoeExpertsArgs& args, const Sizes& s, int64_t token, const float* results,
             float* sums) {
  std::fill_n(sums, s.hidden_size, 0.0f);
  for (int64_t j = 0; j < s.num_experts_per_tok; ++j) {
    if (args.place_of(args.ids.row<int32_t>(token)[j]) < 0) continue;
    add_scaled(sums, args.weights.row<float>(token)[j], results + j * s.hidden_size, s.hidden_size);
  }
  float* out = args.out.row<float>(token);
  if (args.accumulate) {
    add_scaled(out, 1.0f, sums, s.hidden_size);
  } else {
    std::copy_n(sums, s.hidden_size, out);
  }
}

}  // namespace

int64_t moe_experts_scratch(const ops::MoeExpertsArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(sizes_of(args), arena);
  return arena.bytes();
}

void moe_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream) {
  const Sizes s = sizes_of(args);
  ScratchArena arena(stream.scratch());
  const ExpertScratch scratch = carve(s, arena);
  for (int64_t begin = 0; begin < args.x.dim(0); begin += kTileTokens) {
    const int64_t end = std::min(begin + kTileTokens, args.x.dim(0));
    for (int64_t expert = 0; expert < s.experts; ++expert) {
      const int64_t rows = gather_members(args, expert, begin, end, scratch);
      if (rows > 0) run_expert(args, s, expert, rows, scratch);
    }
    for (int64_t token = begin; token < end; ++token) {
      const float* results =
          scratch.results + (token - begin) * s.num_experts_per_tok * s.hidden_size;
      combine(args, s, token, results, scratch.y);
    }
  }
}

}  // namespace fathom::cpu::reference
