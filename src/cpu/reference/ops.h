#pragma once
// The operators of the reference backend, those of ops/operators.inc, and the scratch that they need: one file per
// family. Contracts: ops/<operator>.h. Shapes were checked at the boundary.
//
//   reference::rms_norm(args, stream);      // whose scratch has rms_norm_scratch(args, stream) bytes
//
// Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cpu::reference {

#define FATHOM_REFERENCE_none(name, Args)
#define FATHOM_REFERENCE_run(name, Args) void name(const ops::Args& args, ops::Stream& stream);
#define FATHOM_REFERENCE_scratch(name, Args) \
  FATHOM_REFERENCE_run(name, Args)           \
      int64_t name##_scratch(const ops::Args& args, const ops::Stream& stream);
#define FATHOM_OPERATOR(name, Args, types, reference) FATHOM_REFERENCE_##reference(name, Args)
#include "ops/operators.inc"
#undef FATHOM_REFERENCE_none
#undef FATHOM_REFERENCE_run
#undef FATHOM_REFERENCE_scratch

}  // namespace fathom::cpu::reference
