// The gate: one small product for all tokens, then the choice per token on a few hundred scores.
#include <algorithm>
#include <cmath>

#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/fast/weight_rows.h"
#include "ops/moe.h"

namespace fathom::cpu::fast {

namespace {

using ops::GateKind;

// Scratch of one worker.
struct Choices {
  float* choices = nullptr;  // [n_routed_experts] what the selection compares
  float* groups = nullptr;   // [n_group] scores of the groups
  bool* taken = nullptr;     // [n_routed_experts + n_group]
};

struct GateScratch {
  const float** x = nullptr;  // [tokens]
  float** out = nullptr;      // [tokens] rows of scores
  float* scores = nullptr;    // [tokens, n_routed_experts]
  Choices choices;            // of the first worker; those of the others follow

  Choices of_worker(int64_t worker, int64_t experts, int64_t n_group) const {
    return {.choices = choices.choices + worker * experts,
            .groups = choices.groups + worker * n_group,
            .taken = choices.taken + worker * (experts + n_group)};
  }
};

GateScratch carve(const ops::MoeGateArgs& args, int64_t threads, ScratchArena& arena) {
  const int64_t tokens = args.x.dim(0), experts = args.weight.dim(0);
  return {.x = arena.take<const float*>(tokens),
          .out = arena.take<float*>(tokens),
          .scores = arena.take<float>(tokens * experts),
          .choices = {.choices = arena.take<float>(threads * experts),
                      .groups = arena.take<float>(threads * args.n_group),
                      .taken = arena.take<bool>(threads * (experts + args.n_group))}};
}

// The largest value not taken, ties to the lower index; never a NaN unless nothing else is left.
int64_t take_largest(const float* values, int64_t n, bool* taken) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i)
    if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
  taken[best] = true;
  return best;
}

float group_score(const float* choices, int64_t n, GateKind kind) {
  float best = choices[0], second = 0.0f;
  for (int64_t i = 1; i < n; ++i) {
    if (choices[i] > best) {
      second = best;
      best = choices[i];
    } else if (i == 1 || choices[i] > second) {
      second = choices[i];
    }
  }
  return kind == GateKind::kSigmoidNoAux ? best + second : best;
}

void exclude_groups(const ops::MoeGateArgs& args, int64_t experts, const Choices& scratch) {
  const int64_t size = experts / args.n_group;
  bool* const group_taken = scratch.taken + experts;
  for (int64_t g = 0; g < args.n_group; ++g) {
    scratch.groups[g] = group_score(scratch.choices + g * size, size, args.kind);
    group_taken[g] = false;
  }
  std::fill_n(scratch.taken, experts, true);
  for (int i = 0; i < args.topk_group; ++i)
    std::fill_n(scratch.taken + take_largest(scratch.groups, args.n_group, group_taken) * size,
                size, false);
}

// Turns logits into scores (the weights) and choices.
void score(const ops::MoeGateArgs& args, const KernelTable& kernels, float* scores,
           const Choices& scratch) {
  const int64_t experts = args.weight.dim(0);
  if (args.kind == GateKind::kSigmoidNoAux) {
    for (int64_t e = 0; e < experts; ++e) {
      scores[e] = 1.0f / (1.0f + std::exp(-scores[e]));
      scratch.choices[e] = scores[e] + *args.bias.row<float>(e);
    }
    return;
  }
  float min = 0, max = 0;
  kernels.range_row(scores, experts, &min, &max);
  for (int64_t e = 0; e < experts; ++e) scores[e] = std::exp(scores[e] - max);
  float total = 0;
  for (int64_t e = 0; e < experts; ++e) total += scores[e];
  for (int64_t e = 0; e < experts; ++e) scratch.choices[e] = scores[e] /= total;
}

void choose(const ops::MoeGateArgs& args, int64_t token, const float* scores,
            const Choices& scratch) {
  const int64_t experts = args.weight.dim(0), per_token = args.ids.dim(1);
  int32_t* const ids = args.ids.row<int32_t>(token);
  float* const weights = args.weights.row<float>(token);
  std::fill_n(scratch.taken, experts, false);
  if (args.kind != GateKind::kSoftmaxGreedy) exclude_groups(args, experts, scratch);
  float total = 0;
  for (int64_t j = 0; j < per_token; ++j) {
    const int64_t expert = take_largest(scratch.choices, experts, scratch.taken);
    ids[j] = static_cast<int32_t>(expert);
    weights[j] = scores[expert];
    total += weights[j];
  }
  for (int64_t j = 0; j < per_token; ++j) {
    if (args.norm_topk_prob) weights[j] /= total + 1e-20f;
    weights[j] *= args.routed_scaling_factor;
  }
}

}  // namespace

int64_t moe_gate_scratch(const ops::MoeGateArgs& args, const ops::Stream& stream) {
  ScratchArena arena;
  carve(args, fast_stream(stream).num_threads(), arena);
  return arena.bytes();
}

void moe_gate(const ops::MoeGateArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t tokens = args.x.dim(0), experts = args.weight.dim(0);
  const WeightRows weight = WeightRows::of({.data = args.weight, .scale = {}});
  ScratchArena arena(stream.scratch());
  const GateScratch scratch = carve(args, stream.num_threads(), arena);
  for (int64_t t = 0; t < tokens; ++t) {
    scratch.x[t] = args.x.row<float>(t);
    scratch.out[t] = scratch.scores + t * experts;
  }
  const TokenGroups groups(tokens);
  const int64_t step =
      rows_per_task(experts, weight.in, std::min(tokens, kTileTokens), stream.num_threads());
  const int64_t columns = (experts + step - 1) / step;
  stream.run(groups.count * columns, tokens * experts * weight.in, [&](int64_t task, int worker) {
    const int64_t row = groups.begin(task / columns), begin = task % columns * step;
    multiply(stream.kernels(), weight,
             {.x = {scratch.x + row, nullptr, groups.begin(task / columns + 1) - row},
              .out = scratch.out + row,
              .workspace = stream.workspace(worker)},
             begin, std::min(begin + step, experts));
  });
  stream.run(tokens, tokens * experts * args.ids.dim(1), [&](int64_t t, int worker) {
    if (!args.kv_rows.is_null() && *args.kv_rows.row<int64_t>(t) == -1) {  // padding
      std::fill_n(args.ids.row<int32_t>(t), args.ids.dim(1), -1);
      std::fill_n(args.weights.row<float>(t), args.ids.dim(1), 0.0f);
      return;
    }
    const Choices choices = scratch.of_worker(worker, experts, args.n_group);
    score(args, stream.kernels(), scratch.out[t], choices);
    choose(args, t, scratch.out[t], choices);
  });
}

}  // namespace fathom::cpu::fast
