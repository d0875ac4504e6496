#pragma once
// silu(gate) * up, as both the products and the kernels between them compute it.
//
//   h = silu_mul(gate, up);
//
// A pure function.

namespace fathom::cuda {

__device__ __forceinline__ float silu_mul(float gate, float up) {
  return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}

}  // namespace fathom::cuda
