#pragma once
// The fast kernels of absorbed attention, for V3's rows of 512 + 64 values in bf16 or f8: clusters for few query rows
// (mla_absorbed.cu) and streams for many (mla_absorbed_stream.cu), with the same bits. Any other rows get the kernel
// of mla_absorbed_generic.cu. Whether they do depends on format and alignment alone.
//
//   if (absorbed::can_run(args)) absorbed::run(args, stream);
//
// Internal to cuda/attention/.

#include "ops/mla.h"

namespace fathom::cuda {

struct AbsorbedParams;

namespace absorbed {

bool can_run(const ops::MlaAbsorbedArgs& args);
void run(const ops::MlaAbsorbedArgs& args, ops::Stream& stream);
int64_t scratch_bytes(const ops::MlaAbsorbedArgs& args);

// Items of 16 query rows, whose parameters are complete.
void start_stream(const AbsorbedParams& p, bool is_f8, ops::Stream& stream);

}  // namespace absorbed
}  // namespace fathom::cuda
