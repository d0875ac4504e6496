#include "ops/parts_only.h"

namespace fathom::ops {

Backend parts_only(const Backend& backend) {
  Backend parts = backend;
#define FATHOM_OPERATOR(name, Args, types, reference)
#define FATHOM_FUSED_OPERATOR(name, Args, types, reference, ...) parts.name = {};
#include "ops/operators.inc"
  parts.mla_plan_bytes = nullptr;
  return parts;
}

}  // namespace fathom::ops
