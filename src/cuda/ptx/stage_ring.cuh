#pragma once
// A role's place in a ring of stages in shared memory: whoever loads and whoever multiplies each has its own, and both
// go through the stages in the same order.
//
//   StageRing<Shared> ring{shared};      // Shared has Stage, stages[kStages], full[kStages] and empty[kStages]
//   barrier_wait(ring.full(), ring.parity), use(*ring), barrier_arrive(ring.empty()), ring.advance();

#include <cstdint>

#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

template <class Shared>
struct StageRing {
  Shared& shared;
  int stage = 0;
  uint32_t parity = 0;

  __device__ uint32_t full() const { return shared_address(&shared.full[stage]); }
  __device__ uint32_t empty() const { return shared_address(&shared.empty[stage]); }
  __device__ typename Shared::Stage& operator*() const { return shared.stages[stage]; }
  __device__ void advance() {
    if (++stage < Shared::kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

}  // namespace fathom::cuda
