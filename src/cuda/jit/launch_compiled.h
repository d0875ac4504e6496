#pragma once
// launch_compiled: the way to start a kernel that was compiled at run time, with programmatic dependent launch like any
// other (runtime/launch.cuh).
//
//   if (void* const code = kernel.code()) launch_compiled(code, {.grid = rows, .block = 128}, stream, parameters);
//
// parameters: the address of each of the kernel's. Internal to cuda/.

#include "cuda/runtime/driver.h"
#include "cuda/runtime/launch.cuh"

namespace fathom::cuda {

inline void launch_compiled(void* code, const LaunchShape& shape, ops::Stream& stream,
                            void** parameters) {
  static const auto launch = driver_function<decltype(&cuLaunchKernelEx)>("cuLaunchKernelEx");
  CUlaunchAttribute overlap{};
  overlap.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  overlap.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{.gridDimX = shape.grid.x,
                              .gridDimY = shape.grid.y,
                              .gridDimZ = shape.grid.z,
                              .blockDimX = shape.block.x,
                              .blockDimY = shape.block.y,
                              .blockDimZ = shape.block.z,
                              .sharedMemBytes = static_cast<unsigned>(shape.shared_bytes),
                              .hStream = CudaStream::of(stream).handle(),
                              .attrs = &overlap,
                              .numAttrs = 1};
  const CUresult result = launch(&config, static_cast<CUfunction>(code), parameters, nullptr);
  FATHOM_CHECK(result == CUDA_SUCCESS,
               "the GPU could not launch a compiled kernel: error " << static_cast<int>(result));
}

}  // namespace fathom::cuda
