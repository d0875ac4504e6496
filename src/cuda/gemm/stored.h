#pragma once
// How a weight lies in memory, as the products tell it apart: a value for the host, a type for templates, and what
// follows from it.
//
//   const Stored stored = stored_as(weight);                     // run_product(stored, params, stream);
//   with_stored(stored, [&](auto w) { launch<decltype(w)>(params, stream); });
//
// A line is 128 bytes of a row. Pure functions.

#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "ops/linear.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

// Integers of 8 bits by where their scales lie: one to 128x128 of them, one to an output.
struct I8Blocks {
  int8_t value;
};
struct I8Channels {
  int8_t value;
};

// kU4, with zero points, has kernels of its own for few rows (linear/zero_points.h).
enum class Stored : uint8_t { kF32, kBf16, kF8, kI4, kU4, kI8Blocks, kI8Channels };

inline Stored stored_as(const ops::Weight& weight) {
  switch (weight.data.dtype()) {
    case tensor::DType::kF32:
      return Stored::kF32;
    case tensor::DType::kF8E4M3:
      return Stored::kF8;
    case tensor::DType::kI4x2:
      return Stored::kI4;
    case tensor::DType::kU4x2:
      return Stored::kU4;
    case tensor::DType::kI8:
      return ops::scale_form(weight) == ops::ScaleForm::kChannels ? Stored::kI8Channels
                                                                  : Stored::kI8Blocks;
    default:
      return Stored::kBf16;
  }
}
constexpr tensor::DType dtype_of(Stored stored) {
  return stored == Stored::kF32    ? tensor::DType::kF32
         : stored == Stored::kBf16 ? tensor::DType::kBf16
         : stored == Stored::kF8   ? tensor::DType::kF8E4M3
         : stored == Stored::kI4   ? tensor::DType::kI4x2
         : stored == Stored::kU4   ? tensor::DType::kU4x2
                                   : tensor::DType::kI8;
}
constexpr bool holds_pairs(Stored stored) { return tensor::holds_pairs(dtype_of(stored)); }
// Rows of activations are quantised for it: to e4m3, or to integers of 8 bits.
constexpr bool takes_e4m3(Stored stored) { return stored == Stored::kF8 || stored == Stored::kI4; }
constexpr bool takes_i8(Stored stored) {
  return stored == Stored::kI8Blocks || stored == Stored::kI8Channels;
}
// The type of rows of activations as they are multiplied.
constexpr tensor::DType row_dtype_of(Stored stored) {
  return takes_e4m3(stored) ? tensor::DType::kF8E4M3
         : takes_i8(stored) ? tensor::DType::kI8
                            : tensor::DType::kBf16;
}
constexpr bool takes_quantised(Stored stored) { return takes_e4m3(stored) || takes_i8(stored); }
// Scales of a row of activations.
constexpr int64_t num_row_scales(Stored stored, int64_t in) {
  return stored == Stored::kI8Channels ? 1 : tensor::num_scale_blocks(in);
}
constexpr int64_t stored_row_bytes(Stored stored, int64_t in) {
  return stored == Stored::kF32    ? in * 4
         : stored == Stored::kBf16 ? in * 2
         : holds_pairs(stored)     ? in / 2
                                   : in;
}

template <class W>
inline constexpr bool kIsF8 = std::is_same_v<W, tensor::F8E4M3>;
template <class W>
inline constexpr bool kIsI4 = std::is_same_v<W, tensor::I4x2>;
template <class W>
inline constexpr bool kIsU4 = std::is_same_v<W, tensor::U4x2>;
template <class W>
inline constexpr bool kIsI8Blocks = std::is_same_v<W, I8Blocks>;
// One scale for all of a row of the weight and one for a row of activations: integers are summed to the end.
template <class W>
inline constexpr bool kIsI8Channels = std::is_same_v<W, I8Channels>;

// Each 128 channels have scales of their own, of rows of activations and of the weight's blocks or, kRowScales, rows.
template <class W>
inline constexpr bool kLineScales = kIsF8<W> || kIsI4<W> || kIsI8Blocks<W>;
template <class W>
inline constexpr bool kRowScales = kIsI4<W>;
template <class W>
inline constexpr bool kQuantisedRows = kLineScales<W> || kIsI8Channels<W>;

// What the rows of activations are stored as; e4m3 and integers move alike.
template <class W>
using RowOf = std::conditional_t<kQuantisedRows<W>, tensor::F8E4M3, tensor::Bf16>;
template <class W>
using SumOf = std::conditional_t<kIsI8Channels<W>, int, float>;
// The operands of the matrix instructions of a warpgroup and their sums: pairs of 4 bits become e4m3 first.
template <class W>
using OperandOf = std::conditional_t<kIsI8Blocks<W> || kIsI8Channels<W>, int8_t, RowOf<W>>;
template <class W>
using OperandSumOf = std::conditional_t<std::is_same_v<OperandOf<W>, int8_t>, int, float>;

inline constexpr int kLineBytes = 128;
template <class W>
inline constexpr int kLineWidth = kLineBytes*(kIsI4<W> ? 2 : 1) /
                                  static_cast<int>(sizeof(W));  // channels
// Blocks of 128 channels that have scales, of a line: pairs of 4 bits have two.
template <class W>
inline constexpr int kLineBlocks = kIsI4<W> ? 2 : 1;
template <class W>
constexpr int64_t weight_row_bytes(int64_t in) {
  return kIsI4<W> ? in / 2 : in * static_cast<int64_t>(sizeof(W));
}

// Calls f with a value of the type; f32 has kernels of its own. REQUIRES: not kU4.
template <class F>
void with_stored(Stored stored, const F& f) {
  switch (stored) {
    case Stored::kF32:
      return f(float{});
    case Stored::kBf16:
      return f(tensor::Bf16{});
    case Stored::kF8:
      return f(tensor::F8E4M3{});
    case Stored::kI4:
      return f(tensor::I4x2{});
    case Stored::kI8Blocks:
      return f(I8Blocks{});
    case Stored::kI8Channels:
      return f(I8Channels{});
    case Stored::kU4:
      FATHOM_CHECK(false, "these kernels take no zero points");
  }
}

}  // namespace fathom::cuda
