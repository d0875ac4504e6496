// The gate, and the routed experts with and without the shared ones. Every token chooses other experts.

#include <algorithm>
#include <initializer_list>
#include <memory>

#include "apps/bench_ops/cases.h"
#include "ops/moe.h"
#include "ops/silu_mul.h"

namespace fathom::apps {
namespace {

using tensor::DType, tensor::Tensor;

ops::GateKind gate_kind(config::TopkMethod method) {
  if (method == config::TopkMethod::kGreedy) return ops::GateKind::kSoftmaxGreedy;
  return method == config::TopkMethod::kNoauxTc ? ops::GateKind::kSigmoidNoAux
                                                : ops::GateKind::kSoftmaxGroups;
}

OpCall moe_gate_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const config::ModelConfig& c = shapes.config;
  ops::MoeGateArgs args;
  args.kind = gate_kind(c.topk_method);
  args.x = operands.random(operands.backend().act, {tokens, c.hidden_size});
  args.weight = operands.weight(shapes.types.plain, {c.n_routed_experts, c.hidden_size}).data;
  if (args.kind == ops::GateKind::kSigmoidNoAux)
    args.bias = operands.random(DType::kF32, {c.n_routed_experts}, -0.125f, 0.125f);
  args.n_group = c.n_group;
  args.topk_group = c.topk_group;
  args.norm_topk_prob = c.norm_topk_prob;
  args.routed_scaling_factor = static_cast<float>(c.routed_scaling_factor);
  args.ids = operands.empty(DType::kI32, {tokens, c.num_experts_per_tok});
  args.weights = operands.empty(DType::kF32, {tokens, c.num_experts_per_tok});
  return {
      .bytes = bytes_of({args.x, args.weight, args.bias, args.ids, args.weights}),
      .flops = 2.0 * static_cast<double>(tokens * args.weight.num_elements()),
      .prepare = {},
      .run = [=](ops::Stream& stream) { ops::moe_gate(args, stream); },
      .expected =
          [=](OnReference& on_reference) {
            ops::MoeGateArgs cut = args;
            cut.x = on_reference.act(checked(args.x));
            cut.weight = on_reference.copy(args.weight);
            cut.bias = on_reference.copy(args.bias);
            cut.ids = on_reference.copy(checked(args.ids));
            cut.weights = on_reference.copy(checked(args.weights));
            ops::moe_gate(cut, on_reference.stream());
            return values_of(cut.weights);
          },
      .actual =
          [=](OnReference& on_reference) { return on_reference.values(checked(args.weights)); }};
}

struct Experts {
  ops::MoeExpertsArgs args;
  std::vector<int32_t> ids;                 // as args.ids
  int64_t num_used = 0;                     // different ones
  ops::Weight shared_gate_up, shared_down;  // null = none
};

std::vector<int32_t> draw_ids(Operands& operands, int64_t tokens, int64_t experts, int64_t chosen) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto begin = static_cast<std::ptrdiff_t>(ids.size());
    while (static_cast<int64_t>(ids.size()) - begin < chosen) {
      const auto id = static_cast<int32_t>(operands.draw(experts));
      if (std::find(ids.begin() + begin, ids.end(), id) == ids.end()) ids.push_back(id);
    }
  }
  return ids;
}

int64_t count_different(std::vector<int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  return std::unique(ids.begin(), ids.end()) - ids.begin();
}

Experts make_experts(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const config::ModelConfig& c = shapes.config;
  const int64_t experts = c.n_routed_experts, chosen = c.num_experts_per_tok;
  const int64_t hidden = c.hidden_size, inter = c.moe_intermediate_size;
  const DType dtype = shapes.types.experts();
  Experts made;
  made.ids = draw_ids(operands, tokens, experts, chosen);
  made.num_used = count_different(made.ids);
  made.args = {.x = operands.rows(tokens, hidden, shapes.fused.rms_norm_quantize),
               .ids = operands.upload(made.ids, {tokens, chosen}),
               .weights = operands.random(DType::kF32, {tokens, chosen}, 0.0f, 0.5f),
               .gate_up = operands.weight(dtype, {experts, 2, inter, hidden}),
               .down = operands.weight(dtype, {experts, hidden, inter}),
               .out = operands.empty(operands.backend().act, {tokens, hidden})};
  return made;
}

void add_shared(Operands& operands, const OpShapes& shapes, Experts& experts) {
  const config::ModelConfig& c = shapes.config;
  const int64_t inter = c.n_shared_experts * c.moe_intermediate_size;
  const DType dtype = shapes.types.matrix();
  experts.shared_gate_up = operands.weight(dtype, {2, inter, c.hidden_size});
  experts.shared_down = operands.weight(dtype, {c.hidden_size, inter});
}

// Copies of the experts that a few rows chose, and these rows' ids among them.
struct ChosenExperts {
  ops::Weight gate_up, down;
  std::vector<int32_t> ids;
};

// One tensor of the experts `from`, side by side.
Tensor gather_experts(OnReference& on_reference, const Tensor& all,
                      const std::vector<int32_t>& from) {
  if (all.is_null()) return all;
  const auto count = static_cast<int64_t>(from.size());
  const Tensor gathered =
      all.rank() == 4 ? on_reference.empty(all.dtype(), {count, all.dim(1), all.dim(2), all.dim(3)})
                      : on_reference.empty(all.dtype(), {count, all.dim(1), all.dim(2)});
  for (int64_t i = 0; i < count; ++i)
    on_reference.copy_into(gathered[i], all[from[static_cast<size_t>(i)]]);
  return gathered;
}

ChosenExperts choose_experts(OnReference& on_reference, const Experts& experts, int64_t first) {
  const auto begin = static_cast<size_t>(first * experts.args.ids.dim(1));
  ChosenExperts chosen;
  std::vector<int32_t> from;
  for (size_t i = begin; i < experts.ids.size(); ++i) {
    const auto at = std::find(from.begin(), from.end(), experts.ids[i]);
    chosen.ids.push_back(static_cast<int32_t>(at - from.begin()));
    if (at == from.end()) from.push_back(experts.ids[i]);
  }
  const ops::Weight &gate_up = experts.args.gate_up, &down = experts.args.down;
  chosen.gate_up = {.data = gather_experts(on_reference, gate_up.data, from),
                    .scale = gather_experts(on_reference, gate_up.scale, from)};
  chosen.down = {.data = gather_experts(on_reference, down.data, from),
                 .scale = gather_experts(on_reference, down.scale, from)};
  return chosen;
}

// The shared experts' FFN, half by half: their scale blocks need not join.
void reference_shared(OnReference& on_reference, const Experts& experts, const ops::Activation& x,
                      const Tensor& out) {
  const ops::Weight gate_up = on_reference.weight(experts.shared_gate_up);
  const int64_t rows = x.dim(0), inter = gate_up.data.dim(1);
  const Tensor both = on_reference.empty(DType::kF32, {rows, 2, inter});
  for (int64_t i = 0; i < 2; ++i) {
    const Tensor half = both.reshape({rows, 2 * inter}).slice(1, i * inter, (i + 1) * inter);
    const Tensor scale = gate_up.scale.is_null() ? gate_up.scale : gate_up.scale[i];
    ops::linear({.x = x, .weight = {.data = gate_up.data[i], .scale = scale}, .out = half},
                on_reference.stream());
  }
  const Tensor gated = on_reference.empty(DType::kF32, {rows, inter});
  ops::silu_mul({.gate_up = both, .out = gated}, on_reference.stream());
  ops::linear({.x = gated, .weight = on_reference.weight(experts.shared_down), .out = out},
              on_reference.stream());
}

std::vector<float> reference_experts(OnReference& on_reference, const Experts& experts) {
  const int64_t tokens = experts.args.ids.dim(0), chosen_per_token = experts.args.ids.dim(1);
  const int64_t first = first_checked(tokens), rows = tokens - first;
  const ChosenExperts chosen = choose_experts(on_reference, experts, first);
  const bool shared = !experts.shared_down.data.is_null();
  const ops::MoeExpertsArgs cut{
      .x = on_reference.rows(checked(experts.args.x)),
      .ids = on_reference.upload(chosen.ids, {rows, chosen_per_token}),
      .weights = on_reference.copy(checked(experts.args.weights)),
      .gate_up = chosen.gate_up,
      .down = chosen.down,
      .accumulate = shared,
      .out = on_reference.empty(DType::kF32, {rows, experts.args.out.dim(1)})};
  if (shared) reference_shared(on_reference, experts, cut.x, cut.out);
  ops::moe_experts(cut, on_reference.stream());
  return values_of(cut.out);
}

double expert_bytes(const Experts& experts) {
  const ops::MoeExpertsArgs& args = experts.args;
  const double routed =
      bytes_of({args.gate_up.data, args.gate_up.scale, args.down.data, args.down.scale});
  return routed * static_cast<double>(experts.num_used) /
             static_cast<double>(args.down.data.dim(0)) +
         bytes_of({args.x.values, args.x.scale, args.ids, args.weights, args.out});
}

double expert_flops(const Experts& experts) {
  const Tensor& down = experts.args.down.data;
  return 2.0 * 3 * static_cast<double>(experts.ids.size()) *
         static_cast<double>(down.dim(1) * ops::row_values(down));
}

OpCall moe_experts_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  const Experts experts = make_experts(operands, shapes, tokens);
  return {.bytes = expert_bytes(experts),
          .flops = expert_flops(experts),
          .prepare = {},
          .run = [=](ops::Stream& stream) { ops::moe_experts(experts.args, stream); },
          .expected =
              [=](OnReference& on_reference) { return reference_experts(on_reference, experts); },
          .actual =
              [=](OnReference& on_reference) {
                return on_reference.values(checked(experts.args.out));
              }};
}

OpCall moe_experts_shared_call(Operands& operands, const OpShapes& shapes, int64_t tokens) {
  Experts experts = make_experts(operands, shapes, tokens);
  add_shared(operands, shapes, experts);
  const ops::Weight &gate_up = experts.shared_gate_up, &down = experts.shared_down;
  const auto shared_elements = gate_up.data.num_elements() + down.data.num_elements();
  return {.bytes = expert_bytes(experts) +
                   bytes_of({gate_up.data, gate_up.scale, down.data, down.scale}),
          .flops = expert_flops(experts) + 2.0 * static_cast<double>(tokens * shared_elements),
          .prepare = {},
          .run =
              [=](ops::Stream& stream) {
                ops::moe_experts_shared({.experts = experts.args,
                                         .shared_gate_up = experts.shared_gate_up,
                                         .shared_down = experts.shared_down},
                                        stream);
              },
          .expected =
              [=](OnReference& on_reference) { return reference_experts(on_reference, experts); },
          .actual =
              [=](OnReference& on_reference) {
                return on_reference.values(checked(experts.args.out));
              }};
}

// Of tensors that lie nowhere.
bool takes_shared(const OpShapes& shapes, int64_t tokens, const ops::Stream& stream) {
  const config::ModelConfig& c = shapes.config;
  const DType dtype = shapes.types.experts(), act = shapes.backend->act;
  const auto nowhere = [](DType of, std::initializer_list<int64_t> shape) {
    return Tensor::contiguous(nullptr, of, shape);
  };
  const int64_t experts = c.n_routed_experts, hidden = c.hidden_size;
  const int64_t inter = c.moe_intermediate_size, chosen = c.num_experts_per_tok;
  const int64_t hidden_blocks = ops::num_scale_blocks(hidden),
                blocks = ops::num_scale_blocks(inter);
  const Tensor rows = nowhere(act, {tokens, hidden});
  const ops::MoeExpertsArgs routed{
      .x = rows,
      .ids = nowhere(DType::kI32, {tokens, chosen}),
      .weights = nowhere(DType::kF32, {tokens, chosen}),
      .gate_up = {.data = nowhere(dtype, {experts, 2, inter, hidden}), .scale = {}},
      .down = {.data = nowhere(dtype, {experts, hidden, inter}),
               .scale = nowhere(DType::kF32, {experts, hidden_blocks, blocks})},
      .out = rows};
  const int64_t width = c.n_shared_experts * inter;
  return ops::takes_moe_experts_shared(
      {.experts = routed,
       .shared_gate_up = {.data = nowhere(dtype, {2, width, hidden}), .scale = {}},
       .shared_down = {.data = nowhere(dtype, {hidden, width}), .scale = {}}},
      stream);
}
// Of a call with shared experts, 0 = any.
int64_t most_shared_tokens(const OpShapes& shapes) {
  int64_t most = shapes.backend->moe_experts_shared.max_tokens;
  if (most == 0) return 0;
  const std::unique_ptr<ops::Stream> stream = shapes.backend->make_stream({});
  while (most > 1 && !takes_shared(shapes, most, *stream)) most /= 2;
  return most;
}

}  // namespace

std::vector<OpCase> moe_cases(const OpShapes& shapes) {
  const config::ModelConfig& c = shapes.config;
  if (c.n_routed_experts == 0) return {};
  const auto with_shapes = [&shapes](auto call) {
    return [&shapes, call](Operands& operands, int64_t tokens) {
      return call(operands, shapes, tokens);
    };
  };
  const std::string experts = std::to_string(c.num_experts_per_tok) + " of " +
                              std::to_string(c.n_routed_experts) + " experts";
  const DType dtype = shapes.types.experts();
  std::vector<OpCase> cases = {{.op = "moe_gate",
                                .what = experts,
                                .dtype = shapes.types.plain,
                                .make = with_shapes(moe_gate_call)},
                               {.op = "moe_experts",
                                .what = experts,
                                .dtype = dtype,
                                .make = with_shapes(moe_experts_call)}};
  // Shared experts of FP8 are no part of a call with routed ones of INT4.
  if (c.n_shared_experts > 0 && !shapes.types.int4_experts) {
    cases.push_back({.op = "moe_experts_shared",
                     .what = experts,
                     .dtype = dtype,
                     .make = with_shapes(moe_experts_shared_call)});
    if (const int64_t most = most_shared_tokens(shapes); most > 0) cases.back().max_tokens = most;
  }
  return cases;
}

}  // namespace fathom::apps
