#include "layers/moe.h"

#include <vector>

namespace fathom::layers {
namespace {

using tensor::Tensor;

ops::GateKind gate_kind(const config::ModelConfig& config) {
  switch (config.topk_method) {
    case config::TopkMethod::kGreedy:
      return ops::GateKind::kSoftmaxGreedy;
    case config::TopkMethod::kGroupLimitedGreedy:
      return ops::GateKind::kSoftmaxGroups;
    case config::TopkMethod::kNoauxTc:
      return ops::GateKind::kSigmoidNoAux;
  }
  FATHOM_CHECK(false, "topk_method " << static_cast<int>(config.topk_method));
}

// [experts * 2, ...] -> [experts, 2, ...]
Tensor pair_up(const Tensor& t) {
  if (t.is_null()) return t;
  return t.reshape({t.dim(0) / 2, 2, t.dim(1), t.dim(2)});
}

}  // namespace

Moe::Moe(const std::string& prefix, const config::ModelConfig& config, WeightBuilder& builder) {
  const int64_t num_experts = config.n_routed_experts, hidden_size = config.hidden_size;
  gate_.kind = gate_kind(config);
  gate_.n_group = config.n_group;
  gate_.topk_group = config.topk_group;
  gate_.norm_topk_prob = config.norm_topk_prob;
  gate_.routed_scaling_factor = static_cast<float>(config.routed_scaling_factor);
  gate_.weight = builder.plain_matrix(prefix + "gate.weight", num_experts, hidden_size);
  if (gate_.kind == ops::GateKind::kSigmoidNoAux) {
    gate_.bias = builder.bias(prefix + "gate.e_score_correction_bias", num_experts);
  }

  take_experts(prefix, config, builder);
  if (config.n_shared_experts > 0) {
    shared_experts_.emplace(prefix + "shared_experts.",
                            FfnShape{.hidden_size = hidden_size,
                                     .intermediate_size = int64_t{config.moe_intermediate_size} *
                                                          config.n_shared_experts},
                            builder);
    shares_call_ = builder.fused().moe_experts_shared;
  }
}

// The experts of this rank, or its part of all. Those of others are listed without memory.
void Moe::take_experts(const std::string& prefix, const config::ModelConfig& config,
                       WeightBuilder& builder) {
  const comm::Communicator& ep = *builder.rank().ep;
  const int64_t num_experts = config.n_routed_experts;
  gate_.num_held = weights::shard_length({.rank = ep.rank(), .size = ep.size()}, prefix + "experts",
                                         num_experts);
  gate_.first_expert = ep.rank() * gate_.num_held;
  std::vector<std::string> gate_up_names, down_names;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    const std::string name = prefix + "experts." + std::to_string(expert) + ".";
    const std::string gate = name + "gate_proj.weight", up = name + "up_proj.weight";
    const std::string down = name + "down_proj.weight";
    if (gate_.held_id(expert) < 0) {
      builder.leave_to_others({gate, up, down});
      continue;
    }
    gate_up_names.insert(gate_up_names.end(), {gate, up});
    down_names.push_back(down);
  }
  const int64_t inter = config.moe_intermediate_size, hidden_size = config.hidden_size;
  const bool whole_experts = ep.size() > 1;
  const weights::Shard rows = whole_experts ? weights::Shard() : builder.mlp_rows();
  const weights::Shard columns = whole_experts ? weights::Shard() : builder.mlp_columns();
  const ops::Weight gate_up = builder.stacked(gate_up_names, inter, hidden_size, rows);
  gate_up_ = {.data = pair_up(gate_up.data), .scale = pair_up(gate_up.scale)};
  down_ = builder.stacked(down_names, hidden_size, inter, columns);
}

void Moe::forward(const NormedRows& x, const LayerStep& step, const Tensor& out) const {
  const FfnBuffers& buffers = step.buffers.ffn;
  ops::MoeGateArgs gate = gate_;
  gate.x = x.values;
  // Which rows of other lanes are padding is not known here, and nobody reads what is computed for them.
  if (step.rank.dp->size() == 1) gate.kv_rows = step.batch.kv_rows;
  gate.ids = buffers.ids;
  gate.weights = buffers.weights;
  ops::moe_gate(gate, step.stream);
  ops::MoeExpertsArgs routed{.x = x.input(),
                             .ids = buffers.ids,
                             .weights = buffers.weights,
                             .gate_up = gate_up_,
                             .down = down_,
                             .out = out};
  const int64_t most_tokens = step.stream.backend().moe_experts_shared_max_tokens;
  if (shares_call_ && (most_tokens == 0 || out.dim(0) <= most_tokens)) {
    return ops::moe_experts_shared({.experts = routed,
                                    .shared_gate_up = shared_experts_->gate_up(),
                                    .shared_down = shared_experts_->down()},
                                   step.stream);
  }
  if (shared_experts_) shared_experts_->forward(x, step, out);
  routed.accumulate = shared_experts_.has_value();
  ops::moe_experts(routed, step.stream);
}

}  // namespace fathom::layers
