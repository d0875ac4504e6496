// Which GPUs can be the ranks of one model, and what is said of the others.

#include "cuda/rank_devices.h"

#include <gtest/gtest.h>

namespace fathom::cuda {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

Gpu rank_gpu(const std::string& name, int64_t gib) {
  return {
      .name = name, .major = 9, .minor = 0, .total_bytes = gib * kGiB, .free_bytes = gib * kGiB};
}

TEST(RankDevices, are_as_many_as_ranks_and_of_one_kind) {
  const std::vector<Gpu> two = {rank_gpu("NVIDIA H200", 140), rank_gpu("NVIDIA H200", 140)};
  EXPECT_EQ(why_not_ranks(two, 2), "");
  EXPECT_EQ(why_not_ranks(two, 1), "");
  EXPECT_EQ(why_not_ranks(two, 4),
            "4 ranks need as many GPUs, and 2 are visible (CUDA_VISIBLE_DEVICES may hide others)");
  EXPECT_EQ(why_not_ranks({two[0]}, 2),
            "2 ranks need as many GPUs, and one is visible (CUDA_VISIBLE_DEVICES may hide others)");
}

TEST(RankDevices, that_differ_are_named) {
  const Gpu h200 = rank_gpu("NVIDIA H200", 140), h100 = rank_gpu("NVIDIA H100 80GB HBM3", 79);
  EXPECT_EQ(why_not_ranks({h200, h100}, 2),
            "the ranks of a model are GPUs of one kind, and GPU 1 is NVIDIA H100 80GB HBM3 of 79 "
            "GiB where GPU 0 is NVIDIA H200 of 140 GiB");
  EXPECT_EQ(why_not_ranks({h200, h200, h100}, 2), "");
}

TEST(RankDevices, that_cannot_be_opened_are_named) {
  Gpu closed = rank_gpu("NVIDIA H200", 140);
  closed.free_bytes = -1;
  EXPECT_EQ(why_not_ranks({rank_gpu("NVIDIA H200", 140), closed}, 2),
            "GPU 1, NVIDIA H200, cannot be opened");
}

}  // namespace
}  // namespace fathom::cuda
