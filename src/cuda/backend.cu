#include "cuda/backend.h"

#include <cuda_runtime.h>

#include "cuda/attention/even/ops.h"
#include "cuda/attention/expanded/ops.h"
#include "cuda/attention/ops.h"
#include "cuda/attention/sparse/ops.h"
#include "cuda/bandwidth.h"
#include "cuda/cache/ops.h"
#include "cuda/decode/ops.h"
#include "cuda/elementwise/ops.h"
#include "cuda/experts/ops.h"
#include "cuda/indexer/ops.h"
#include "cuda/linear/ops.h"
#include "cuda/memory.h"
#include "cuda/presence.h"
#include "cuda/runtime/stream.cuh"
#include "cuda/sampling/ops.h"
#include "cuda/speculation/ops.h"

namespace fathom::cuda {
namespace {

using tensor::DType;

template <const ops::Backend& (*Self)()>
std::unique_ptr<ops::Stream> make_stream(const ops::StreamConfig&) {
  return std::make_unique<CudaStream>(Self());
}

void use_device(int device) { check(cudaSetDevice(device), "be used by a thread"); }

// "NVIDIA H200, 132 multiprocessors"
std::string describe_device() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "describe itself");
  return std::string(properties.name) + ", " + std::to_string(properties.multiProcessorCount) +
         " multiprocessors";
}

template <const ops::Backend& (*Self)()>
ops::Backend make_backend(bool batch_invariant) {
  static const std::string device = describe_device();
  ops::Backend backend;
  backend.name = "cuda";
  backend.device = device;
  backend.use_device = use_device;
  backend.device_of = device_of;
  backend.device_memory = true;
  backend.allocate = allocate;
  backend.deallocate = deallocate;
  backend.free_memory_bytes = free_memory_bytes;
  backend.read_bandwidth_gb_s = measure_read_bandwidth_gb_s;
  backend.allocate_host = allocate_host;
  backend.deallocate_host = deallocate_host;
  backend.copy_to_device = copy_to_device;
  backend.copy_to_host = copy_to_host;
  backend.make_stream = make_stream<Self>;
  backend.batch_invariant = batch_invariant;
  backend.defaults = {.kv_cache_dtype = DType::kBf16,
                      .mem_fraction_static = 0.9,
                      .chunked_prefill_size = 8192,
                      .expand_chunk_tokens = 8192,
                      .cuda_graph_max_bs = 128,
                      .step_start_tokens = 256};
  backend.act = DType::kBf16;
  add_linear(backend);
  add_experts(backend);
  add_cache(backend);
  add_attention(backend);
  add_even_attention(backend);
  add_expanded_attention(backend);
  add_sparse_attention(backend);
  add_decode(backend);
  add_indexer(backend);
  add_elementwise(backend);
  add_sampling(backend);
  add_speculation(backend);
  return backend;
}

}  // namespace

bool is_built() { return true; }

namespace {

GpuFacts ask_driver() {
  GpuFacts facts{.runtime_version = CUDART_VERSION};
  if (cudaDriverGetVersion(&facts.driver_version) != cudaSuccess) facts.driver_version = 0;
  const cudaError_t status = cudaGetDeviceCount(&facts.num_devices);
  facts.status = status == cudaSuccess                   ? DriverStatus::kWorks
                 : status == cudaErrorNoDevice           ? DriverStatus::kNoDevice
                 : status == cudaErrorInsufficientDriver ? DriverStatus::kMissingOrTooOld
                                                         : DriverStatus::kFails;
  if (facts.status == DriverStatus::kFails) facts.failure = cudaGetErrorString(status);
  cudaDeviceProp properties{};
  if (facts.num_devices > 0 && status == cudaSuccess &&
      cudaGetDeviceProperties(&properties, 0) == cudaSuccess) {
    facts.name = properties.name;
    facts.major = properties.major;
    facts.minor = properties.minor;
  }
  return facts;
}

Presence look_for_gpu() {
  const std::string why_not = why_gpu_is_unusable(ask_driver());
  return {.usable = why_not.empty(), .why_not = why_not};
}

}  // namespace

Presence find_gpu() {
  static const Presence presence = look_for_gpu();
  return presence;
}

const ops::Backend& backend() {
  static const ops::Backend table = make_backend<backend>(false);
  return table;
}

const ops::Backend& batch_invariant_backend() {
  static const ops::Backend table = make_backend<batch_invariant_backend>(true);
  return table;
}

}  // namespace fathom::cuda
