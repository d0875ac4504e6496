#include "cpu/reference/matmul.h"

#include <algorithm>
#include <cmath>

#include "cpu/reference/vector_math.h"
#include "tensor/scale_block.h"

namespace fathom::cpu::reference {
namespace {

using tensor::DType, tensor::F8E4M3, tensor::kScaleBlock;

constexpr float kMaxF8 = 448.0f, kMinAmax = 1e-10f;

float block_scaled_dot(const float* x, const float* x_scale, const float* w, const float* w_scale,
                       int64_t in) {
  float total = 0.0f;
  for (int64_t begin = 0, block = 0; begin < in; begin += kScaleBlock, ++block) {
    const float products = dot(x + begin, w + begin, std::min(kScaleBlock, in - begin));
    total += products * (x_scale[block] * w_scale[block]);
  }
  return total;
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
  const int64_t in_blocks = tensor::num_scale_blocks(args.in);
  for (int64_t o = 0; o < args.out; ++o) {
    const float* w = as_floats(element(args.weight, args.dtype, o * args.in), args.dtype, args.in,
                               args.weight_row);
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* x = args.x + row * args.x_stride;
      const float value = args.dtype == DType::kF8E4M3
                              ? block_scaled_dot(x, args.x_scale + row * in_blocks, w,
                                                 args.scale + o / kScaleBlock * in_blocks, args.in)
                              : dot(x, w, args.in);
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

void quantised_floats(const ops::Activation& x, int64_t row, float* q, float* scale) {
  const int64_t dim = x.dim(1);
  if (!x.is_quantised()) return quantize_row_to_floats(x.values.row<float>(row), dim, q, scale);
  as_floats(x.values.row<F8E4M3>(row), DType::kF8E4M3, dim, q);
  std::copy_n(x.scale.row<float>(row), tensor::num_scale_blocks(dim), scale);
}

}  // namespace fathom::cpu::reference
