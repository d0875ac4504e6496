#include "tests/ops/kv_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fathom::ops_test {
namespace {

using ref::HostTensor;
using tensor::Bf16, tensor::DType, tensor::F8E4M3;

template <class T>
void put(double value, uint8_t* to) {
  const T stored = tensor::from_float<T>(static_cast<float>(value));
  std::memcpy(to, &stored, sizeof(stored));
}

template <class T>
double get(const uint8_t* from) {
  T stored;
  std::memcpy(&stored, from, sizeof(stored));
  return static_cast<double>(tensor::to_float(stored));
}

void put_as(DType dtype, double value, uint8_t* to) {
  if (dtype == DType::kF32) return put<float>(value, to);
  if (dtype == DType::kBf16) return put<Bf16>(value, to);
  put<F8E4M3>(value, to);
}

double get_as(DType dtype, const uint8_t* from) {
  if (dtype == DType::kF32) return get<float>(from);
  return dtype == DType::kBf16 ? get<Bf16>(from) : get<F8E4M3>(from);
}

// By search instead of by exponent.
double smallest_scale(const double* values, int64_t n) {
  double amax = 0;
  for (int64_t i = 0; i < n; ++i)
    if (!std::isnan(values[i])) amax = std::max(amax, std::fabs(values[i]));
  if (amax == 0) return 1;
  if (std::isinf(amax)) return amax;
  double scale = std::ldexp(1.0, -126);
  while (amax / scale > 448) scale *= 2;
  return scale;
}

void encode_row(const double* values, const ops::KvFormat& format, uint8_t* row) {
  for (int64_t begin = 0; begin < format.latent_dim; begin += tensor::kScaleBlock) {
    const int64_t size = std::min(tensor::kScaleBlock, format.latent_dim - begin);
    double scale = 1;
    if (format.num_scales > 0) {
      scale = smallest_scale(values + begin, size);
      put<float>(scale, row + format.scale_offset + begin / tensor::kScaleBlock * 4);
    }
    for (int64_t i = begin; i < begin + size; ++i)
      put_as(format.latent, values[i] / scale, row + i * tensor::dtype_bytes(format.latent));
  }
  for (int64_t i = 0; i < format.rope_dim; ++i)
    put_as(format.rope, values[format.latent_dim + i],
           row + format.rope_offset + i * tensor::dtype_bytes(format.rope));
}

}  // namespace

std::vector<uint8_t> encode_rows(const HostTensor& values, const ops::KvFormat& format) {
  const int64_t rows = static_cast<int64_t>(values.values.size()) / format.dim();
  std::vector<uint8_t> bytes(static_cast<size_t>(rows * format.row_bytes), 0);
  for (int64_t row = 0; row < rows; ++row)
    encode_row(values.values.data() + row * format.dim(), format,
               bytes.data() + row * format.row_bytes);
  return bytes;
}

HostTensor decode_rows(const std::vector<uint8_t>& bytes, const ops::KvFormat& format) {
  const int64_t rows = static_cast<int64_t>(bytes.size()) / format.row_bytes;
  HostTensor values(DType::kF32, {rows, format.dim()});
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* const row = bytes.data() + r * format.row_bytes;
    for (int64_t i = 0; i < format.latent_dim; ++i) {
      double scale = 1;
      if (format.num_scales > 0)
        scale = get<float>(row + format.scale_offset + i / tensor::kScaleBlock * 4);
      values.at(r, i) = scale * get_as(format.latent, row + i * tensor::dtype_bytes(format.latent));
    }
    for (int64_t i = 0; i < format.rope_dim; ++i)
      values.at(r, format.latent_dim + i) =
          get_as(format.rope, row + format.rope_offset + i * tensor::dtype_bytes(format.rope));
  }
  return values;
}

}  // namespace fathom::ops_test
