#include "layers/moe.h"

#include <algorithm>
#include <vector>

#include "base/startup_error.h"
#include "layers/sum_of_parts.h"

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

// Whether one call takes routed and shared experts: of an INT8 model some may not be quantised.
bool Moe::has_one_type(const Part& part) {
  const tensor::DType type = part.gate_up.data.dtype();
  return part.shared_experts->gate_up().data.dtype() == type &&
         part.shared_experts->down().data.dtype() == type;
}

void Moe::require_one_type(const std::string& prefix, const Part& part) {
  if (part.gate_up.data.dtype() == part.down.data.dtype()) return;
  throw StartupError(prefix +
                     "experts: gate_proj and up_proj are quantised and down_proj is not, or the "
                     "other way round, which quantization_config must not ask for");
}

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

  const comm::Communicator& ep = *builder.rank().ep;
  num_experts_ = weights::shard_length({.rank = ep.rank(), .size = ep.size()}, prefix + "experts",
                                       num_experts);
  first_expert_ = ep.rank() * num_experts_;
  for (int part = 0; part < builder.rank().mlp_parts(); ++part)
    parts_.push_back(take_part(prefix, config, part, builder));
  shares_call_ = config.n_shared_experts > 0 && builder.fused().moe_experts_shared &&
                 std::all_of(parts_.begin(), parts_.end(), has_one_type);
}

// The experts of this rank, or its part of all. Those of others are listed without memory.
Moe::Part Moe::take_part(const std::string& prefix, const config::ModelConfig& config, int number,
                         WeightBuilder& builder) const {
  std::vector<std::string> gate_up_names, down_names;
  for (int64_t expert = 0; expert < config.n_routed_experts; ++expert) {
    const std::string name = prefix + "experts." + std::to_string(expert) + ".";
    const std::string gate = name + "gate_proj.weight", up = name + "up_proj.weight";
    const std::string down = name + "down_proj.weight";
    if (expert < first_expert_ || expert >= first_expert_ + num_experts_) {
      builder.leave_to_others({gate, up, down});
      continue;
    }
    gate_up_names.insert(gate_up_names.end(), {gate, up});
    down_names.push_back(down);
  }
  const int64_t inter = config.moe_intermediate_size, hidden_size = config.hidden_size;
  const bool whole_experts = builder.rank().ep->size() > 1;
  const weights::Shard rows = whole_experts ? weights::Shard() : builder.mlp_rows(number);
  const weights::Shard columns = whole_experts ? weights::Shard() : builder.mlp_columns(number);
  const ops::Weight gate_up = builder.stacked(gate_up_names, inter, hidden_size, rows);
  Part part{.gate_up = {.data = pair_up(gate_up.data), .scale = pair_up(gate_up.scale)},
            .down = builder.stacked(down_names, hidden_size, inter, columns),
            .shared_experts = std::nullopt};
  require_one_type(prefix, part);
  if (config.n_shared_experts > 0)
    part.shared_experts.emplace(
        prefix + "shared_experts.",
        FfnShape{.hidden_size = hidden_size, .intermediate_size = inter * config.n_shared_experts},
        builder, number);
  return part;
}

void Moe::choose(const Tensor& x, const Tensor& kv_rows, const RoutedRows& to,
                 ops::Stream& stream) const {
  ops::MoeGateArgs gate = gate_;
  gate.x = x;
  gate.kv_rows = kv_rows;
  gate.ids = to.ids;
  gate.weights = to.weights;
  ops::moe_gate(gate, stream);
}

void Moe::forward(const NormedRows& x, const LayerStep& step, const Tensor& out) const {
  sum_of_parts(parts_.size(), out, step,
               [&](size_t part, const Tensor& to) { compute(parts_[part], x, step, to); });
}

void Moe::compute(const Part& part, const NormedRows& x, const LayerStep& step,
                  const Tensor& out) const {
  ops::MoeExpertsArgs routed{.x = x.input(),
                             .ids = step.buffers.all_lanes.routed.ids,
                             .weights = step.buffers.all_lanes.routed.weights,
                             .gate_up = part.gate_up,
                             .down = part.down,
                             .first_expert = first_expert_,
                             .out = out};
  if (shares_call_) {
    const ops::MoeExpertsSharedArgs all{.experts = routed,
                                        .shared_gate_up = part.shared_experts->gate_up(),
                                        .shared_down = part.shared_experts->down()};
    if (ops::takes_moe_experts_shared(all, step.stream))
      return ops::moe_experts_shared(all, step.stream);
  }
  if (part.shared_experts) part.shared_experts->forward(x, step, out);
  routed.accumulate = part.shared_experts.has_value();
  ops::moe_experts(routed, step.stream);
}

}  // namespace fathom::layers
