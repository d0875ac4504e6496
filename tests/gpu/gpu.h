#pragma once
// What the tests that need a GPU share. Each skips visibly where there is none.
//
//   class GpuModel : public GpuTest {};

#include <gtest/gtest.h>

#include "cuda/backend.h"

namespace fathom::gpu_test {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const cuda::Presence gpu = cuda::find_gpu();
    if (!gpu.usable) GTEST_SKIP() << gpu.why_not << "; to run it: a Hopper GPU";
  }
};

}  // namespace fathom::gpu_test
