#pragma once
// Moe: gate, routed experts and shared experts of one layer (DeepSeek-V2 report 2.2, V3
// report 2.1.2). The shared experts are one FFN of width n_shared_experts * moe_intermediate_size;
// the routed ones add to it. Of several ranks each holds whole experts where there is expert parallelism, else a part
// of every expert's width; the sum over all ranks is the result.
//
// Immutable after loading, thread-safe.

#include <optional>
#include <string>

#include "config/model_config.h"
#include "layers/ffn.h"
#include "ops/moe.h"

namespace fathom::layers {

class Moe {
 public:
  // prefix: "model.layers.3.mlp."
  Moe(const std::string& prefix, const config::ModelConfig& config, WeightBuilder& builder);

  // x, out  [tokens, hidden_size]. REQUIRES: x has values, which the gate reads.
  void forward(const NormedRows& x, const LayerStep& step, const tensor::Tensor& out) const;

 private:
  void take_experts(const std::string& prefix, const config::ModelConfig& config,
                    WeightBuilder& builder);

  ops::MoeGateArgs gate_;  // everything but x and the outputs
  // [experts, 2, moe_intermediate_size, hidden_size]  the rank's part, as down_
  ops::Weight gate_up_;
  ops::Weight down_;  // [experts, hidden_size, moe_intermediate_size]
  std::optional<Ffn> shared_experts_;
  bool shares_call_ = false;  // shared and routed experts in one call
};

}  // namespace fathom::layers
