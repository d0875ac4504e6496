#pragma once
// Absorbed attention for rows of any size (absorbed_any.cuh) as a text for NVRTC, in which the sizes of a model are
// constants.
//
//   kernels.want(sizes, absorbed_name(sizes), [&] { return absorbed_source(sizes); });
//
// Internal to cuda/attention/. Pure functions, thread-safe.

#include <cstdint>
#include <string>

#include "jit/source.h"
#include "ops/kv_format.h"

namespace fathom::cuda {

struct AbsorbedSizes {
  ops::KvFormat format;
  int64_t heads = 0, block_tokens = 0;
  bool operator==(const AbsorbedSizes&) const = default;
};

std::string absorbed_name(const AbsorbedSizes& sizes);  // "mla_absorbed 256+32, f8_e4m3"
jit::Source absorbed_source(const AbsorbedSizes& sizes);

}  // namespace fathom::cuda
