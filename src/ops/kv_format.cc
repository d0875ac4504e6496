#include "ops/kv_format.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace fathom::ops {
namespace {

using tensor::DType;

constexpr int64_t kPartAlignment = 16;
constexpr float kMaxF8 = 448.0f;

int64_t aligned(int64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

}  // namespace

bool KvFormat::is_known(DType cache) {
  return cache == DType::kF32 || cache == DType::kBf16 || cache == DType::kF8E4M3;
}

KvFormat KvFormat::of(DType cache, int64_t latent_dim, int64_t rope_dim) {
  FATHOM_CHECK(is_known(cache), "no cache rows of " << tensor::dtype_name(cache));
  FATHOM_CHECK(latent_dim > 0 && rope_dim > 0, "rows of " << latent_dim << " + " << rope_dim);
  KvFormat format{.latent = cache, .rope = cache, .latent_dim = latent_dim, .rope_dim = rope_dim};
  if (cache != DType::kF8E4M3) {
    format.scale_offset = format.rope_offset = latent_dim * tensor::dtype_bytes(cache);
    format.row_bytes = format.rope_offset + rope_dim * tensor::dtype_bytes(cache);
    return format;
  }
  format.rope = DType::kBf16;
  format.num_scales = tensor::num_scale_blocks(latent_dim);
  format.scale_offset = aligned(latent_dim);
  format.rope_offset = format.scale_offset + aligned(format.num_scales * int64_t{sizeof(float)});
  format.row_bytes = format.rope_offset + aligned(rope_dim * tensor::dtype_bytes(format.rope));
  return format;
}

float kv_scale(float amax) {
  if (amax == 0.0f) return 1.0f;
  if (std::isinf(amax)) return amax;
  int exponent = 0;
  const float fraction = std::frexp(amax, &exponent);  // in [0.5, 1)
  // 448 = 0.875 * 2^9.
  return std::ldexp(1.0f, std::max(fraction <= kMaxF8 / 512 ? exponent - 9 : exponent - 8, -126));
}

}  // namespace fathom::ops
