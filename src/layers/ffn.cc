#include "layers/ffn.h"

#include "layers/linear_pair.h"
#include "layers/sum_of_parts.h"
#include "ops/linear.h"
#include "ops/silu_mul.h"

namespace fathom::layers {

using tensor::Tensor;

Ffn::Ffn(const std::string& prefix, const FfnShape& shape, WeightBuilder& builder, int part)
    : fused_(builder.fused()),
      gate_up_(builder.stacked({prefix + "gate_proj.weight", prefix + "up_proj.weight"},
                               shape.intermediate_size, shape.hidden_size, builder.mlp_rows(part))),
      down_(builder.matrix(prefix + "down_proj.weight", shape.hidden_size, shape.intermediate_size,
                           builder.mlp_columns(part))) {}

void Ffn::forward(const NormedRows& x, const LayerStep& step, const Tensor& out) const {
  const int64_t tokens = out.dim(0), inter = intermediate_size();
  const Tensor gate_up =
      step.buffers.ffn.gate_up.slice(0, 0, tokens * 2 * inter).reshape({tokens, 2, inter});
  project_up(x.input(), gate_up, step.stream);
  ops::linear({.x = activate(gate_up, step), .weight = down_, .out = out}, step.stream);
}

ops::Activation Ffn::activate(const Tensor& gate_up, const LayerStep& step) const {
  const int64_t tokens = gate_up.dim(0), inter = intermediate_size();
  const FfnBuffers& buffers = step.buffers.ffn;
  if (!fused_.silu_mul_quantize) {
    const Tensor gated = buffers.gated.slice(0, 0, tokens * inter).reshape({tokens, inter});
    ops::silu_mul({.gate_up = gate_up, .out = gated}, step.stream);
    return gated;
  }
  const int64_t blocks = ops::num_scale_blocks(inter);
  const ops::Activation gated(
      buffers.gated_f8.slice(0, 0, tokens * inter).reshape({tokens, inter}),
      buffers.gated_scale.slice(0, 0, tokens * blocks).reshape({tokens, blocks}));
  ops::silu_mul_quantize({.gate_up = gate_up, .quantised = gated}, step.stream);
  return gated;
}

void Ffn::project_up(const ops::Activation& x, const Tensor& gate_up, ops::Stream& stream) const {
  const int64_t tokens = gate_up.dim(0), inter = intermediate_size();
  const Tensor rows = gate_up.reshape({tokens, 2 * inter});
  if (ops::scale_form(gate_up_) == ops::ScaleForm::kBlocks && inter % ops::kScaleBlock != 0) {
    // The last scale block of the gate is partial, so the two are no single matrix with 128x128
    // blocks.
    const auto half = [&](int64_t i) {
      return ops::LinearPairArgs::Product{
          .weight = {.data = gate_up_.data[i], .scale = gate_up_.scale[i]},
          .out = rows.slice(1, i * inter, (i + 1) * inter)};
    };
    return linear_pair(fused_, {.x = x, .a = half(0), .b = half(1)}, stream);
  }
  ops::Weight whole{.data = gate_up_.data.reshape({2 * inter, gate_up_.data.dim(2)}), .scale = {}};
  if (!gate_up_.scale.is_null()) {
    const Tensor& scale = gate_up_.scale;
    whole.scale = scale.reshape({2 * scale.dim(1), scale.dim(2)});
  }
  ops::linear({.x = x, .weight = whole, .out = rows}, stream);
}

DenseMlp::DenseMlp(const std::string& prefix, const FfnShape& shape, WeightBuilder& builder) {
  for (int part = 0; part < builder.rank().mlp_parts(); ++part)
    parts_.emplace_back(prefix, shape, builder, part);
}

void DenseMlp::forward(const NormedRows& x, const LayerStep& step, const Tensor& out) const {
  sum_of_parts(parts_.size(), out, step,
               [&](size_t part, const Tensor& to) { parts_[part].forward(x, step, to); });
}

}  // namespace fathom::layers
