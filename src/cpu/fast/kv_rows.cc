#include "cpu/fast/kv_rows.h"

#include <algorithm>
#include <cstring>

#include "cpu/fast/weight_rows.h"

namespace fathom::cpu {
namespace {

using ops::KvFormat;
using tensor::DType;

void narrow_latent_f8(const KernelTable& kernels, const float* values, const KvFormat& format,
                      std::byte* row) {
  auto* const scales = reinterpret_cast<float*>(row + format.scale_offset);
  for (int64_t begin = 0; begin < format.latent_dim; begin += kScaleBlock) {
    const int64_t size = std::min(kScaleBlock, format.latent_dim - begin);
    const float scale = ops::kv_scale(kernels.largest_magnitude(values + begin, size));
    scales[begin / kScaleBlock] = scale;
    // A power of two: as exact as the division.
    kernels.narrow_f8_row(values + begin, 1.0f / scale, size,
                          reinterpret_cast<uint8_t*>(row) + begin);
  }
}

}  // namespace

void widen_kv_latent(const KernelTable& kernels, const KvFormat& format, const std::byte* row,
                     float* out) {
  if (format.latent != DType::kF8E4M3)
    return kernels.widen_row(row, weight_kind(format.latent), format.latent_dim, out);
  kernels.widen_f8_row(reinterpret_cast<const uint8_t*>(row),
                       reinterpret_cast<const float*>(row + format.scale_offset), format.latent_dim,
                       out);
}

void widen_kv_rope(const KernelTable& kernels, const KvFormat& format, const std::byte* row,
                   float* out) {
  kernels.widen_row(row + format.rope_offset, weight_kind(format.rope), format.rope_dim, out);
}

void narrow_kv_row(const KernelTable& kernels, const float* values, const ops::KvCache& cache,
                   int64_t row) {
  const KvFormat& format = cache.format;
  std::byte* const data = cache.row(row);
  if (format.latent == DType::kF8E4M3) {
    std::memset(data, 0, static_cast<size_t>(format.row_bytes));
    narrow_latent_f8(kernels, values, format, data);
  } else {
    kernels.narrow_row(values, format.latent_dim, reinterpret_cast<uint16_t*>(data));
  }
  kernels.narrow_row(values + format.latent_dim, format.rope_dim,
                     reinterpret_cast<uint16_t*>(data + format.rope_offset));
}

}  // namespace fathom::cpu
