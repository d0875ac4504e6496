#include <algorithm>
#include <cmath>

#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "cpu/stream.h"
#include "ops/moe.h"

namespace fathom::cpu::reference {
namespace {

using ops::GateKind;

struct GateScratch {
  float* weight_row;    // f32[hidden_size]
  float* scores;        // f32[n_routed_experts]  softmax or sigmoid: the weights
  float* choices;       // f32[n_routed_experts]  what the selection compares
  float* group_scores;  // f32[n_group]
  bool* taken;          // [n_routed_experts + n_group]  experts, then groups
};

GateScratch carve(const ops::MoeGateArgs& args, ScratchArena& arena) {
  const int64_t experts = args.weight.dim(0);
  return {.weight_row = arena.take<float>(args.weight.dim(1)),
          .scores = arena.take<float>(experts),
          .choices = arena.take<float>(experts),
          .group_scores = arena.take<float>(args.n_group),
          .taken = arena.take<bool>(experts + args.n_group)};
}

// Index of the largest value not taken; ties go to the lower index. A NaN is never larger, so the
// result is always a valid index. REQUIRES: one is not taken.
int64_t take_largest(const float* values, int64_t n, bool* taken) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
  }
  taken[best] = true;
  return best;
}

// Largest choice of a group, or the sum of its two largest.
float group_score(const float* choices, int64_t n, GateKind kind) {
  float first = choices[0], second = 0.0f;
  for (int64_t i = 1; i < n; ++i) {
    if (choices[i] > first) {
      second = first;
      first = choices[i];
    } else if (i == 1 || choices[i] > second) {
      second = choices[i];
    }
  }
  return kind == GateKind::kSigmoidNoAux ? first + second : first;
}

// Marks every expert outside the best groups as taken.
void exclude_groups(const ops::MoeGateArgs& args, int64_t experts, const GateScratch& scratch) {
  const int64_t group_size = experts / args.n_group;
  for (int64_t group = 0; group < args.n_group; ++group) {
    scratch.group_scores[group] =
        group_score(scratch.choices + group * group_size, group_size, args.kind);
  }
  std::fill_n(scratch.taken, experts, true);
  std::fill_n(scratch.taken + experts, args.n_group, false);
  for (int i = 0; i < args.topk_group; ++i) {
    const int64_t group = take_largest(scratch.group_scores, args.n_group, scratch.taken + experts);
    std::fill_n(scratch.taken + group * group_size, group_size, false);
  }
}

void select_experts(const ops::MoeGateArgs& args, int64_t token, const GateScratch& scratch) {
  const int64_t experts = args.weight.dim(0), num_experts_per_tok = args.ids.dim(1);
  int32_t* ids = args.ids.row<int32_t>(token);
  float* weights = args.weights.row<float>(token);
  std::fill_n(scratch.taken, experts, false);
  if (args.kind != GateKind::kSoftmaxGreedy) exclude_groups(args, experts, scratch);
  float total = 0.0f;
  for (int64_t j = 0; j < num_experts_per_tok; ++j) {
    const int64_t expert = take_largest(scratch.choices, experts, scratch.taken);
    ids[j] = static_cast<int32_t>(expert);
    weights[j] = scratch.scores[expert];
    total += weights[j];
  }
  for (int64_t j = 0; j < num_experts_per_tok; ++j) {
    if (args.norm_topk_prob) weights[j] /= total + 1e-20f;
    weights[j] *= args.routed_scaling_factor;
  }
}

void score_experts(const ops::MoeGateArgs& args, int64_t token, const GateScratch& scratch) {
  const int64_t experts = args.weight.dim(0), hidden_size = args.weight.dim(1);
  for (int64_t e = 0; e < experts; ++e) {
    const float* w = as_floats(
        element(static_cast<const void*>(args.weight.data()), args.weight.dtype(), e * hidden_size),
        args.weight.dtype(), hidden_size, scratch.weight_row);
    scratch.scores[e] = dot(args.x.row<float>(token), w, hidden_size);
  }
  if (args.kind != GateKind::kSigmoidNoAux) {
    softmax(scratch.scores, experts);
    std::copy_n(scratch.scores, experts, scratch.choices);
    return;
  }
  for (int64_t e = 0; e < experts; ++e) {
    scratch.scores[e] = 1.0f / (1.0f + std::exp(-scratch.scores[e]));
    scratch.choices[e] = scratch.scores[e] + *args.bias.row<float>(e);
  }
}

}  // namespace

int64_t moe_gate_scratch(const ops::MoeGateArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args, arena);
  return arena.bytes();
}

void moe_gate(const ops::MoeGateArgs& args, ops::Stream& stream) {
  ScratchArena arena(stream.scratch());
  const GateScratch scratch = carve(args, arena);
  const int64_t per_token = args.ids.dim(1);
  for (int64_t token = 0; token < args.x.dim(0); ++token) {
    if (!args.kv_rows.is_null() && *args.kv_rows.row<int64_t>(token) == -1) {  // padding
      std::fill_n(args.ids.row<int32_t>(token), per_token, -1);
      std::fill_n(args.weights.row<float>(token), per_token, 0.0f);
      continue;
    }
    score_experts(args, token, scratch);
    select_experts(args, token, scratch);
  }
}

}  // namespace fathom::cpu::reference
