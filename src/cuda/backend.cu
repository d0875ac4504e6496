#include "cuda/backend.h"

#include <cuda_runtime.h>

#include "cuda/bandwidth.h"
#include "cuda/families.h"
#include "cuda/memory.h"
#include "cuda/stream.cuh"
#include "ops/kv_format.h"

namespace fathom::cuda {
namespace {

using tensor::DType;

constexpr int kMajor = 9;

bool supports(std::string_view op, DType dtype) {
  for (const std::string_view matrix : {"linear", "linear_pair", "head_linear", "moe_experts",
                                        "moe_experts_shared", "fill_from_table"}) {
    if (op == matrix)
      return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF8E4M3;
  }
  for (const std::string_view plain : {"embedding", "rms_norm", "rms_norm_quantize", "moe_gate"}) {
    if (op == plain) return dtype == DType::kF32 || dtype == DType::kBf16;
  }
  for (const std::string_view of_cache : {"kv_append", "kv_gather", "mla_absorbed"}) {
    if (op == of_cache) return ops::KvFormat::is_known(dtype);
  }
  return dtype == DType::kBf16 || (op == "rope_table" && dtype == DType::kF32);
}

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
                      .cuda_graph_max_bs = 128};
  backend.act = DType::kBf16;
  backend.supports = supports;
  add_linear(backend);
  add_experts(backend);
  add_attention(backend);
  add_elementwise(backend);
  add_sampling(backend);
  add_speculation(backend);
  return backend;
}

// Why no device was counted. The runtime's words for a machine without a driver speak of versions.
std::string reason(cudaError_t status) {
  if (status == cudaSuccess || status == cudaErrorNoDevice) return "this machine has none";
  if (status == cudaErrorInsufficientDriver)
    return "there is no driver for it, or one older than CUDA " +
           std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  return cudaGetErrorString(status);
}

}  // namespace

bool is_built() { return true; }

namespace {

Presence look_for_gpu() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0)
    return {.usable = false, .why_not = "no NVIDIA GPU can be used: " + reason(status)};
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess)
    return {.usable = false, .why_not = "the NVIDIA GPU does not say what it is"};
  if (properties.major != kMajor || properties.minor != 0) {
    return {.usable = false,
            .why_not = std::string(properties.name) + " has compute capability " +
                       std::to_string(properties.major) + "." + std::to_string(properties.minor) +
                       "; the kernels are for 9.0, Hopper (H100, H200)"};
  }
  return {.usable = true, .why_not = {}};
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
