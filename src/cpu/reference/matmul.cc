#include "cpu/reference/matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/reference/vector_math.h"
#include "tensor/scale_block.h"

namespace fathom::cpu::reference {
namespace {

using tensor::DType, tensor::F8E4M3, tensor::kScaleBlock;

constexpr float kMaxF8 = 448.0f, kMaxI8 = 127.0f, kMinAmax = 1e-10f;

float block_scaled_dot(const float* x, const float* x_scale, const float* w, const float* w_scale,
                       int64_t in) {
  float total = 0.0f;
  for (int64_t begin = 0, block = 0; begin < in; begin += kScaleBlock, ++block) {
    const float products = dot(x + begin, w + begin, std::min(kScaleBlock, in - begin));
    total += products * (x_scale[block] * w_scale[block]);
  }
  return total;
}

float int_dot(const float* x, const int8_t* w, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<int32_t>(x[i]) * w[i];
  return static_cast<float>(sum);
}

// Row `row` of x and row `o` of an i8 weight.
float i8_dot(const MatmulArgs& args, int64_t row, int64_t o) {
  const int64_t in_blocks = tensor::num_scale_blocks(args.in);
  const float *x = args.x + row * args.x_stride, *x_scale = args.x_scale + row * in_blocks;
  const int8_t* w = static_cast<const int8_t*>(args.weight) + o * args.in;
  if (args.form == ops::ScaleForm::kChannels)
    return int_dot(x, w, args.in) * (x_scale[0] * static_cast<const float*>(args.scale)[o]);
  const float* w_scale = static_cast<const float*>(args.scale) + o / kScaleBlock * in_blocks;
  float total = 0.0f;
  for (int64_t begin = 0, block = 0; begin < args.in; begin += kScaleBlock, ++block) {
    const float products = int_dot(x + begin, w + begin, std::min(kScaleBlock, args.in - begin));
    total += products * (x_scale[block] * w_scale[block]);
  }
  return total;
}

// Scales of row `o` of an f8 or i4x2 weight.
const float* scales_of(const MatmulArgs& args, int64_t o) {
  const int64_t row = args.form == ops::ScaleForm::kGroups ? o : o / kScaleBlock;
  return static_cast<const float*>(args.scale) + row * tensor::num_scale_blocks(args.in);
}

// Row `o` of u4x2 weights, whose integers `w` holds, as the values that they stand for.
void apply_zero_points(const MatmulArgs& args, int64_t o, float* w) {
  const int64_t groups = args.in / args.zero_channels;
  const auto* scales = static_cast<const tensor::F16*>(args.scale) + o * 2 * groups;
  const tensor::F16* zeros = scales + groups;
  for (int64_t k = 0; k < args.in; ++k) {
    const int64_t group = k / args.zero_channels;
    w[k] = (w[k] - tensor::to_float(zeros[group])) * tensor::to_float(scales[group]);
  }
}

float value_of(const MatmulArgs& args, const float* w, int64_t row, int64_t o) {
  if (args.dtype == DType::kI8) return i8_dot(args, row, o);
  const float* x = args.x + row * args.x_stride;
  if (!ops::quantises_rows(args.form)) return dot(x, w, args.in);
  const float* x_scale = args.x_scale + row * tensor::num_scale_blocks(args.in);
  return block_scaled_dot(x, x_scale, w, scales_of(args, o), args.in);
}

template <class Store>
void quantize_blocks(const float* x, int64_t dim, float* scale, Store store) {
  for (int64_t begin = 0, block = 0; begin < dim; begin += kScaleBlock, ++block) {
    const int64_t end = std::min(begin + kScaleBlock, dim);
    float amax = kMinAmax;
    for (int64_t i = begin; i < end; ++i) amax = std::max(amax, std::fabs(x[i]));
    scale[block] = amax / kMaxF8;
    for (int64_t i = begin; i < end; ++i) {
      store(i, tensor::from_float<F8E4M3>(x[i] / scale[block]));
    }
  }
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const int64_t stored_in = tensor::holds_pairs(args.dtype) ? args.in / 2 : args.in;
  for (int64_t o = 0; o < args.out; ++o) {
    const float* w = nullptr;
    if (args.dtype != DType::kI8)
      w = as_floats(element(args.weight, args.dtype, o * stored_in), args.dtype, args.in,
                    args.weight_row);
    if (args.form == ops::ScaleForm::kZeroPoints) apply_zero_points(args, o, args.weight_row);
    for (int64_t row = 0; row < args.rows; ++row) {
      const float value = value_of(args, w, row, o);
      float& y = args.y[row * args.y_stride + o];
      y = args.accumulate ? y + value : value;
    }
  }
}

void quantize_row(const float* x, int64_t dim, F8E4M3* q, float* scale) {
  quantize_blocks(x, dim, scale, [q](int64_t i, F8E4M3 value) { q[i] = value; });
}

void quantize_row_to_floats(const float* x, int64_t dim, float* q, float* scale) {
  quantize_blocks(x, dim, scale, [q](int64_t i, F8E4M3 value) { q[i] = tensor::to_float(value); });
}

void quantize_i8_row_to_floats(const float* x, int64_t dim, int64_t channels, float* q,
                               float* scale) {
  for (int64_t begin = 0; begin < dim; begin += channels, ++scale) {
    const int64_t end = std::min(begin + channels, dim);
    float amax = kMinAmax;
    bool finite = true;
    for (int64_t i = begin; i < end; ++i) {
      finite = finite && std::isfinite(x[i]);
      amax = std::max(amax, std::fabs(x[i]));
    }
    *scale = finite ? amax / kMaxI8 : std::numeric_limits<float>::quiet_NaN();
    for (int64_t i = begin; i < end; ++i) q[i] = finite ? std::nearbyint(x[i] / *scale) : 0.0f;
  }
}

void quantize_row_for(const ops::Weight& weight, const float* x, int64_t dim, float* q,
                      float* scale) {
  if (weight.data.dtype() != DType::kI8) return quantize_row_to_floats(x, dim, q, scale);
  quantize_i8_row_to_floats(x, dim, ops::row_scale_channels(ops::scale_form(weight), dim), q,
                            scale);
}

void quantised_floats(const ops::Weight& weight, const ops::Activation& x, int64_t row, float* q,
                      float* scale) {
  const int64_t dim = x.dim(1);
  if (!x.is_quantised()) return quantize_row_for(weight, x.values.row<float>(row), dim, q, scale);
  as_floats(x.values.row<F8E4M3>(row), DType::kF8E4M3, dim, q);
  std::copy_n(x.scale.row<float>(row), tensor::num_scale_blocks(dim), scale);
}

}  // namespace fathom::cpu::reference
