#pragma once
// WeightBuilder: takes memory for weights from an arena and lists them as parameters to load.
// Layers use it in their constructors, so a layer's shapes, names and memory are written down in
// one place; they also ask it which fused operators to run and what part of the model the rank holds. Building a
// network against a measuring arena gives the bytes that its weights need.
//
//   WeightBuilder builder(arena, {.plain = DType::kBf16, .fp8 = true}, backend, parameters, rank);
//   ops::Weight o_proj = builder.matrix(prefix + "o_proj.weight", hidden_size, heads * v_head_dim,
//                                       builder.tp_columns(v_head_dim, 0));       // the columns of this rank's heads
//
// Sizes are the whole model's; what comes back is the rank's part. Throws StartupError where ranks cannot share a
// parameter equally: in granules, and between blocks of scales (weights/shard.h).
//
// Keeps references to arena and parameters. Not synchronised.

#include <initializer_list>
#include <string>
#include <vector>

#include "comm/rank_context.h"
#include "config/model_config.h"
#include "layers/fused_ops.h"
#include "ops/linear.h"
#include "tensor/arena.h"
#include "weights/parameter.h"

namespace fathom::layers {

// The types of a model's matrices as its checkpoint has them, all else left at its default. Of INT8 the names of
// modules that are not quantised are the config's own.
WeightTypes quantised_types(const config::ModelConfig& config, bool dequantize);

// A matrix by its name and its number of outputs.
struct NamedRows {
  std::string name;
  int64_t rows = 0;
};

// Matrices below each other: one product of all, or of each. `all` is null where they are apart.
struct JoinedWeight {
  ops::Weight all;
  std::vector<ops::Weight> parts;
};

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
  // part: of the parts of a sum that the rank computes (RankContext::tp_parts()).
  weights::Shard tp_rows(int64_t granule = 1) const {
    return {.axis = 0, .rank = rank_.tp->rank(), .size = rank_.tp->size(), .granule = granule};
  }
  weights::Shard tp_columns(int64_t granule, int part) const {
    const int parts = rank_.tp_parts();
    return {.axis = 1,
            .rank = rank_.tp->rank() * parts + part,
            .size = rank_.tp->size() * parts,
            .granule = granule,
            .holders = holders(parts)};
  }
  // The same among all ranks of the model, which share the FFNs. part: of RankContext::mlp_parts().
  weights::Shard mlp_rows(int part) const { return mlp_shard(0, part); }
  weights::Shard mlp_columns(int part) const { return mlp_shard(1, part); }

  // [dim], of ones when dummy weights are asked for.
  tensor::Tensor norm(const std::string& name, int64_t dim);
  // f32[dim]
  tensor::Tensor bias(const std::string& name, int64_t dim);
  // [rows, cols], never FP8.
  tensor::Tensor plain_matrix(const std::string& name, int64_t rows, int64_t cols,
                              const weights::Shard& shard = {});
  // [rows, cols], FP8 in an FP8 model, INT8 in an INT8 model where it does not leave the module as it is. Routed
  // experts of a W4AFP8 model are INT4, [rows, cols / 2] pairs, and all matrices of an AWQ model u4x2, as many.
  ops::Weight matrix(const std::string& name, int64_t rows, int64_t cols,
                     const weights::Shard& shard = {});
  // [names..., rows, cols]: equal matrices side by side, of the type that matrix() gives each, which must be one, each
  // with its own scales.
  ops::Weight stacked(const std::vector<std::string>& names, int64_t rows, int64_t cols,
                      const weights::Shard& shard = {});
  // [rows of all, cols]: matrices below each other, each as matrix() gives it. Apart where their types or the forms of
  // their scales differ, or a block of scales would have rows of two.
  JoinedWeight joined(const std::vector<NamedRows>& matrices, int64_t cols);
  // Lists matrices that are other ranks', so that finding them in the checkpoint is no surprise.
  void leave_to_others(const std::vector<std::string>& names);
  // Memory without a parameter: derived weights.
  tensor::Tensor derived(tensor::DType dtype, std::initializer_list<int64_t> shape);

  const WeightTypes& types() const { return types_; }
  const FusedOps& fused() const { return fused_; }
  const comm::RankContext& rank() const { return rank_; }

 private:
  bool can_join(const std::vector<NamedRows>& matrices) const;
  // Of all of them.
  ops::ScaleForm form_of(const std::vector<std::string>& names) const;
  tensor::DType type_of(ops::ScaleForm form) const;
  // Throws StartupError where parts of the columns are no whole groups of zero points.
  void require_groups(const std::string& name, int64_t cols, const weights::Shard& shard) const;
  tensor::Tensor scales(ops::ScaleForm form, int64_t count, int64_t rows, int64_t cols);
  static const char* holders(int parts) {
    return parts == 1 ? "ranks" : "parts of --deterministic-tp";
  }
  weights::Shard mlp_shard(int axis, int part) const {
    const int parts = rank_.mlp_parts();
    return {.axis = axis,
            .rank = rank_.mlp_part() * parts + part,
            .size = rank_.count() * parts,
            .holders = holders(parts)};
  }

  tensor::Arena& arena_;
  WeightTypes types_;
  FusedOps fused_;
  std::vector<weights::Parameter>& parameters_;
  comm::RankContext rank_;
};

}  // namespace fathom::layers
