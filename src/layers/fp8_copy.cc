#include "layers/fp8_copy.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "base/check.h"
#include "tensor/scale_block.h"
#include "weights/convert.h"
#include "weights/parallel.h"

namespace fathom::layers {

using tensor::Bf16, tensor::DType, tensor::F8E4M3, tensor::kScaleBlock;

ops::Weight allocate_fp8_copy(const tensor::Tensor& matrix, WeightBuilder& builder) {
  const int64_t rows = matrix.dim(0), columns = matrix.dim(1);
  return {.data = builder.derived(DType::kF8E4M3, {rows, columns}),
          .scale = builder.derived(
              DType::kF32, {tensor::num_scale_blocks(rows), tensor::num_scale_blocks(columns)})};
}

void fill_fp8_copy(const tensor::Tensor& matrix, const ops::Weight& copy, ops::Stream& stream) {
  FATHOM_CHECK(matrix.dtype() == DType::kBf16,
               "the matrix is " << matrix.describe() << ", must be bf16");
  constexpr int kMostThreads = 16;
  const int64_t rows = matrix.dim(0), columns = matrix.dim(1);
  const auto num_values = static_cast<size_t>(matrix.num_elements());
  std::vector<Bf16> from(num_values);
  std::vector<F8E4M3> values(num_values);
  std::vector<float> scales(static_cast<size_t>(copy.scale.num_elements()));
  const ops::Backend& backend = stream.backend();
  backend.copy_to_host(from.data(), matrix.data(), matrix.num_bytes(), stream);
  stream.synchronize();
  const auto quantise = [&](size_t band, size_t) -> Status {
    const int64_t begin = static_cast<int64_t>(band) * kScaleBlock;
    const int64_t count = std::min(rows - begin, kScaleBlock);
    std::vector<float> floats(static_cast<size_t>(count * columns));
    weights::convert(from.data() + begin * columns, DType::kBf16, floats.data(), DType::kF32,
                     count * columns);
    weights::quantize_blocks(
        floats.data(), count, columns, weights::BlockScale::kAny,
        {.q = values.data() + begin * columns,
         .scale = scales.data() + static_cast<int64_t>(band) * copy.scale.dim(1)});
    return {};
  };
  const int threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
  const Status done = weights::run_jobs(static_cast<size_t>(copy.scale.dim(0)), threads, quantise);
  FATHOM_CHECK(done.has_value(), "bands are quantised without an error");
  backend.copy_to_device(copy.data.data(), values.data(), copy.data.num_bytes(), stream);
  backend.copy_to_device(copy.scale.data(), scales.data(), copy.scale.num_bytes(), stream);
  stream.synchronize();
}

}  // namespace fathom::layers
