#include "layers/fused_ops.h"

#include <algorithm>

namespace fathom::layers {
namespace {

// "self_attn.kv_b_proj" names "model.layers.0.self_attn.kv_b_proj.weight", and "model.layers.0" everything in it.
bool is_in_module(std::string_view weight_name, std::string_view module) {
  for (size_t at = weight_name.find(module); at != std::string_view::npos;
       at = weight_name.find(module, at + 1)) {
    const size_t end = at + module.size();
    const bool begins = at == 0 || weight_name[at - 1] == '.';
    if (begins && (end == weight_name.size() || weight_name[end] == '.')) return true;
  }
  return false;
}

}  // namespace

ops::ScaleForm WeightTypes::scale_form(std::string_view weight_name) const {
  if (int4_experts && is_in_module(weight_name, "mlp.experts")) return ops::ScaleForm::kGroups;
  const ops::ScaleForm integer = awq_group_size > 0 ? ops::ScaleForm::kZeroPoints : int8;
  if (integer == ops::ScaleForm::kNone)
    return fp8 ? ops::ScaleForm::kBlocks : ops::ScaleForm::kNone;
  const bool is_left =
      unquantised != nullptr &&
      std::any_of(unquantised->begin(), unquantised->end(),
                  [&](const std::string& module) { return is_in_module(weight_name, module); });
  return is_left ? ops::ScaleForm::kNone : integer;
}

}  // namespace fathom::layers
