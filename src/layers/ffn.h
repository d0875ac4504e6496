#pragma once
// Ffn: down(silu(gate(x)) * up(x)), the dense layers' FFN and the shared experts of an MoE layer.
//
//   Ffn ffn("model.layers.0.mlp.", {.hidden_size = 7168, .intermediate_size = 18432}, builder);
//
// Of several ranks each holds a part of intermediate_size, and the sum over them is the result.
//
// Immutable after loading, thread-safe.

#include <string>
#include <vector>

#include "layers/attention.h"
#include "layers/rms_norm.h"
#include "layers/weight_builder.h"

namespace fathom::layers {

struct FfnShape {
  int64_t hidden_size = 0, intermediate_size = 0;
};

class Ffn {
 public:
  // part: which of the rank's parts of the sum over ranks this computes (RankContext::mlp_parts()).
  Ffn(const std::string& prefix, const FfnShape& shape, WeightBuilder& builder, int part = 0);

  // x, out  [tokens, hidden_size]
  void forward(const NormedRows& x, const LayerStep& step, const tensor::Tensor& out) const;

  // [2, intermediate_size, hidden_size] and [hidden_size, intermediate_size], of the rank's part
  const ops::Weight& gate_up() const { return gate_up_; }
  const ops::Weight& down() const { return down_; }

 private:
  void project_up(const ops::Activation& x, const tensor::Tensor& gate_up,
                  ops::Stream& stream) const;
  // silu(gate) * up, quantised where the backend does both at once.
  ops::Activation activate(const tensor::Tensor& gate_up, const LayerStep& step) const;

  int64_t intermediate_size() const { return gate_up_.data.dim(1); }

  FusedOps fused_;
  ops::Weight gate_up_;  // [2, intermediate_size, hidden_size], gate first
  ops::Weight down_;
};

// The FFN of a dense layer: the parts of it that the rank computes, mostly one.
class DenseMlp {
 public:
  DenseMlp(const std::string& prefix, const FfnShape& shape, WeightBuilder& builder);
  void forward(const NormedRows& x, const LayerStep& step, const tensor::Tensor& out) const;

 private:
  std::vector<Ffn> parts_;
};

}  // namespace fathom::layers
