#pragma once
// Whether a GPU can run the kernels, and the sentence that says why not: decided from what the driver tells, so that it
// is tested without one.
//
//   const std::string why_not = why_gpu_is_unusable({.runtime_version = CUDART_VERSION, .status = DriverStatus::kWorks,
//                                                    .num_devices = 1, .name = "NVIDIA A100", .major = 8});
//
// Pure function. Versions count as CUDA's do: 13010 is 13.1.

#include <string>

namespace fathom::cuda {

// The kernels are compiled for sm_90a, which runs on this capability and no other.
inline constexpr int kCapabilityMajor = 9, kCapabilityMinor = 0;

enum class DriverStatus { kWorks, kMissingOrTooOld, kNoDevice, kFails };

struct GpuFacts {
  int runtime_version = 0;  // of the CUDA that the program was built with
  int driver_version = 0;   // the newest CUDA that the driver knows; 0 = there is no driver
  DriverStatus status = DriverStatus::kFails;
  std::string failure = {};  // the runtime's words, of kFails
  int num_devices = 0;
  // What device 0 is. An empty name: it does not tell.
  std::string name = {};
  int major = 0, minor = 0;
};

// Empty when nothing is wrong.
std::string why_gpu_is_unusable(const GpuFacts& facts);

}  // namespace fathom::cuda
