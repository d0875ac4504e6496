#pragma once
// Attention of a few tokens of up to 16 heads to lists of at most 2,048 rows in f8, with the bits of absorbed
// attention.
//
//   if (absorbed::takes_few_lists(args)) absorbed::attend_few_lists(args, stream);     // lists are tables of args
//
// Internal to cuda/attention/sparse/.

#include "ops/mla.h"

namespace fathom::cuda::absorbed {

bool takes_few_lists(const ops::MlaAbsorbedArgs& args);
void attend_few_lists(const ops::MlaAbsorbedArgs& args, ops::Stream& stream);

}  // namespace fathom::cuda::absorbed
