// Routed experts. The (token, j) pairs are sorted by expert; then every active expert's matrices are read
// once per call, by tasks over its rows.
//
// Floor at one token: num_experts_per_tok * 3 * moe_intermediate_size * hidden_size weights, once.
//
// Outputs of the pairs are kept apart and added per token in the order of j, so the bits do not depend on
// which tokens share an expert.
#include <algorithm>

#include "base/check.h"
#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/fast/weight_rows.h"
#include "ops/moe.h"

namespace fathom::cpu::fast {

namespace {

// Weight rows of a task at most.
constexpr int64_t kMostRows = 512;

// Weight rows of the tasks: of an expert's gate and up, and of down, whose task has them of all experts.
struct TaskRows {
  int64_t gate_up = kTileRows, down = kTileRows;

  static TaskRows of(const ops::MoeExpertsArgs& args, int64_t tokens, const FastStream& stream) {
    const int64_t pairs = tokens * args.ids.dim(1), experts = args.down.data.dim(0);
    // Few tokens are few rows of x for every expert, and weights that pass by once: then a task is one long piece of
    // memory. With many, the outputs of a task should stay in a cache.
    const bool few = tokens <= stream.kernels().direct_tokens;
    const auto rows = [&](int64_t rows, int64_t groups, int64_t most) {
      const int64_t limit = few ? kMostRows : std::max(most, stream.kernels().wide_rows);
      return wide_rows_per_task(rows, groups, stream.num_threads(), std::min(limit, kMostRows));
    };
    return {
        .gate_up = rows(ops::row_values(args.down.data), std::min(pairs, experts), kWideTaskRows),
        .down = rows(args.down.data.dim(1), 1, kWideTaskRows / 2)};
  }
};

struct Routing {
  int64_t num_pairs = 0;      // pairs with an expert
  int32_t num_active = 0;     // experts with pairs
  int32_t* active = nullptr;  // [num_active] expert ids, rising
  int32_t* start = nullptr;   // [num_active + 1] into the sorted pairs
  int32_t* pair = nullptr;    // [num_pairs] sorted by expert: token * num_experts_per_tok + j
  int32_t* place = nullptr;   // [tokens * num_experts_per_tok] where a pair went, -1 = skipped
};

struct ExpertScratch {
  int32_t* count = nullptr;  // [n_routed_experts + 1]
  Routing routing;
  const float** x_rows = nullptr;    // per pair, as the next three
  const float** x_scales = nullptr;  // quantised weights only, as all scales and x_quantised
  float** h_rows = nullptr;
  const float** h_scales = nullptr;
  float* x_quantised = nullptr;   // [tokens, grid_row_floats(hidden_size)]
  float* x_scale_data = nullptr;  // [tokens, ceil(hidden_size / 128)]
  float* h_data = nullptr;        // [pairs, grid_row_floats(moe_intermediate_size)]
  float* h_scale_data = nullptr;  // [pairs, ceil(moe_intermediate_size / 128)]
  // Per worker: gate and up of a group of tokens, or the outputs of a task's columns; row pointers.
  float* worker_data = nullptr;
  int64_t worker_floats = 0;
  float** worker_rows = nullptr;
  int64_t num_worker_rows = 0;
};

// As if every pair had an expert: which have is not known here.
ExpertScratch carve(const ops::MoeExpertsArgs& args, const FastStream& stream,
                    ScratchArena& arena) {
  const int64_t threads = stream.num_threads();
  const int64_t tokens = args.x.dim(0), pairs = tokens * args.ids.dim(1);
  const int64_t experts = args.down.data.dim(0);
  const int64_t hidden = args.x.dim(1), inter = ops::row_values(args.down.data);
  const bool quantised = ops::quantises_rows(args.down);
  ExpertScratch s;
  s.count = arena.take<int32_t>(experts + 1);
  s.routing.active = arena.take<int32_t>(experts);
  s.routing.start = arena.take<int32_t>(experts + 1);
  s.routing.pair = arena.take<int32_t>(pairs);
  s.routing.place = arena.take<int32_t>(pairs);
  s.x_rows = arena.take<const float*>(pairs);
  s.x_scales = arena.take<const float*>(pairs);
  s.h_rows = arena.take<float*>(pairs);
  s.h_scales = arena.take<const float*>(pairs);
  s.x_quantised = arena.take<float>(quantised ? tokens * grid_row_floats(hidden) : 0);
  s.x_scale_data = arena.take<float>(quantised ? tokens * num_scale_blocks(hidden) : 0);
  s.h_data = arena.take<float>(pairs * grid_row_floats(inter));
  s.h_scale_data = arena.take<float>(quantised ? pairs * num_scale_blocks(inter) : 0);
  // What is planned for the most tokens holds for few, whose tasks have more rows.
  const int64_t few = std::min<int64_t>(tokens, stream.kernels().direct_tokens);
  for (const int64_t some : {few, tokens}) {
    const TaskRows rows = TaskRows::of(args, some, stream);
    s.worker_floats = std::max(
        {s.worker_floats, 2 * kTileTokens * rows.gate_up, some * args.ids.dim(1) * rows.down});
  }
  s.worker_data = arena.take<float>(threads * s.worker_floats);
  s.num_worker_rows = std::max(pairs, 2 * kTileTokens);
  s.worker_rows = arena.take<float*>(threads * s.num_worker_rows);
  return s;
}

class MoeExperts {
 public:
  MoeExperts(const ops::MoeExpertsArgs& args, FastStream& stream)
      : args_(args),
        stream_(stream),
        kernels_(stream.kernels()),
        tokens_(args.x.dim(0)),
        hidden_(args.x.dim(1)),
        inter_(ops::row_values(args.down.data)),
        experts_(args.down.data.dim(0)),
        per_token_(args.ids.dim(1)),
        quantised_(ops::quantises_rows(args.down)),
        task_rows_(TaskRows::of(args, args.x.dim(0), stream)) {
    ScratchArena arena(stream.scratch());
    scratch_ = carve(args, stream, arena);
    routing_ = scratch_.routing;
  }

  void run() {
    if (tokens_ == 0) return;
    sort_pairs();
    prepare_x();
    compute_gate_up();
    prepare_h();
    compute_down();
  }

 private:
  int32_t expert_of(int64_t pair) const {
    return args_.place_of(args_.ids.row<int32_t>(pair / per_token_)[pair % per_token_]);
  }

  // Counting sort by expert, stable in (token, j).
  void sort_pairs() {
    std::fill_n(scratch_.count, experts_ + 1, 0);
    const int64_t pairs = tokens_ * per_token_;
    for (int64_t p = 0; p < pairs; ++p) {
      const int32_t expert = expert_of(p);
      if (expert >= 0) ++scratch_.count[expert];
    }
    int32_t position = 0;
    for (int32_t e = 0; e < experts_; ++e) {
      const int32_t n = scratch_.count[e];
      scratch_.count[e] = position;
      if (n == 0) continue;
      routing_.active[routing_.num_active] = e;
      routing_.start[routing_.num_active++] = position;
      position += n;
    }
    routing_.start[routing_.num_active] = position;
    routing_.num_pairs = position;
    for (int64_t p = 0; p < pairs; ++p) {
      const int32_t expert = expert_of(p);
      routing_.place[p] = expert < 0 ? -1 : scratch_.count[expert]++;
      if (expert >= 0) routing_.pair[routing_.place[p]] = static_cast<int32_t>(p);
    }
  }

  void prepare_x() {
    const int64_t blocks = num_scale_blocks(hidden_), stride = grid_row_floats(hidden_);
    if (quantised_) {
      stream_.run(tokens_, tokens_ * hidden_, [&](int64_t t, int) {
        quantised_row(
            kernels_, args_.gate_up, args_.x, t,
            {.q = scratch_.x_quantised + t * stride, .scale = scratch_.x_scale_data + t * blocks});
      });
    }
    for (int64_t i = 0; i < routing_.num_pairs; ++i) {
      const int64_t token = routing_.pair[i] / per_token_;
      scratch_.x_rows[i] =
          quantised_ ? scratch_.x_quantised + token * stride : args_.x.values.row<float>(token);
      scratch_.x_scales[i] = args_.x.is_quantised() ? args_.x.scale.row<float>(token)
                                                    : scratch_.x_scale_data + token * blocks;
      scratch_.h_rows[i] = scratch_.h_data + i * grid_row_floats(inter_);
      scratch_.h_scales[i] = scratch_.h_scale_data + i * num_scale_blocks(inter_);
    }
  }

  XRows x_of(int64_t begin, int64_t end) const {
    return {scratch_.x_rows + begin, quantised_ ? scratch_.x_scales + begin : nullptr, end - begin};
  }
  XRows h_of(int64_t begin, int64_t end) const {
    return {scratch_.h_rows + begin, quantised_ ? scratch_.h_scales + begin : nullptr, end - begin};
  }

  // h = silu(gate) * up for rows [begin, end) of one expert's intermediate dimension.
  void gate_up_tile(int32_t slot, int64_t begin, int64_t end, int worker) {
    const int64_t expert = routing_.active[slot];
    const WeightRows gate = WeightRows::of(args_.gate_up, 2 * expert);
    const WeightRows up = WeightRows::of(args_.gate_up, 2 * expert + 1);
    float* const data = scratch_.worker_data + worker * scratch_.worker_floats;
    float** const rows = scratch_.worker_rows + worker * scratch_.num_worker_rows;
    for (int64_t i = 0; i < 2 * kTileTokens; ++i) rows[i] = data + i * task_rows_.gate_up;
    for (int64_t i = routing_.start[slot]; i < routing_.start[slot + 1]; i += kTileTokens) {
      const int64_t stop = std::min<int64_t>(i + kTileTokens, routing_.start[slot + 1]);
      Product product{.x = x_of(i, stop),
                      .out = rows,
                      .out_offset = -begin,
                      .workspace = stream_.workspace(worker),
                      .next_w = up.row(begin)};
      multiply(kernels_, gate, product, begin, end);
      product.out = rows + kTileTokens;
      product.next_w = stop < routing_.start[slot + 1] ? gate.row(begin) : nullptr;
      multiply(kernels_, up, product, begin, end);
      for (int64_t r = i; r < stop; ++r)
        kernels_.silu_mul_row(rows[r - i], rows[kTileTokens + r - i], end - begin,
                              scratch_.h_rows[r] + begin);
    }
  }

  void compute_gate_up() {
    const int64_t step = task_rows_.gate_up, tiles = (inter_ + step - 1) / step;
    stream_.run(tiles * routing_.num_active, 2 * routing_.num_pairs * inter_ * hidden_,
                [&](int64_t task, int worker) {
                  const int64_t begin = task % tiles * step;
                  gate_up_tile(static_cast<int32_t>(task / tiles), begin,
                               std::min(begin + step, inter_), worker);
                });
  }

  void prepare_h() {
    if (!quantised_) return;
    stream_.run(routing_.num_pairs, routing_.num_pairs * inter_, [&](int64_t i, int) {
      quantize_row_for(
          kernels_, args_.down, scratch_.h_rows[i],
          {.q = scratch_.h_rows[i], .scale = scratch_.h_scale_data + i * num_scale_blocks(inter_)});
    });
  }

  // Columns [begin, end) of the output: all experts, then the sum per token.
  void down_tile(int64_t begin, int64_t end, int worker) {
    float* const data = scratch_.worker_data + worker * scratch_.worker_floats;
    float** const rows = scratch_.worker_rows + worker * scratch_.num_worker_rows;
    for (int64_t i = 0; i < routing_.num_pairs; ++i) rows[i] = data + i * task_rows_.down;
    for (int32_t slot = 0; slot < routing_.num_active; ++slot) {
      const int64_t first = routing_.start[slot];
      const bool is_last = slot + 1 == routing_.num_active;
      const void* const next =
          is_last ? nullptr : WeightRows::of(args_.down, routing_.active[slot + 1]).row(begin);
      multiply(kernels_, WeightRows::of(args_.down, routing_.active[slot]),
               {.x = h_of(first, routing_.start[slot + 1]),
                .out = rows + first,
                .out_offset = -begin,
                .workspace = stream_.workspace(worker),
                .next_w = next},
               begin, end);
    }
    for (int64_t t = 0; t < tokens_; ++t) {
      float sum[kMostRows] = {};
      for (int64_t j = 0; j < per_token_; ++j) {
        const int32_t place = routing_.place[t * per_token_ + j];
        if (place >= 0)
          kernels_.add_scaled_row(rows[place], args_.weights.row<float>(t)[j], false, end - begin,
                                  sum);
      }
      float* const out = args_.out.row<float>(t) + begin;
      for (int64_t c = 0; c < end - begin; ++c)
        out[c] = args_.accumulate ? out[c] + sum[c] : sum[c];
    }
  }

  void compute_down() {
    const int64_t step = task_rows_.down, tiles = (hidden_ + step - 1) / step;
    stream_.run(tiles, routing_.num_pairs * inter_ * hidden_, [&](int64_t task, int worker) {
      down_tile(task * step, std::min((task + 1) * step, hidden_), worker);
    });
  }

  const ops::MoeExpertsArgs& args_;
  FastStream& stream_;
  const KernelTable& kernels_;
  const int64_t tokens_, hidden_, inter_, experts_, per_token_;
  const bool quantised_;
  const TaskRows task_rows_;
  ExpertScratch scratch_;
  Routing routing_;
};

}  // namespace

int64_t moe_experts_scratch(const ops::MoeExpertsArgs& args, const ops::Stream& stream) {
  ScratchArena arena;
  carve(args, fast_stream(stream), arena);
  return arena.bytes();
}

void moe_experts(const ops::MoeExpertsArgs& args, ops::Stream& stream) {
  MoeExperts(args, fast_stream(stream)).run();
}

}  // namespace fathom::cpu::fast
