#pragma once
// mla_decode (ops/mla_decode.h): attention of a step that decodes few tokens, from compressed queries to the heads'
// outputs, as one kernel. Shapes were checked at the boundary; activations are bf16.
//
//   ops::set_mla_decoder(mla_decoder());      // at the start of the program
//
// It only enqueues. Thread-safe for distinct streams.

#include "ops/mla_decode.h"

namespace fathom::cuda {

const ops::MlaDecoder* mla_decoder();

}  // namespace fathom::cuda
