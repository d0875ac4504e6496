#pragma once
// How a warpgroup of batch_product.cuh reads pairs of 4 bits with zero points: 64 rows of half a line, 32 channels, as
// the first operand of two matrix instructions, in registers.
//
//   const PairLines lines(part, in, first_row);
//   PairScales scales = lines.scales(line);                  // of the lines `line` and `line + 2`
//   PairLines::expand(weights, scales, /*after=*/0, half, a);      // of the first: a[step] is 16 channels
//
// A row's 32 bytes are eight words of eight channels. Lane (g, t) has rows g and g + 8 of its warp's 16: of each step's
// two words it takes byte t, channels 2t and 2t + 1. The four lanes of a row read the same words.
//
// Internal to batch_product.cuh.

#include <cstdint>

#include "cuda/gemm/zero_point.cuh"
#include "cuda/linear/batch_params.h"
#include "cuda/ptx/shared.cuh"

namespace fathom::cuda {

// Channels of half a line by 16, and from a line to the second next one of a warpgroup.
inline constexpr int kPairSteps = 2, kLinesOfScales = 4;

// Scales and zero points, f16 beside f16, of rows g and g + 8: lane t of four has 32 channels of two lines, the first
// one's halves and the second one's.
// They are kept as they come: to put two together would wait for them.
struct PairScales {
  uint16_t scale[2], zero[2];
};

class PairLines {
 public:
  __device__ __forceinline__ PairLines(const ProductPart& part, int in, int first_row)
      : last_(in - 32),
        shift_(part.group_channels == 32   ? 5
               : part.group_channels == 64 ? 6
                                           : 7),
        groups_(in >> shift_) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4,
              g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = min(first_row + warp * 16 + g + i * 8, part.rows - 1);
      rows_[i] = part.zero_points + int64_t{row} * 2 * groups_;
    }
  }

  // Behind the last channel those of the last ones, which nothing is multiplied with.
  __device__ __forceinline__ PairScales scales(int line) const {
    const int t = static_cast<int>(threadIdx.x) % 4;
    const int group = min((line + t / 2 * 2) * 64 + t % 2 * 32, last_) >> shift_;
    PairScales values;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      values.scale[i] = __ldg(rows_[i] + group);
      values.zero[i] = __ldg(rows_[i] + groups_ + group);
    }
    return values;
  }

  // after: 0 or 2, the line's distance from the scales' first one. half: of the line.
  static __device__ __forceinline__ void expand(uint32_t weights, const PairScales& scales,
                                                int after, int half, uint32_t (&a)[kPairSteps][4]) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t mine = scales.scale[i] | static_cast<uint32_t>(scales.zero[i]) << 16;
      const ZeroPoint point(__shfl_sync(0xffffffffu, mine, lane / 4 * 4 + after + half));
      const uint4 words = load_shared_16(
          weights + static_cast<uint32_t>((first + i * 8) * kPairLineBytes + half * 16));
      a[0][i] = two_of(words.x, lane % 4, point);
      a[0][i + 2] = two_of(words.y, lane % 4, point);
      a[1][i] = two_of(words.z, lane % 4, point);
      a[1][i + 2] = two_of(words.w, lane % 4, point);
    }
  }

 private:
  // Channels 2t and 2t + 1 of a word of eight.
  static __device__ __forceinline__ uint32_t two_of(uint32_t word, int t, const ZeroPoint& point) {
    const uint32_t byte = word >> (8 * t);
    return point.scaled((byte & 0xfu) | (byte << 12 & 0xf0000u) | kBf16Of128);
  }

  int last_, shift_, groups_;
  const uint16_t* rows_[2];
};

}  // namespace fathom::cuda
