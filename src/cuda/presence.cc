#include "cuda/presence.h"

namespace fathom::cuda {
namespace {

std::string version_name(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string why_no_device(const GpuFacts& facts) {
  const std::string needed = version_name(facts.runtime_version) + " or newer";
  if (facts.status == DriverStatus::kMissingOrTooOld) {
    if (facts.driver_version == 0)
      return "there is no NVIDIA driver, one for " + needed + " is needed";
    return "the NVIDIA driver is for " + version_name(facts.driver_version) + ", one for " +
           needed + " is needed";
  }
  if (facts.status == DriverStatus::kFails) return facts.failure;
  return "this machine has none, or CUDA_VISIBLE_DEVICES hides it";
}

}  // namespace

std::string why_gpu_is_unusable(const GpuFacts& facts) {
  if (facts.status != DriverStatus::kWorks || facts.num_devices == 0)
    return "no NVIDIA GPU can be used: " + why_no_device(facts);
  if (facts.name.empty()) return "the NVIDIA GPU does not say what it is";
  if (facts.major == kCapabilityMajor && facts.minor == kCapabilityMinor) return {};
  return facts.name + " has compute capability " + std::to_string(facts.major) + "." +
         std::to_string(facts.minor) + ", needed is " + std::to_string(kCapabilityMajor) + "." +
         std::to_string(kCapabilityMinor) +
         ", Hopper (H100, H200): the kernels are for sm_90a alone";
}

}  // namespace fathom::cuda
