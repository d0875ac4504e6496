#pragma once
// Functions of the CUDA driver, found through the runtime: nothing links the driver's library, which a machine without
// a GPU lacks.
//
//   static const auto create = driver_function<decltype(&cuMemCreate)>("cuMemCreate");
//
// Aborts where the driver does not have it. REQUIRES: there is a driver. Thread-safe.

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "base/check.h"
#include "cuda/runtime/stream.cuh"

namespace fathom::cuda {

template <class Function>
Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr unsigned kVersion = 12000;
  check(cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result),
        "name a function of its driver");
  FATHOM_CHECK(result == cudaDriverEntryPointSuccess, "the driver has no " << name);
  return reinterpret_cast<Function>(found);
}

}  // namespace fathom::cuda
