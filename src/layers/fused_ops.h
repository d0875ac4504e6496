#pragma once
// FusedOps: which fused operators the layers of a model run instead of their parts: those that the backend has
// for the model's types. Decided once, when the model is built; `fathom inspect --operators` shows what runs.
//
//   const FusedOps fused = FusedOps::of(backend, {.plain = DType::kBf16, .fp8 = true});
//
// Plain data.

#include <string>
#include <string_view>
#include <vector>

#include "ops/backend.h"
#include "ops/linear.h"

namespace fathom::layers {

struct WeightTypes {
  tensor::DType plain = tensor::DType::kBf16;   // of everything that is not FP8: f32 or bf16
  bool fp8 = false;                             // matrices that the checkpoint quantises stay FP8
  bool int4_experts = false;                    // of these, routed experts are INT4 (i4x2)
  bool fp8_absorbed = false;                    // W_UK and W_UV of MLA are quantised to FP8
  bool fp8_drafts = false;                      // a draft layer's own product and head, as copies
  ops::ScaleForm int8 = ops::ScaleForm::kNone;  // other than none: they stay INT8, with such scales
  int awq_group_size = 0;  // other than 0: they stay u4x2, with zero points of so many channels
  // INT8 and AWQ: of modules that are not quantised, with all in them. Null = none; outlives the layers' making.
  const std::vector<std::string>* unquantised = nullptr;

  // Of the matrices that the checkpoint quantises, but routed experts.
  tensor::DType matrix() const {
    if (int8 != ops::ScaleForm::kNone) return tensor::DType::kI8;
    if (awq_group_size > 0) return tensor::DType::kU4x2;
    return fp8 ? tensor::DType::kF8E4M3 : plain;
  }
  tensor::DType experts() const { return int4_experts ? tensor::DType::kI4x2 : matrix(); }
  // The form of scales of the matrix with this name in the checkpoint.
  ops::ScaleForm scale_form(std::string_view weight_name) const;
};

struct FusedOps {
  // Rows are quantised where they are made, once for all matrices; FP8 models only. Otherwise every
  // matrix product quantises its rows itself.
  bool rms_norm_quantize = false, silu_mul_quantize = false;
  bool linear_pair = false;         // else two products
  bool moe_experts_shared = false;  // else the shared experts' FFN, then the routed ones
  // Of the calls that they take.
  bool mla_decode = false, mla_query = false, head_linear_quantize = false;
  bool mla_plan = false;            // else absorbed attention plans in every layer
  bool index_append_query = false;  // of FP8 keys; else keys, then queries

  static FusedOps of(const ops::Backend& backend, const WeightTypes& types) {
    const auto has = [&](std::string_view op, tensor::DType dtype) {
      return ops::provides(backend, {op, dtype});
    };
    return {.rms_norm_quantize = types.fp8 && has("rms_norm_quantize", types.plain),
            .silu_mul_quantize = types.fp8 && has("silu_mul_quantize", backend.act),
            .linear_pair = has("linear_pair", types.matrix()),
            .moe_experts_shared = !types.int4_experts && has("moe_experts_shared", types.matrix()),
            .mla_decode = backend.mla_decode.run != nullptr,
            .mla_query = backend.mla_query.run != nullptr,
            .head_linear_quantize = types.fp8 && has("head_linear_quantize", types.plain),
            .mla_plan = has("mla_plan", backend.act),
            .index_append_query = has("index_append_query", tensor::DType::kF8E4M3)};
  }
};

}  // namespace fathom::layers
