#include "ops/parts_only.h"

namespace fathom::ops {

Backend parts_only(const Backend& backend) {
  Backend parts = backend;
  parts.rms_norm_quantize = {};
  parts.silu_mul_quantize = {};
  parts.linear_pair = {};
  parts.moe_experts_shared = {};
  parts.mla_plan = {};
  parts.mla_plan_bytes = nullptr;
  return parts;
}

}  // namespace fathom::ops
