#include "ops/index_cache.h"

#include <algorithm>

#include "base/check.h"
#include "ops/kv_format.h"

namespace fathom::ops {

using tensor::DType;

IndexFormat IndexFormat::of(DType values, int64_t dim) {
  FATHOM_CHECK(values == DType::kF32 || values == DType::kF8E4M3,
               "no index keys of " << tensor::dtype_name(values));
  FATHOM_CHECK(dim > 0, "index keys of " << dim << " values");
  return {.values = values, .dim = dim};
}

int64_t IndexFormat::row_bytes() const {
  return dim * tensor::dtype_bytes(values) + (has_scale() ? int64_t{sizeof(float)} : 0);
}

float index_scale(float amax) {
  constexpr float kLeast = 1e-4f;
  return kv_scale(std::max(amax, kLeast));
}

}  // namespace fathom::ops
