#include <cuda_runtime.h>

#include "cuda/inventory.h"

namespace fathom::cuda {
namespace {

std::string version_digits(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Free memory of the current device; -1 where it cannot be opened.
int64_t free_bytes_now() {
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) return static_cast<int64_t>(free);
  cudaGetLastError();  // nobody else is to find it
  return -1;
}

}  // namespace

std::string built_with() {
  return "CUDA " + version_digits(CUDART_VERSION) + ", kernels for sm_90a";
}

std::string driver_cuda() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) return "";
  return version_digits(version);
}

std::vector<Gpu> list_gpus() {
  int count = 0, before = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || cudaGetDevice(&before) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  std::vector<Gpu> gpus;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) continue;
    Gpu& gpu = gpus.emplace_back();
    gpu.name = properties.name;
    gpu.major = properties.major;
    gpu.minor = properties.minor;
    gpu.multiprocessors = properties.multiProcessorCount;
    gpu.total_bytes = static_cast<int64_t>(properties.totalGlobalMem);
    if (cudaSetDevice(device) == cudaSuccess) gpu.free_bytes = free_bytes_now();
  }
  cudaSetDevice(before);
  return gpus;
}

std::vector<std::string> bus_ids(int count) {
  std::vector<std::string> ids;
  for (int device = 0; device < count; ++device) {
    char id[32] = {};
    if (cudaDeviceGetPCIBusId(id, sizeof id, device) != cudaSuccess) cudaGetLastError();
    ids.emplace_back(id);
  }
  return ids;
}

}  // namespace fathom::cuda
