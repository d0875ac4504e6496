#pragma once
// The operators of ops/*.h once more, in float64 and written for nothing but being right. Only rules that
// fix a rounding (FP8 values and scales, table angles) are rounded here too.
//
//   HostTensor expected = ref::linear(x, {.data = w});
//
// Pure functions.

#include <cstdint>
#include <functional>
#include <limits>

#include "ops/moe.h"
#include "tests/ref/host_tensor.h"

namespace fathom::ref {

// A weight as stored: values, and with f8 and i8 scales, of 128x128 blocks or (i8, [..., out, 1]) of channels. i4x2
// holds values too, not pairs, and scales [..., out, ceil(in / 128)]. u4x2 holds values and, [..., out, 2 * in / g],
// the scales of g values each and after them the zero points.
struct HostWeight {
  HostTensor data, scale;
};

// Values in a dtype; f8 weights get scales that make 448 the largest value of a block. `shape` is
// [..., out, in].
HostWeight random_weight(Random& random, tensor::DType dtype, std::vector<int64_t> shape);
// The same of i8 weights, with all values from -128 to 127.
HostWeight random_i8_weight(Random& random, ops::ScaleForm form, std::vector<int64_t> shape);

// The same of i4x2 weights, with all values from -8 to 7. in is even.
HostWeight random_i4_weight(Random& random, std::vector<int64_t> shape);

// The same of u4x2 weights, with all values and zero points from 0 to 15. channels: of a zero point.
HostWeight random_u4_weight(Random& random, int64_t channels, std::vector<int64_t> shape);

struct Quantized {
  HostTensor q, scale;
};
Quantized quantize_fp8(const HostTensor& x);
// Rows as i8 weights read them, so many channels to a scale.
Quantized quantize_i8(const HostTensor& x, int64_t channels);
// A stack of matrices [..., out, in] in FP8, a scale per block of 128x128: amax / 448.
HostWeight quantize_weight(const HostTensor& weight);
// The values that a weight stands for, q * scale with f8 and i8.
HostTensor dequantize(const HostWeight& weight);

HostTensor linear(const HostTensor& x, const HostWeight& weight);
// A matrix per head; x [tokens, heads, in].
HostTensor head_linear(const HostTensor& x, const HostWeight& weight);
HostTensor head_linear(const HostTensor& x, const HostTensor& weight);  // not f8
HostTensor rms_norm(const HostTensor& x, const HostTensor& weight, double eps);
HostTensor silu_mul(const HostTensor& gate_up);
// table[t, :] of ops/rope.h.
HostTensor rope_table(const HostTensor& positions, const HostTensor& inv_freq, double magnitude);
// x [tokens, heads, dim]
HostTensor rope(const HostTensor& x, const HostTensor& table);
// kv_append's rows before they are stored.
HostTensor kv_rows(const HostTensor& kv_a, const HostTensor& weight, double eps,
                   const HostTensor& table);

// Softmax attention: q [queries, heads, dk], keys [rows, key_heads, dk], values [rows, key_heads, dv], where
// key_heads is heads or 1 (shared).
using Sees = std::function<bool(int64_t query, int64_t row)>;
HostTensor attention(const HostTensor& q, const HostTensor& keys, const HostTensor& values,
                     double scale, const Sees& sees);

struct GateChoice {
  HostTensor ids, weights;
  // Of all pairs of which one came first, the smallest difference, as a part of the larger value.
  double margin = std::numeric_limits<double>::infinity();
};
// Whoever sums in float32 comes to the same order where the margin is above this.
inline constexpr double kClearMargin = 1e-6;
GateChoice moe_gate(const HostTensor& x, const HostTensor& weight, const HostTensor& bias,
                    const ops::MoeGateArgs& rules, int64_t num_experts_per_tok);
HostTensor moe_experts(const HostTensor& x, const HostTensor& ids, const HostTensor& weights,
                       const HostWeight& gate_up, const HostWeight& down);

}  // namespace fathom::ref
