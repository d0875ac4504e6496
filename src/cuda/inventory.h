#pragma once
// What of NVIDIA's there is: the toolkit that the program was built with, the driver, the GPUs. For people and reports;
// whether the backend can be used is cuda/backend.h's to say.
//
//   for (const cuda::Gpu& gpu : cuda::list_gpus()) print(gpu.name, gpu.total_bytes);
//
// list_gpus() opens every GPU to ask for its free memory, which takes some hundred milliseconds each. Thread-safe.

#include <cstdint>
#include <string>
#include <vector>

namespace fathom::cuda {

// "CUDA 13.0, kernels for sm_90a"; empty where the program was built without the toolkit. Does not ask the driver.
std::string built_with();

// "13.0": the newest CUDA that the driver knows; empty where there is no driver, or no CUDA in the program.
std::string driver_cuda();

struct Gpu {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int64_t total_bytes = 0;
  int64_t free_bytes = -1;  // -1: it could not be opened
};

// In the order of CUDA_VISIBLE_DEVICES; empty where the driver shows none.
std::vector<Gpu> list_gpus();

// "0000:3B:00.0", the PCI address of the first `count` of them. Opens none.
std::vector<std::string> bus_ids(int count);

}  // namespace fathom::cuda
