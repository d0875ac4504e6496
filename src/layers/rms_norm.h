#pragma once
// RmsNorm: the weight of one normalisation with its eps, and the residual stream that pre-norm
// blocks share: residual + branch, where the branch (the output of the last block) is added by the
// next normalisation in the same pass over memory.
//
//   ResidualStream stream_of_tokens(buffers.residual, buffers.branch);
//   stream_of_tokens.normalise(input_layernorm, {.values = normed}, stream);     // folds the branch in
//   attention.forward(normed, step, stream_of_tokens.branch());                  // the new branch
//   stream_of_tokens.set_pending(*step.rank.tp);                                 // summed over these ranks
//
// Here all-reduce, residual and normalisation meet. In a large step the ranks share the rows (row_shares.h): then
// `residual` holds what is summed of this rank's rows alone.
//
// Views; the buffers must outlive them.

#include <string>
#include <utility>

#include "comm/communicator.h"
#include "config/model_config.h"
#include "layers/row_shares.h"
#include "layers/weight_builder.h"
#include "ops/rms_norm.h"

namespace fathom::layers {

// Where normed rows go. Quantised ones are made where their place is not null: the backend then has the fused
// operator, and matrices read them instead of quantising each for itself.
struct NormedRows {
  tensor::Tensor values;      // act[rows, dim]; null = nobody wants them, REQUIRES quantised
  ops::Activation quantised;  // f8_e4m3[rows, dim] with scales, or null

  // What FP8 or other matrices read.
  ops::Activation input() const {
    return quantised.is_null() ? ops::Activation(values) : quantised;
  }
};

struct RmsNorm {
  tensor::Tensor weight;
  float eps = 1e-6f;

  void forward(const tensor::Tensor& x, const tensor::Tensor& out, ops::Stream& stream) const {
    ops::rms_norm({.x = x, .weight = weight, .eps = eps, .residual = {}, .out = out}, stream);
  }
  // residual may be null.
  void forward(const tensor::Tensor& x, const tensor::Tensor& residual, const NormedRows& out,
               ops::Stream& stream) const {
    const ops::RmsNormArgs norm{
        .x = x, .weight = weight, .eps = eps, .residual = residual, .out = out.values};
    if (out.quantised.is_null()) return ops::rms_norm(norm, stream);
    ops::rms_norm_quantize({.norm = norm, .quantised = out.quantised}, stream);
  }
};

inline RmsNorm make_rms_norm(const std::string& name, int64_t dim,
                             const config::ModelConfig& config, WeightBuilder& builder) {
  return {.weight = builder.norm(name, dim), .eps = static_cast<float>(config.rms_norm_eps)};
}

class ResidualStream {
 public:
  // Starts as what `residual` holds, of all rows. shares: among the ranks of the groups that sum.
  ResidualStream(const tensor::Tensor& residual, const tensor::Tensor& branch,
                 RowShares shares = {})
      : residual_(residual), branch_(branch), shares_(std::move(shares)) {}

  // out = norm(residual + branch), the branch summed over its ranks; afterwards `residual` holds the sum and the branch
  // is free. Where rows are shared and quantised, out.values are this rank's rows alone.
  void normalise(const RmsNorm& norm, const NormedRows& out, ops::Stream& stream) {
    if (!is_pending()) return norm.forward(residual_, {}, out, stream);
    comm::Communicator& group = *std::exchange(summed_over_, nullptr);
    if (shares_.are_shared()) return normalise_own(group, norm, out, stream);
    const ops::RmsNormArgs args{.x = branch_,
                                .weight = norm.weight,
                                .eps = norm.eps,
                                .residual = residual_,
                                .out = out.values};
    group.all_reduce_norm(args, out.quantised, stream);
  }

  const tensor::Tensor& residual() const { return residual_; }
  const tensor::Tensor& branch() const { return branch_; }
  const RowShares& shares() const { return shares_; }
  // The branch holds a block's output: this rank's part of a sum over the group.
  void set_pending(comm::Communicator& group) { summed_over_ = &group; }
  bool is_pending() const { return summed_over_ != nullptr; }

 private:
  void normalise_own(comm::Communicator& group, const RmsNorm& norm, const NormedRows& out,
                     ops::Stream& stream) const {
    group.reduce_scatter_rows(branch_, shares_.starts, stream);
    const NormedRows own{.values = shares_.own(out.values),
                         .quantised = shares_.own(out.quantised)};
    norm.forward(shares_.own(branch_), shares_.own(residual_), own, stream);
    if (out.quantised.is_null()) return group.all_gather_rows(out.values, shares_.starts, stream);
    group.all_gather_rows(out.quantised.values, shares_.starts, stream);
    group.all_gather_rows(out.quantised.scale, shares_.starts, stream);
  }

  tensor::Tensor residual_, branch_;
  RowShares shares_;
  comm::Communicator* summed_over_ = nullptr;  // null = nothing is in the branch
};

}  // namespace fathom::layers
