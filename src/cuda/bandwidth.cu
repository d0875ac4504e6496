#include "cuda/bandwidth.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "cuda/memory.h"
#include "cuda/ptx/copy.cuh"
#include "cuda/runtime/stream.cuh"

namespace fathom::cuda {
namespace {

constexpr int64_t kBytes = int64_t{1} << 30;
constexpr int kThreads = 1024, kUnroll = 4, kPasses = 9;

// Memory-bound: reads `count` pieces of 16 bytes once. Grid: one block a multiprocessor.
__global__ void __launch_bounds__(kThreads)
    read_kernel(const uint4* data, int64_t count, uint32_t* sink) {
  uint32_t sum = 0;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = load_streamed(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum += v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  // Never true, but the compiler cannot know and keeps the loads.
  if (sum == 0x12345678u) *sink = sum;
}

}  // namespace

double measure_read_bandwidth_gb_s(int) {
  void* const data = allocate(kBytes);
  if (data == nullptr) return 0;
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "create an event");
  check(cudaEventCreate(&end), "create an event");
  check(cudaMemset(data, 1, static_cast<size_t>(kBytes)), "fill memory");
  float best_ms = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    check(cudaEventRecord(begin), "record an event");
    read_kernel<<<num_multiprocessors(), kThreads>>>(static_cast<const uint4*>(data), kBytes / 16,
                                                     static_cast<uint32_t*>(data));
    check(cudaGetLastError(), "launch a kernel");
    check(cudaEventRecord(end), "record an event");
    check(cudaEventSynchronize(end), "wait for an event");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time a kernel");
    best_ms = pass == 0 ? ms : std::min(best_ms, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  deallocate(data);
  return static_cast<double>(kBytes) / (best_ms * 1e6);
}

}  // namespace fathom::cuda
