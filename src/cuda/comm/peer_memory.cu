#include "cuda/comm/peer_memory.h"

#include <string>

#include "base/startup_error.h"
#include "cuda/runtime/driver.h"

namespace fathom::cuda {
namespace {

std::string words_of(CUresult status) {
  static const auto name = driver_function<decltype(&cuGetErrorString)>("cuGetErrorString");
  const char* text = nullptr;
  if (name(status, &text) != CUDA_SUCCESS || text == nullptr)
    return "error " + std::to_string(status);
  return text;
}

std::string of_gpu(int device) { return " of GPU " + std::to_string(device); }

// What went wrong is in the setting up of memory that GPUs share: before a server is ready.
void require(CUresult status, const std::string& what) {
  if (status != CUDA_SUCCESS)
    throw StartupError("ranks on several GPUs cannot share memory: " + what + ": " +
                       words_of(status));
}

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  return properties;
}

uint64_t granularity_on(int device) {
  static const auto ask =
      driver_function<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  const CUmemAllocationProp properties = on_device(device);
  size_t granularity = 0;
  require(ask(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
          "the granularity of memory" + of_gpu(device));
  return granularity;
}

// words[1] becomes what words[0] is for this GPU.
__global__ void echo(volatile uint32_t* words, uint32_t value) {
  words[0] = value;
  __threadfence_system();
  words[1] = words[0];
}

// A GPU that shall write here and cannot would hang the first collective, so each writes a word and reads it back.
void try_from(int user, int owner, char* data) {
  constexpr uint32_t kEmpty[2] = {0xffffffff, 0xffffffff};
  const uint32_t sent = 0x5eed0000u + static_cast<uint32_t>(user);
  uint32_t received[2] = {};
  bool works = cudaSetDevice(user) == cudaSuccess;
  if (works) echo<<<1, 1>>>(reinterpret_cast<uint32_t*>(data), sent);
  works = works && cudaDeviceSynchronize() == cudaSuccess && cudaSetDevice(owner) == cudaSuccess &&
          cudaMemcpy(received, data, sizeof received, cudaMemcpyDeviceToHost) == cudaSuccess &&
          cudaMemcpy(data, kEmpty, sizeof kEmpty, cudaMemcpyHostToDevice) == cudaSuccess;
  cudaGetLastError();
  if (!works || received[0] != sent || received[1] != sent)
    throw StartupError("ranks on several GPUs cannot share memory: GPU " + std::to_string(user) +
                       " does not reach memory" + of_gpu(owner));
}

}  // namespace

PeerMemory::PeerMemory(int64_t bytes, int owner, const std::vector<int>& users) {
  const uint64_t granularity = granularity_on(owner);
  bytes_ = (static_cast<uint64_t>(bytes) + granularity - 1) / granularity * granularity;
  int before = 0;
  check(cudaGetDevice(&before), "name its device");
  try {
    map(owner, users);
    check(cudaSetDevice(owner), "be used by a thread");
    check(cudaMemset(data(), 0xff, bytes_), "clear memory");
    check(cudaDeviceSynchronize(), "clear memory");
    for (const int user : users) try_from(user, owner, data());
  } catch (...) {
    release();
    cudaSetDevice(before);
    throw;
  }
  check(cudaSetDevice(before), "be used by a thread");
}

PeerMemory::~PeerMemory() { release(); }

void PeerMemory::map(int owner, const std::vector<int>& users) {
  static const auto reserve =
      driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  static const auto create = driver_function<decltype(&cuMemCreate)>("cuMemCreate");
  static const auto map = driver_function<decltype(&cuMemMap)>("cuMemMap");
  static const auto set_access = driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess");
  const CUmemAllocationProp properties = on_device(owner);
  CUmemGenericAllocationHandle handle = 0;
  require(create(&handle, bytes_, &properties, 0),
          std::to_string(bytes_) + " bytes" + of_gpu(owner));
  handle_ = handle;
  CUdeviceptr address = 0;
  require(reserve(&address, bytes_, 0, 0, 0), "an address range for memory" + of_gpu(owner));
  address_ = address;
  require(map(address_, bytes_, 0, handle_, 0), "an address for memory" + of_gpu(owner));
  is_mapped_ = true;
  std::vector<CUmemAccessDesc> access;
  for (const int user : users)
    access.push_back({.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = user},
                      .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  require(set_access(address_, bytes_, access.data(), access.size()),
          "access of all ranks to memory" + of_gpu(owner) +
              " (GPUs without NVLink or peer access cannot)");
}

void PeerMemory::release() {
  static const auto unmap = driver_function<decltype(&cuMemUnmap)>("cuMemUnmap");
  static const auto free_address = driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree");
  static const auto release_memory = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
  if (is_mapped_) unmap(address_, bytes_);
  if (address_ != 0) free_address(address_, bytes_);
  if (handle_ != 0) release_memory(handle_);
}

}  // namespace fathom::cuda
