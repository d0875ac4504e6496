#include "weights/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace fathom::weights {
namespace {

using tensor::Bf16;
using tensor::DType;
using tensor::F16;
using tensor::F8E4M3;

// Branch-free forms of the scalar conversions: each case is computed and the right one selected by a mask,
// which is what lets the loops below become vector code. (With ?: the compiler moves the float subtraction
// into a branch, and the loop stays scalar.)
inline uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

inline float decode(float v) { return v; }

inline float decode(Bf16 v) { return std::bit_cast<float>(uint32_t{v.bits} << 16); }

inline float decode(F16 v) {
  const uint32_t magnitude = v.bits & 0x7fffu, sign = (v.bits & 0x8000u) << 16;
  const uint32_t rebased = (magnitude << 13) + (112u << 23);
  // A subnormal has no implicit one: give it one and subtract it again.
  const float subnormal =
      std::bit_cast<float>(rebased + (1u << 23)) - std::bit_cast<float>(113u << 23);
  // Infinity and NaN have the highest exponent of both formats.
  const uint32_t normal = rebased + select(magnitude >= 0x7c00u, 112u << 23, 0);
  const uint32_t bits = select(magnitude < 0x400u, std::bit_cast<uint32_t>(subnormal), normal);
  return std::bit_cast<float>(bits | sign);
}

inline void encode(float v, float& out) { out = v; }

inline void encode(float v, Bf16& out) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  out.bits = static_cast<uint16_t>(select(is_nan, (bits >> 16) | 0x40u, rounded));
}

// Saturates.
inline void encode(float v, F8E4M3& out) {
  const auto bits = std::bit_cast<uint32_t>(v);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const bool is_nan = magnitude > 0x7f800000u, is_subnormal = magnitude < (121u << 23);
  // A float this large has steps of 2^-9, those of the subnormals.
  const uint32_t steps = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) & 0xfu;
  const uint32_t normal = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
  const uint32_t finite = select(is_subnormal, steps, std::min(normal, 0x7eu));
  out.bits = static_cast<uint8_t>(select(is_nan, 0x7fu, finite) | (bits >> 24 & 0x80u));
}

template <class From, class To>
void convert_array(const void* src, void* dst, int64_t count) {
  const auto* __restrict in = static_cast<const From*>(src);
  auto* __restrict out = static_cast<To*>(dst);
  for (int64_t i = 0; i < count; ++i) encode(decode(in[i]), out[i]);
}

// A table of all 256 values beats arithmetic here: one load per element and nothing to select.
std::array<float, 256> make_f8_values() {
  std::array<float, 256> values{};
  for (size_t bits = 0; bits < values.size(); ++bits) {
    values[bits] = tensor::to_float(F8E4M3{static_cast<uint8_t>(bits)});
  }
  return values;
}

template <class To>
void dequantize_array(const F8E4M3* __restrict src, const float* scales, To* __restrict dst,
                      int64_t count) {
  static const std::array<float, 256> f8_values = make_f8_values();
  const float* __restrict table = f8_values.data();
  float values[kScaleBlock];
  for (int64_t begin = 0; begin < count; begin += kScaleBlock) {
    const int64_t size = std::min(kScaleBlock, count - begin);
    const float scale = scales[begin / kScaleBlock];
    for (int64_t i = 0; i < size; ++i) values[i] = table[src[begin + i].bits];
    for (int64_t i = 0; i < size; ++i) encode(values[i] * scale, dst[begin + i]);
  }
}

template <class To>
void dequantize_integers(const int8_t* __restrict src, float scale, To* __restrict dst,
                         int64_t count) {
  for (int64_t i = 0; i < count; ++i) encode(static_cast<float>(src[i]) * scale, dst[i]);
}

template <class To>
void dequantize_array(const int8_t* src, const float* scales, To* dst, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kScaleBlock)
    dequantize_integers(src + begin, scales[begin / kScaleBlock], dst + begin,
                        std::min(kScaleBlock, count - begin));
}

template <class To>
void dequantize_pairs(const PackedRow& row, To* __restrict dst) {
  for (int64_t i = 0; i < row.count; i += 2) {
    // Both lie in one block of 128.
    const float scale = row.scales[(row.first + i) / kScaleBlock];
    const tensor::I4x2 pair = row.packed[i / 2];
    encode(static_cast<float>(pair.even()) * scale, dst[i]);
    encode(static_cast<float>(pair.odd()) * scale, dst[i + 1]);
  }
}

template <class Q>
void dequantize_to(const Q* src, const float* scales, void* dst, DType to, int64_t count) {
  if (to == DType::kF32) {
    return dequantize_array(src, scales, static_cast<float*>(dst), count);
  }
  FATHOM_CHECK(to == DType::kBf16, "dequantised to " << tensor::dtype_name(to));
  dequantize_array(src, scales, static_cast<Bf16*>(dst), count);
}

float block_scale(float amax, BlockScale kind) {
  const float scale = std::max(amax, 1e-10f) / 448.0f;
  if (kind == BlockScale::kAny || !std::isfinite(scale)) return scale;
  int exponent = 0;
  const float fraction = std::frexp(scale, &exponent);  // in [0.5, 1)
  return std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

template <class To>
void convert_to(const void* src, DType from, void* dst, int64_t count) {
  if (from == DType::kF32) return convert_array<float, To>(src, dst, count);
  if (from == DType::kBf16) return convert_array<Bf16, To>(src, dst, count);
  convert_array<F16, To>(src, dst, count);
}

}  // namespace

bool can_convert(DType from, DType to) {
  const bool readable = from == DType::kF32 || from == DType::kBf16 || from == DType::kF16;
  return readable && (to == DType::kF32 || to == DType::kBf16);
}

bool same_bytes(DType from, DType to) {
  return from == to || (from == DType::kI8 && to == DType::kI4x2);
}

void convert(const void* src, DType from, void* dst, DType to, int64_t count) {
  if (same_bytes(from, to)) {
    std::memcpy(dst, src, static_cast<size_t>(count * tensor::dtype_bytes(to)));
    return;
  }
  FATHOM_CHECK(can_convert(from, to), tensor::dtype_name(from) << " to " << tensor::dtype_name(to)
                                                               << " is not a conversion");
  if (to == DType::kF32) return convert_to<float>(src, from, dst, count);
  convert_to<Bf16>(src, from, dst, count);
}

void dequantize(const F8E4M3* src, const float* scales, void* dst, DType to, int64_t count) {
  dequantize_to(src, scales, dst, to, count);
}

void dequantize(const int8_t* src, const float* scales, void* dst, DType to, int64_t count) {
  dequantize_to(src, scales, dst, to, count);
}

void dequantize_channel(const int8_t* src, float scale, void* dst, DType to, int64_t count) {
  if (to == DType::kF32) {
    return dequantize_integers(src, scale, static_cast<float*>(dst), count);
  }
  FATHOM_CHECK(to == DType::kBf16, "dequantised to " << tensor::dtype_name(to));
  dequantize_integers(src, scale, static_cast<Bf16*>(dst), count);
}

void dequantize(const PackedRow& row, void* dst, DType to) {
  if (to == DType::kF32) return dequantize_pairs(row, static_cast<float*>(dst));
  FATHOM_CHECK(to == DType::kBf16, "dequantised to " << tensor::dtype_name(to));
  dequantize_pairs(row, static_cast<Bf16*>(dst));
}

void quantize_blocks(const float* src, int64_t rows, int64_t columns, BlockScale kind,
                     const QuantizedBlocks& to) {
  float* scale = to.scale;
  for (int64_t row = 0; row < rows; row += kScaleBlock) {
    const int64_t end = std::min(row + kScaleBlock, rows);
    for (int64_t column = 0; column < columns; column += kScaleBlock) {
      const int64_t width = std::min(kScaleBlock, columns - column);
      float amax = 0;
      for (int64_t r = row; r < end; ++r) {
        const float* const from = src + r * columns + column;
        for (int64_t i = 0; i < width; ++i) amax = std::max(amax, std::fabs(from[i]));
      }
      const float divisor = *scale++ = block_scale(amax, kind);
      for (int64_t r = row; r < end; ++r) {
        const float* __restrict from = src + r * columns + column;
        F8E4M3* __restrict q = to.q + r * columns + column;
        for (int64_t i = 0; i < width; ++i) encode(from[i] / divisor, q[i]);
      }
    }
  }
}

}  // namespace fathom::weights
