#pragma once
// KvFormat: how one token's row of MLA's latent cache lies in memory, and KvCache: the rows of one layer as
// bytes with their format. Blocks can be copied as bytes whatever the format.
//
//   const KvFormat format = KvFormat::of(DType::kF8E4M3, /*latent_dim=*/512, /*rope_dim=*/64);
//   format.row_bytes;                                                        // 656
//
// A row holds the latent values, their scales if it has any, then the rope values:
//
//   cache     latent             scales                      rope     bytes of a row of 512 + 64 values
//   f32       f32[latent_dim]    none                        f32      2304
//   bf16      bf16[latent_dim]   none                        bf16     1152
//   f8_e4m3   e4m3[latent_dim]   f32[ceil(latent_dim/128)]   bf16     512 + 16 + 128 = 656
//
// f8_e4m3: each part and the row itself end on a multiple of 16 bytes; the bytes in between are 0. The row is
// not padded further: with 656 = 41 * 16 bytes the same 16 bytes of eight rows that follow each other fall
// into eight different bank groups of shared memory, which 640, 672 or 768 do not give, so a block is copied
// there as it lies (one copy of 64 * 656 bytes) and read without conflicts. A scale is a power of two, so
// that multiplying by it is exact in bf16 too; it is a float, so that four of them are one load.
//   scale = the smallest power of two, at least 2^-126, with amax / scale <= 448 (amax of 128 channels, the
//           last group may be smaller); 1 where all values are 0.  q = e4m3(x / scale), to nearest even.
//   NaN does not count for amax and stays NaN in q. An infinity makes the scale infinite: finite values of
//   its group and itself read as NaN. So a failed row stays visible.
// The rope part is rotated by position and shared by all heads; e4m3 would cost it the most.
//
// Plain data.

#include <cstddef>
#include <cstdint>

#include "tensor/scale_block.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct KvFormat {
  tensor::DType latent = tensor::DType::kF32, rope = tensor::DType::kF32;
  int64_t latent_dim = 0, rope_dim = 0;
  int64_t num_scales = 0;                     // f32 each, behind the latent values
  int64_t scale_offset = 0, rope_offset = 0;  // bytes from the beginning of a row
  int64_t row_bytes = 0;

  // cache: f32, bf16 or f8_e4m3 (checked).
  static KvFormat of(tensor::DType cache, int64_t latent_dim, int64_t rope_dim);
  static bool is_known(tensor::DType cache);

  // Values of a row.
  int64_t dim() const { return latent_dim + rope_dim; }
  bool operator==(const KvFormat&) const = default;
};

// The scale of a group of channels of this largest magnitude (NaN excepted).
float kv_scale(float amax);

struct KvCache {
  tensor::Tensor rows;  // u8[blocks, block_tokens, row_bytes]
  KvFormat format;

  int64_t num_blocks() const { return rows.dim(0); }
  int64_t block_tokens() const { return rows.dim(1); }
  // Flat row: block_id * block_tokens + offset. REQUIRES: contiguous.
  std::byte* row(int64_t row) const {
    return static_cast<std::byte*>(rows.data()) + row * format.row_bytes;
  }
};

}  // namespace fathom::ops
