#pragma once
// WeightBuilder: takes memory for weights from an arena and lists them as parameters to load.
// Layers use it in their constructors, so a layer's shapes, names and memory are written down in
// one place; they also ask it which fused operators to run and what part of the model the rank holds. Building a
// network against a measuring arena gives the bytes that its weights need.
//
//   WeightBuilder builder(arena, {.plain = DType::kBf16, .fp8 = true}, backend, parameters, rank);
//   ops::Weight o_proj = builder.matrix(prefix + "o_proj.weight", hidden_size, heads * v_head_dim,
//                                       builder.tp_columns(v_head_dim));          // the columns of this rank's heads
//
// Sizes are the whole model's; what comes back is the rank's part. Throws StartupError where ranks cannot share a
// parameter equally: in granules, and with f8 weights between blocks of scales (weights/shard.h).
//
// Keeps references to arena and parameters. Not synchronised.

#include <initializer_list>
#include <string>
#include <vector>

#include "comm/rank_context.h"
#include "layers/fused_ops.h"
#include "ops/linear.h"
#include "tensor/arena.h"
#include "weights/parameter.h"

namespace fathom::layers {

class WeightBuilder {
 public:
  WeightBuilder(tensor::Arena& arena, const WeightTypes& types, const ops::Backend& backend,
                std::vector<weights::Parameter>& parameters, const comm::RankContext& rank = {})
      : arena_(arena),
        types_(types),
        fused_(FusedOps::of(backend, types)),
        parameters_(parameters),
        rank_(rank) {}

  // Rows or columns of the rank's place in tensor parallelism. granule: what stays together, as the rows of a head.
  weights::Shard tp_rows(int64_t granule = 1) const { return shard(0, *rank_.tp, granule); }
  weights::Shard tp_columns(int64_t granule = 1) const { return shard(1, *rank_.tp, granule); }
  // The same among all ranks of the model, which share the FFNs.
  weights::Shard mlp_rows() const { return mlp_shard(0); }
  weights::Shard mlp_columns() const { return mlp_shard(1); }

  // [dim], of ones when dummy weights are asked for.
  tensor::Tensor norm(const std::string& name, int64_t dim);
  // f32[dim]
  tensor::Tensor bias(const std::string& name, int64_t dim);
  // [rows, cols], never FP8.
  tensor::Tensor plain_matrix(const std::string& name, int64_t rows, int64_t cols,
                              const weights::Shard& shard = {});
  // [rows, cols], FP8 in an FP8 model.
  ops::Weight matrix(const std::string& name, int64_t rows, int64_t cols,
                     const weights::Shard& shard = {});
  // [names..., rows, cols]: equal matrices side by side, FP8 in an FP8 model, each with its own
  // scales.
  ops::Weight stacked(const std::vector<std::string>& names, int64_t rows, int64_t cols,
                      const weights::Shard& shard = {});
  // Lists matrices that are other ranks', so that finding them in the checkpoint is no surprise.
  void leave_to_others(const std::vector<std::string>& names);
  // Memory without a parameter: derived weights.
  tensor::Tensor derived(tensor::DType dtype, std::initializer_list<int64_t> shape);

  const WeightTypes& types() const { return types_; }
  const FusedOps& fused() const { return fused_; }
  const comm::RankContext& rank() const { return rank_; }

 private:
  weights::Shard mlp_shard(int axis) const {
    return {.axis = axis, .rank = rank_.number(), .size = rank_.count()};
  }
  static weights::Shard shard(int axis, const comm::Communicator& group, int64_t granule) {
    return {.axis = axis, .rank = group.rank(), .size = group.size(), .granule = granule};
  }

  tensor::Arena& arena_;
  WeightTypes types_;
  FusedOps fused_;
  std::vector<weights::Parameter>& parameters_;
  comm::RankContext rank_;
};

}  // namespace fathom::layers
