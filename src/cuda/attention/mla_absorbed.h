#pragma once
// The fast kernel of absorbed attention, for V3's rows of 512 + 64 values in bf16 or f8. Any other rows get the one
// of mla_absorbed_generic.cu. Which of them runs depends on format and alignment alone, so a row has one of the two's
// bits.
//
//   if (absorbed::can_run(args)) absorbed::run(args, stream);
//
// Internal to cuda/attention/.

#include "ops/mla.h"

namespace fathom::cuda::absorbed {

bool can_run(const ops::MlaAbsorbedArgs& args);
void run(const ops::MlaAbsorbedArgs& args, ops::Stream& stream);
int64_t scratch_bytes(const ops::MlaAbsorbedArgs& args);

}  // namespace fathom::cuda::absorbed
