#include <algorithm>
#include <cmath>

#include "tests/ref/oracle.h"

namespace fathom::ref {

using ops::ScaleForm;
using tensor::DType;

namespace {

constexpr int64_t kBlock = 128;

int64_t blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

ScaleForm form_of(const HostWeight& weight) {
  if (weight.scale.shape.empty()) return ScaleForm::kNone;
  if (weight.data.dtype == DType::kI4x2) return ScaleForm::kGroups;
  if (weight.data.dtype == DType::kU4x2) return ScaleForm::kZeroPoints;
  const size_t rank = weight.data.shape.size();
  const bool of_channels = weight.data.dtype == DType::kI8 && weight.scale.shape[rank - 1] == 1 &&
                           weight.scale.shape[rank - 2] == weight.data.shape[rank - 2];
  return of_channels ? ScaleForm::kChannels : ScaleForm::kBlocks;
}

// (q - zero point) * scale of a stack of matrices [stack, out, in].
HostTensor without_zero_points(const HostTensor& data, const HostTensor& scales) {
  HostTensor w = data;
  const int64_t in = data.dim(2), groups = scales.dim(2) / 2;
  for (int64_t i = 0; i < w.dim(0); ++i)
    for (int64_t o = 0; o < w.dim(1); ++o)
      for (int64_t k = 0; k < in; ++k) {
        const int64_t group = k / (in / groups);
        w.at(i, o, k) =
            (data.at(i, o, k) - scales.at(i, o, groups + group)) * scales.at(i, o, group);
      }
  return w;
}

// The matrices of a stack [..., out, in], dequantised to their mathematical values.
std::vector<HostTensor> dequantized(const HostWeight& weight) {
  const size_t rank = weight.data.shape.size();
  const int64_t out = weight.data.shape[rank - 2], in = weight.data.shape[rank - 1];
  const int64_t stack = static_cast<int64_t>(weight.data.values.size()) / (out * in);
  const ScaleForm form = form_of(weight);
  const bool of_channels = form == ScaleForm::kChannels, of_groups = form == ScaleForm::kGroups;
  HostTensor data = weight.data.reshaped({stack, out, in});
  if (form == ScaleForm::kZeroPoints)
    data =
        without_zero_points(data, weight.scale.reshaped({stack, out, weight.scale.shape.back()}));
  HostTensor scales;
  if (form == ScaleForm::kBlocks) scales = weight.scale.reshaped({stack, blocks(out), blocks(in)});
  if (of_channels) scales = weight.scale.reshaped({stack, out, 1});
  if (of_groups) scales = weight.scale.reshaped({stack, out, blocks(in)});
  std::vector<HostTensor> matrices;
  for (int64_t i = 0; i < stack; ++i) {
    HostTensor w = data[i];
    for (int64_t o = 0; o < out && ops::quantises_rows(form); ++o) {
      for (int64_t k = 0; k < in; ++k)
        w.at(o, k) *=
            scales.at(i, of_channels || of_groups ? o : o / kBlock, of_channels ? 0 : k / kBlock);
    }
    matrices.push_back(std::move(w));
  }
  return matrices;
}

double dot(const double* a, const double* b, int64_t n) {
  double sums[4] = {};  // four, for speed alone
  int64_t k = 0;
  for (; k + 4 <= n; k += 4) {
    for (int64_t i = 0; i < 4; ++i) sums[i] += a[k + i] * b[k + i];
  }
  for (; k < n; ++k) sums[0] += a[k] * b[k];
  return sums[0] + sums[1] + sums[2] + sums[3];
}

HostTensor product(const HostTensor& x, const HostTensor& w) {
  HostTensor y(DType::kF32, {x.dim(0), w.dim(0)});
  const int64_t in = w.dim(1);
  for (int64_t t = 0; t < x.dim(0); ++t) {
    for (int64_t o = 0; o < w.dim(0); ++o) {
      y.at(t, o) = dot(x.values.data() + t * in, w.values.data() + o * in, in);
    }
  }
  return y;
}

// x as the product with a quantised weight sees it.
HostTensor requantized(const HostTensor& x, const HostWeight& weight) {
  const int64_t channels = form_of(weight) == ScaleForm::kChannels ? x.dim(1) : kBlock;
  Quantized quantized =
      weight.data.dtype == DType::kI8 ? quantize_i8(x, channels) : quantize_fp8(x);
  for (int64_t t = 0; t < x.dim(0); ++t) {
    for (int64_t k = 0; k < x.dim(1); ++k)
      quantized.q.at(t, k) *= quantized.scale.at(t, k / channels);
  }
  return quantized.q;
}

// x * w^T, with x quantised first as the stored weight asks for.
HostTensor product_as_stored(const HostTensor& x, const HostTensor& w, const HostWeight& stored) {
  return product(ops::quantises_rows(form_of(stored)) ? requantized(x, stored) : x, w);
}

double silu(double v) { return v / (1 + std::exp(-v)); }

}  // namespace

HostWeight random_weight(Random& random, DType dtype, std::vector<int64_t> shape) {
  const size_t rank = shape.size();
  const int64_t out = shape[rank - 2], in = shape[rank - 1];
  const double deviation = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(in, 1)));
  if (dtype != DType::kF8E4M3) return {.data = random.normal(dtype, shape, deviation), .scale = {}};
  std::vector<int64_t> scale_shape = shape;
  scale_shape[rank - 2] = blocks(out);
  scale_shape[rank - 1] = blocks(in);
  return {.data = random.normal(dtype, shape, 100.0),
          .scale = random.uniform(DType::kF32, scale_shape, 0.005 * deviation, 0.02 * deviation)};
}

HostWeight random_i8_weight(Random& random, ScaleForm form, std::vector<int64_t> shape) {
  const size_t rank = shape.size();
  const int64_t out = shape[rank - 2], in = shape[rank - 1];
  const double deviation = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(in, 1)));
  std::vector<int64_t> scale_shape = shape;
  const bool of_channels = form == ScaleForm::kChannels;
  scale_shape[rank - 2] = of_channels ? out : blocks(out);
  scale_shape[rank - 1] = of_channels ? 1 : blocks(in);
  return {.data = random.integers(DType::kI8, shape, -128, 128),
          .scale = random.uniform(DType::kF32, scale_shape, 0.005 * deviation, 0.02 * deviation)};
}

HostWeight random_i4_weight(Random& random, std::vector<int64_t> shape) {
  const int64_t in = shape.back();
  const double deviation = 1.0 / std::sqrt(static_cast<double>(in));
  std::vector<int64_t> scale_shape = shape;
  scale_shape.back() = blocks(in);
  return {.data = random.integers(DType::kI4x2, shape, -8, 8),
          .scale = random.uniform(DType::kF32, scale_shape, 0.1 * deviation, 0.4 * deviation)};
}

HostWeight random_u4_weight(Random& random, int64_t channels, std::vector<int64_t> shape) {
  const int64_t in = shape.back();
  const double deviation = 1.0 / std::sqrt(static_cast<double>(in));
  std::vector<int64_t> scale_shape = shape;
  scale_shape.back() = 2 * in / channels;
  HostWeight weight{
      .data = random.integers(DType::kU4x2, shape, 0, 16),
      .scale = random.uniform(DType::kF16, scale_shape, 0.1 * deviation, 0.4 * deviation)};
  const HostTensor zeros = random.integers(DType::kF16, scale_shape, 0, 16);
  const auto columns = static_cast<size_t>(scale_shape.back());
  for (size_t i = 0; i < zeros.values.size(); ++i)
    if (i % columns >= columns / 2) weight.scale.values[i] = zeros.values[i];
  return weight;
}

Quantized quantize_i8(const HostTensor& x, int64_t channels) {
  const int64_t tokens = x.dim(0), dim = x.dim(1);
  Quantized out{.q = HostTensor(DType::kI8, {tokens, dim}),
                .scale = HostTensor(DType::kF32, {tokens, (dim + channels - 1) / channels})};
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t k = 0; k < dim; ++k) {
      double& scale = out.scale.at(t, k / channels);
      scale = std::max(scale, std::fabs(round_to(DType::kF32, x.at(t, k))));
    }
    for (int64_t group = 0; group < out.scale.dim(1); ++group) {
      double& scale = out.scale.at(t, group);
      scale = round_to(DType::kF32, std::max(scale, static_cast<double>(1e-10f)) / 127.0);
    }
    for (int64_t k = 0; k < dim; ++k) {
      const double ratio = round_to(DType::kF32, x.at(t, k)) / out.scale.at(t, k / channels);
      out.q.at(t, k) = std::nearbyint(round_to(DType::kF32, ratio));
    }
  }
  return out;
}

Quantized quantize_fp8(const HostTensor& x) {
  const int64_t tokens = x.dim(0), dim = x.dim(1);
  Quantized out{.q = HostTensor(DType::kF8E4M3, {tokens, dim}),
                .scale = HostTensor(DType::kF32, {tokens, blocks(dim)})};
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t k = 0; k < dim; ++k) {
      double& scale = out.scale.at(t, k / kBlock);
      scale = std::max(scale, std::fabs(round_to(DType::kF32, x.at(t, k))));
    }
    for (int64_t block = 0; block < blocks(dim); ++block) {
      double& scale = out.scale.at(t, block);
      scale = round_to(DType::kF32, std::max(scale, static_cast<double>(1e-10f)) / 448.0);
    }
    for (int64_t k = 0; k < dim; ++k) {
      // One rounding to float32, as a float division has, then one to e4m3.
      const double ratio = round_to(DType::kF32, x.at(t, k)) / out.scale.at(t, k / kBlock);
      out.q.at(t, k) = round_to(DType::kF8E4M3, round_to(DType::kF32, ratio));
    }
  }
  return out;
}

HostWeight quantize_weight(const HostTensor& weight) {
  const size_t rank = weight.shape.size();
  const int64_t out = weight.shape[rank - 2], in = weight.shape[rank - 1];
  const int64_t stack = static_cast<int64_t>(weight.values.size()) / (out * in);
  const HostTensor from = weight.reshaped({stack, out, in});
  HostTensor q(DType::kF8E4M3, {stack, out, in});
  HostTensor scale(DType::kF32, {stack, blocks(out), blocks(in)});
  const auto scale_at = [&](int64_t i, int64_t o, int64_t k) -> double& {
    return scale.at(i, o / kBlock, k / kBlock);
  };
  for (int64_t i = 0; i < stack; ++i) {
    for (int64_t o = 0; o < out; ++o)
      for (int64_t k = 0; k < in; ++k)
        scale_at(i, o, k) = std::max(scale_at(i, o, k), std::fabs(from.at(i, o, k)));
    for (int64_t o = 0; o < blocks(out); ++o)
      for (int64_t k = 0; k < blocks(in); ++k)
        scale.at(i, o, k) = round_to(DType::kF32, scale.at(i, o, k) / 448.0);
    for (int64_t o = 0; o < out; ++o)
      for (int64_t k = 0; k < in; ++k)
        q.at(i, o, k) = round_to(DType::kF8E4M3, from.at(i, o, k) / scale_at(i, o, k));
  }
  std::vector<int64_t> scale_shape = weight.shape;
  scale_shape[rank - 2] = blocks(out);
  scale_shape[rank - 1] = blocks(in);
  return {.data = q.reshaped(weight.shape), .scale = scale.reshaped(scale_shape)};
}

HostTensor dequantize(const HostWeight& weight) {
  const std::vector<HostTensor> matrices = dequantized(weight);
  HostTensor all(DType::kF32, weight.data.shape);
  auto to = all.values.begin();
  for (const HostTensor& matrix : matrices)
    to = std::copy(matrix.values.begin(), matrix.values.end(), to);
  return all;
}

HostTensor linear(const HostTensor& x, const HostWeight& weight) {
  return product_as_stored(x, dequantized(weight)[0], weight);
}

HostTensor head_linear(const HostTensor& x, const HostWeight& weight) {
  const int64_t tokens = x.dim(0), heads = x.dim(1), in = x.dim(2), out = weight.data.dim(1);
  const std::vector<HostTensor> matrices = dequantized(weight);
  HostTensor y(DType::kF32, {tokens, heads, out});
  for (int64_t h = 0; h < heads; ++h) {
    HostTensor rows(x.dtype, {tokens, in});
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t k = 0; k < in; ++k) rows.at(t, k) = x.at(t, h, k);
    const HostTensor product = product_as_stored(rows, matrices[static_cast<size_t>(h)], weight);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t o = 0; o < out; ++o) y.at(t, h, o) = product.at(t, o);
  }
  return y;
}

HostTensor head_linear(const HostTensor& x, const HostTensor& weight) {
  return head_linear(x, HostWeight{.data = weight, .scale = {}});
}

HostTensor silu_mul(const HostTensor& gate_up) {
  HostTensor y(DType::kF32, {gate_up.dim(0), gate_up.dim(2)});
  for (int64_t t = 0; t < y.dim(0); ++t) {
    for (int64_t i = 0; i < y.dim(1); ++i) {
      y.at(t, i) = silu(gate_up.at(t, 0, i)) * gate_up.at(t, 1, i);
    }
  }
  return y;
}

HostTensor moe_experts(const HostTensor& x, const HostTensor& ids, const HostTensor& weights,
                       const HostWeight& gate_up, const HostWeight& down) {
  HostTensor y(DType::kF32, {x.dim(0), x.dim(1)});
  const std::vector<HostTensor> w_gate_up = dequantized(gate_up), w_down = dequantized(down);
  for (int64_t t = 0; t < x.dim(0); ++t) {
    for (int64_t j = 0; j < ids.dim(1); ++j) {
      if (ids.at(t, j) < 0) continue;
      const auto expert = static_cast<size_t>(ids.at(t, j));
      const HostTensor row = x.rows(t, t + 1);
      HostTensor hidden = product_as_stored(row, w_gate_up[2 * expert], gate_up);
      const HostTensor up = product_as_stored(row, w_gate_up[2 * expert + 1], gate_up);
      for (size_t i = 0; i < hidden.values.size(); ++i) {
        hidden.values[i] = silu(hidden.values[i]) * up.values[i];
      }
      const HostTensor result = product_as_stored(hidden, w_down[expert], down);
      for (int64_t i = 0; i < y.dim(1); ++i) y.at(t, i) += weights.at(t, j) * result.at(0, i);
    }
  }
  return y;
}

}  // namespace fathom::ref
