#pragma once
// launch: the one way to start a kernel, with programmatic dependent launch.
//
//   launch(rms_norm_kernel<float>, {.grid = rows, .block = 256}, stream, params);
//
// A kernel that is launched this way may begin while the one before it still runs. So every kernel calls
// wait_for_previous() (ptx/pdl.cuh) before it touches anything that another kernel writes or reads, scratch
// and outputs included; before that only weights may be read, and what a call says is settled (ops/index.h). Each waits
// for its predecessor as a whole, so all earlier ones are done too. A grid of no blocks is not launched.

#include <cuda_runtime.h>

#include <algorithm>

#include "base/check.h"
#include "cuda/runtime/stream.cuh"

namespace fathom::cuda {

struct LaunchShape {
  dim3 grid{1}, block{1};
  int shared_bytes = 0;  // dynamic, whatever the kernel declares itself
  int cluster = 1;       // blocks of a cluster, along x
  // All blocks run at once, whatever other streams do: of kernels whose blocks wait for each other. They need room.
  bool together = false;
};

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, ops::Stream& stream,
            Arguments&&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  // By default a kernel has 48 KB for what it declares and what it is given together, and nobody here knows the former.
  constexpr int kDefaultShared = 48 << 10;
  if (shape.shared_bytes > 0)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               std::max(shape.shared_bytes, kDefaultShared)),
          "raise a kernel's shared memory");
  if (shape.cluster > 8)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
          "allow a kernel's cluster size");
  cudaLaunchAttribute attributes[3];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {.x = static_cast<unsigned>(shape.cluster), .y = 1, .z = 1};
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = CudaStream::of(stream).handle();
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  if (shape.together) {
    cudaLaunchAttribute& together = attributes[config.numAttrs++];
    together.id = cudaLaunchAttributeCooperative;
    together.val.cooperative = 1;
  }
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
        "launch a kernel");
}

inline unsigned num_tiles(int64_t count, int64_t tile) {
  return static_cast<unsigned>((count + tile - 1) / tile);
}

}  // namespace fathom::cuda
