#include "cuda/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/runtime/stream.cuh"

namespace fathom::cuda {
namespace {

// Null for "no room", which is an answer and leaves no error behind.
void* or_null(cudaError_t status, void* const& data) {
  if (status == cudaSuccess) return data;
  cudaGetLastError();
  return nullptr;
}

}  // namespace

void* allocate(int64_t bytes) {
  void* data = nullptr;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  return or_null(cudaMalloc(&data, size), data);
}

void deallocate(void* data) { check(cudaFree(data), "free memory"); }

int device_of(const void* data) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "tell where memory is");
  return attributes.device;
}

int64_t free_memory_bytes() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "tell its free memory");
  return static_cast<int64_t>(free);
}

void* allocate_host(int64_t bytes) {
  void* data = nullptr;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  return or_null(cudaMallocHost(&data, size), data);
}

void deallocate_host(void* data) { check(cudaFreeHost(data), "free page-locked memory"); }

void copy_to_device(void* device, const void* host, int64_t bytes, ops::Stream& stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                        CudaStream::of(stream).handle()),
        "copy to its memory");
}

void copy_to_host(void* host, const void* device, int64_t bytes, ops::Stream& stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                        CudaStream::of(stream).handle()),
        "copy from its memory");
}

}  // namespace fathom::cuda
