// The layout of cache rows and the rule of their scales.

#include "ops/kv_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fathom::ops {
namespace {

using tensor::DType;

TEST(KvFormat, rows_of_deepseek_take_the_bytes_that_the_header_names) {
  EXPECT_EQ(KvFormat::of(DType::kF32, 512, 64).row_bytes, 2304);
  EXPECT_EQ(KvFormat::of(DType::kBf16, 512, 64).row_bytes, 1152);
  const KvFormat f8 = KvFormat::of(DType::kF8E4M3, 512, 64);
  EXPECT_EQ(f8.row_bytes, 656);
  EXPECT_EQ(f8.num_scales, 4);
  EXPECT_EQ(f8.scale_offset, 512);
  EXPECT_EQ(f8.rope_offset, 528);
  EXPECT_EQ(f8.rope, DType::kBf16);
}

TEST(KvFormat, parts_of_f8_rows_are_aligned_and_do_not_overlap_for_any_size) {
  for (int64_t latent = 1; latent <= 520; latent += 3)
    for (const int64_t rope : {2, 6, 64, 66}) {
      const KvFormat f = KvFormat::of(DType::kF8E4M3, latent, rope);
      EXPECT_GE(f.scale_offset, latent);
      EXPECT_GE(f.rope_offset, f.scale_offset + 4 * f.num_scales);
      EXPECT_GE(f.row_bytes, f.rope_offset + 2 * rope);
      EXPECT_GE(f.num_scales * tensor::kScaleBlock, latent);
      for (const int64_t offset : {f.scale_offset, f.rope_offset, f.row_bytes})
        EXPECT_EQ(offset % 16, 0) << latent << " + " << rope;
    }
}

TEST(KvFormat, the_scale_is_the_smallest_power_of_two_that_brings_amax_to_448) {
  EXPECT_EQ(kv_scale(0.0f), 1.0f);
  EXPECT_EQ(kv_scale(448.0f), 1.0f);
  EXPECT_EQ(kv_scale(std::nextafter(448.0f, 500.0f)), 2.0f);
  EXPECT_EQ(kv_scale(1.75f), 0x1p-8f);
  EXPECT_EQ(kv_scale(1.0f), 0x1p-8f);
  EXPECT_EQ(kv_scale(0.876f), 0x1p-8f);
  EXPECT_EQ(kv_scale(0.875f), 0x1p-9f);
  EXPECT_EQ(kv_scale(std::numeric_limits<float>::max()), 0x1p120f);
  EXPECT_EQ(kv_scale(std::numeric_limits<float>::denorm_min()), 0x1p-126f);
  EXPECT_EQ(kv_scale(std::numeric_limits<float>::infinity()),
            std::numeric_limits<float>::infinity());
}

TEST(KvFormatDeathTest, another_type_is_refused) {
  EXPECT_DEATH(KvFormat::of(DType::kF16, 512, 64), "no cache rows of f16");
}

}  // namespace
}  // namespace fathom::ops
