// Which GPUs the kernels run on, and what the others are told.

#include "cuda/presence.h"

#include <gtest/gtest.h>

namespace fathom::cuda {
namespace {

GpuFacts gpu(const std::string& name, int major, int minor) {
  return {.runtime_version = 13000,
          .driver_version = 13010,
          .status = DriverStatus::kWorks,
          .num_devices = 1,
          .name = name,
          .major = major,
          .minor = minor};
}

TEST(Presence, hopper_is_usable) {
  EXPECT_EQ(why_gpu_is_unusable(gpu("NVIDIA H100 80GB HBM3", 9, 0)), "");
  EXPECT_EQ(why_gpu_is_unusable(gpu("NVIDIA H200", 9, 0)), "");
}

TEST(Presence, other_generations_are_told_what_they_are_and_what_is_needed) {
  EXPECT_EQ(why_gpu_is_unusable(gpu("NVIDIA A100-SXM4-80GB", 8, 0)),
            "NVIDIA A100-SXM4-80GB has compute capability 8.0, needed is 9.0, Hopper (H100, H200): "
            "the kernels are "
            "for sm_90a alone");
  EXPECT_EQ(why_gpu_is_unusable(gpu("NVIDIA L40S", 8, 9)),
            "NVIDIA L40S has compute capability 8.9, needed is 9.0, Hopper (H100, H200): the "
            "kernels are for sm_90a "
            "alone");
  // sm_90a is no promise to what comes after it.
  EXPECT_EQ(why_gpu_is_unusable(gpu("NVIDIA B200", 10, 0)),
            "NVIDIA B200 has compute capability 10.0, needed is 9.0, Hopper (H100, H200): the "
            "kernels are for sm_90a "
            "alone");
}

TEST(Presence, a_driver_that_is_too_old_or_missing_is_told_apart) {
  GpuFacts facts{
      .runtime_version = 13000, .driver_version = 12040, .status = DriverStatus::kMissingOrTooOld};
  EXPECT_EQ(why_gpu_is_unusable(facts),
            "no NVIDIA GPU can be used: the NVIDIA driver is for CUDA 12.4, one for CUDA 13.0 or "
            "newer is needed");
  facts.driver_version = 0;
  EXPECT_EQ(
      why_gpu_is_unusable(facts),
      "no NVIDIA GPU can be used: there is no NVIDIA driver, one for CUDA 13.0 or newer is needed");
}

TEST(Presence, a_machine_without_a_gpu_and_a_driver_that_fails_say_so) {
  EXPECT_EQ(
      why_gpu_is_unusable(
          {.runtime_version = 13000, .driver_version = 13000, .status = DriverStatus::kNoDevice}),
      "no NVIDIA GPU can be used: this machine has none, or CUDA_VISIBLE_DEVICES hides it");
  EXPECT_EQ(
      why_gpu_is_unusable(
          {.runtime_version = 13000, .driver_version = 13000, .status = DriverStatus::kWorks}),
      "no NVIDIA GPU can be used: this machine has none, or CUDA_VISIBLE_DEVICES hides it");
  EXPECT_EQ(why_gpu_is_unusable({.runtime_version = 13000,
                                 .driver_version = 13000,
                                 .status = DriverStatus::kFails,
                                 .failure = "system not yet initialized"}),
            "no NVIDIA GPU can be used: system not yet initialized");
  EXPECT_EQ(why_gpu_is_unusable(gpu("", 0, 0)), "the NVIDIA GPU does not say what it is");
}

}  // namespace
}  // namespace fathom::cuda
