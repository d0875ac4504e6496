#pragma once
// WeightBuilder: takes memory for weights from an arena and lists them as parameters to load.
// Layers use it in their constructors, so a layer's shapes, names and memory are written down in
// one place; they also ask it which fused operators to run. Building a network against a measuring arena gives the bytes that its weights need.
//
//   WeightBuilder builder(arena, {.plain = DType::kBf16, .fp8 = true}, backend, parameters);
//   ops::Weight o_proj = builder.matrix(prefix + "o_proj.weight", hidden_size, heads * v_head_dim);
//
// Keeps references to arena and parameters. Not synchronised.

#include <initializer_list>
#include <string>
#include <vector>

#include "layers/fused_ops.h"
#include "ops/linear.h"
#include "tensor/arena.h"
#include "weights/parameter.h"

namespace fathom::layers {

class WeightBuilder {
 public:
  WeightBuilder(tensor::Arena& arena, const WeightTypes& types, const ops::Backend& backend,
                std::vector<weights::Parameter>& parameters)
      : arena_(arena),
        types_(types),
        fused_(FusedOps::of(backend, types)),
        parameters_(parameters) {}

  // [dim], of ones when dummy weights are asked for.
  tensor::Tensor norm(const std::string& name, int64_t dim);
  // f32[dim]
  tensor::Tensor bias(const std::string& name, int64_t dim);
  // [rows, cols], never FP8.
  tensor::Tensor plain_matrix(const std::string& name, int64_t rows, int64_t cols);
  // [rows, cols], FP8 in an FP8 model.
  ops::Weight matrix(const std::string& name, int64_t rows, int64_t cols);
  // [names..., rows, cols]: equal matrices side by side, FP8 in an FP8 model, each with its own
  // scales.
  ops::Weight stacked(const std::vector<std::string>& names, int64_t rows, int64_t cols);
  // Memory without a parameter: derived weights.
  tensor::Tensor derived(tensor::DType dtype, std::initializer_list<int64_t> shape);

  const WeightTypes& types() const { return types_; }
  const FusedOps& fused() const { return fused_; }

 private:
  tensor::Arena& arena_;
  WeightTypes types_;
  FusedOps fused_;
  std::vector<weights::Parameter>& parameters_;
};

}  // namespace fathom::layers
