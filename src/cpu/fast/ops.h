#pragma once
// The operators of the fast backend, one file per family, and the scratch that they need. It has those of
// ops/operators.inc that fast_backend.cc names; the others are declared and nowhere defined. Contracts:
// ops/<operator>.h; shapes were checked at the boundary. The stream must be a FastStream.
//
// Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cpu::fast {

#define FATHOM_OPERATOR(name, Args, types, reference)    \
  void name(const ops::Args& args, ops::Stream& stream); \
  int64_t name##_scratch(const ops::Args& args, const ops::Stream& stream);
#include "ops/operators.inc"

bool takes_index_append_query(const ops::IndexAppendQueryArgs& args, const ops::Stream& stream);
int64_t mla_plan_bytes(const ops::MlaPlanShape& shape);

}  // namespace fathom::cpu::fast
