#include "comm/communicator.h"

namespace fathom::comm {

void Communicator::all_reduce_norm(const ops::RmsNormArgs& norm, const ops::Activation& quantised,
                                   ops::Stream& stream) {
  all_reduce(norm.x, stream);
  if (quantised.is_null()) return ops::rms_norm(norm, stream);
  ops::rms_norm_quantize({.norm = norm, .quantised = quantised}, stream);
}

}  // namespace fathom::comm
