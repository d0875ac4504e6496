#pragma once
// The block of FP8 quantisation: channels of an activation, rows and columns of a weight, that share one scale.
//
//   scale = arena.allocate(DType::kF32, {num_scale_blocks(rows), num_scale_blocks(columns)});

#include <cstdint>

namespace fathom::tensor {

inline constexpr int64_t kScaleBlock = 128;

// The last block may be partial.
constexpr int64_t num_scale_blocks(int64_t channels) {
  return (channels + kScaleBlock - 1) / kScaleBlock;
}

}  // namespace fathom::tensor
