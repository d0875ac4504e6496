#pragma once
// The simulation's stand-in for a hidden state: a hash of the rows that a query token sees, in order.
//
//   uint64_t hash = kSimHashStart;
//   hash = sim_extend(hash, token, position);        // once per row

#include <cstdint>

#include "base/rng.h"

namespace fathom::runner {

inline constexpr uint64_t kSimHashStart = 0x46617468'6f6d0001u;

constexpr uint64_t sim_extend(uint64_t hash, int32_t token, int32_t position) {
  return mix64(hash ^ (uint64_t{static_cast<uint32_t>(token)} << 32 |
                       uint64_t{static_cast<uint32_t>(position)}));
}

}  // namespace fathom::runner
