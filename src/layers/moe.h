#pragma once
// Moe: gate, routed experts and shared experts of one layer (DeepSeek-V2 report 2.2, V3
// report 2.1.2). The shared experts are one FFN of width n_shared_experts * moe_intermediate_size;
// the routed ones add to it. Of several ranks each holds whole experts where there is expert parallelism, else a part
// of every expert's width; the sum over all ranks is the result.
//
// Immutable after loading, thread-safe.

#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "layers/ffn.h"
#include "ops/moe.h"

namespace fathom::layers {

class Moe {
 public:
  // prefix: "model.layers.3.mlp."
  Moe(const std::string& prefix, const config::ModelConfig& config, WeightBuilder& builder);

  // The gate: rows of buffers.ffn.ids and weights, from x, act[rows, hidden_size] of these tokens. kv_rows i64[rows]
  // tells which are padding; null = unknown.
  void choose(const tensor::Tensor& x, const tensor::Tensor& kv_rows, const RoutedRows& to,
              ops::Stream& stream) const;
  // x, out  [tokens, hidden_size], of tokens whose experts were chosen.
  void forward(const NormedRows& x, const LayerStep& step, const tensor::Tensor& out) const;

 private:
  // One of the rank's parts of the sum over ranks; mostly there is one.
  struct Part {
    // [experts, 2, moe_intermediate_size, hidden_size]  the part's, as down
    ops::Weight gate_up;
    ops::Weight down;  // [experts, hidden_size, moe_intermediate_size]
    std::optional<Ffn> shared_experts;
  };

  static bool has_one_type(const Part& part);
  static void require_one_type(const std::string& prefix, const Part& part);
  Part take_part(const std::string& prefix, const config::ModelConfig& config, int number,
                 WeightBuilder& builder) const;
  void compute(const Part& part, const NormedRows& x, const LayerStep& step,
               const tensor::Tensor& out) const;

  ops::MoeGateArgs gate_;                       // everything but x and the outputs
  int64_t first_expert_ = 0, num_experts_ = 0;  // that the rank holds
  std::vector<Part> parts_;
  bool shares_call_ = false;  // shared and routed experts in one call
};

}  // namespace fathom::layers
