#pragma once
// Absorbed attention of steps of some tens of short sequences, with the bits of attention/'s: mla_absorbed runs here
// where it can, else there.
//
//   add_attention(backend);
//   add_even_attention(backend);      // takes the place of mla_absorbed in the table
//
// Only enqueues. Thread-safe for distinct streams.

#include "ops/backend.h"

namespace fathom::cuda {

void add_even_attention(ops::Backend& backend);

}  // namespace fathom::cuda
