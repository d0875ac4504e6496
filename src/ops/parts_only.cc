#include "ops/parts_only.h"

#include <algorithm>

namespace fathom::ops {

Backend parts_only(const Backend& backend) {
  Backend parts = backend;
#define FATHOM_OPERATOR(name, Args, types, reference)
#define FATHOM_FUSED_OPERATOR(name, Args, types, reference, ...) parts.name = {};
#include "ops/operators.inc"
  parts.mla_plan_bytes = nullptr;
  std::erase_if(parts.long_attention, [](const LongAttention& limit) {
    const std::vector<FusedOperator>& fused = fused_operators();
    return std::any_of(fused.begin(), fused.end(),
                       [&](const FusedOperator& one) { return one.op == limit.op; });
  });
  return parts;
}

}  // namespace fathom::ops
