#include "cpu/reference/kv_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/reference/vector_math.h"

namespace fathom::cpu::reference {
namespace {

using ops::KvFormat;
using tensor::DType, tensor::F8E4M3, tensor::kScaleBlock;

void load_latent_f8(const KvFormat& format, const std::byte* row, float* out) {
  const auto* scales = reinterpret_cast<const float*>(row + format.scale_offset);
  as_floats(row, DType::kF8E4M3, format.latent_dim, out);
  for (int64_t i = 0; i < format.latent_dim; ++i) out[i] *= scales[i / kScaleBlock];
}

void store_latent_f8(const float* values, const KvFormat& format, std::byte* row) {
  auto* scales = reinterpret_cast<float*>(row + format.scale_offset);
  auto* q = reinterpret_cast<F8E4M3*>(row);
  for (int64_t begin = 0; begin < format.latent_dim; begin += kScaleBlock) {
    const int64_t end = std::min(begin + kScaleBlock, format.latent_dim);
    float amax = 0.0f;
    for (int64_t i = begin; i < end; ++i) amax = std::max(amax, std::fabs(values[i]));
    const float scale = ops::kv_scale(amax);
    scales[begin / kScaleBlock] = scale;
    for (int64_t i = begin; i < end; ++i) q[i] = tensor::from_float<F8E4M3>(values[i] / scale);
  }
}

}  // namespace

const float* load_kv_row(const ops::KvCache& cache, int64_t row, float* out) {
  const KvFormat& format = cache.format;
  const std::byte* data = cache.row(row);
  if (format.latent == DType::kF8E4M3) {
    load_latent_f8(format, data, out);
    as_floats(data + format.rope_offset, format.rope, format.rope_dim, out + format.latent_dim);
    return out;
  }
  return as_floats(data, format.latent, format.dim(), out);
}

void store_kv_row(const float* values, const ops::KvCache& cache, int64_t row) {
  const KvFormat& format = cache.format;
  std::byte* data = cache.row(row);
  if (format.latent == DType::kF8E4M3) {
    std::memset(data, 0, static_cast<size_t>(format.row_bytes));
    store_latent_f8(values, format, data);
    store_floats(values + format.latent_dim, data + format.rope_offset, format.rope,
                 format.rope_dim);
    return;
  }
  store_floats(values, data, format.latent, format.dim());
}

}  // namespace fathom::cpu::reference
