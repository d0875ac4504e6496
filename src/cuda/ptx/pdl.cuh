#pragma once
// Programmatic dependent launch, the device side (see launch.cuh).
//
//   let_next_start();       // the next kernel's blocks may be placed from here on; orders no memory
//   ... read weights ...
//   wait_for_previous();    // all of the kernel before is done and its writes are visible
//
// Data of earlier kernels must not be read through the read-only cache (__ldg): it may hold old lines.

namespace fathom::cuda {

__device__ __forceinline__ void wait_for_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

__device__ __forceinline__ void let_next_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace fathom::cuda
