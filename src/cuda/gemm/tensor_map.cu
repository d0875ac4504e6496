#include "cuda/gemm/tensor_map.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "cuda/runtime/driver.h"

namespace fathom::cuda {
namespace {

decltype(&cuTensorMapEncodeTiled) encode_function() {
  static const auto function =
      driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  return function;
}

}  // namespace

bool can_map(const Matrix& matrix) {
  constexpr int64_t kAlignment = 16, kMostRows = int64_t{1} << 31;
  const int64_t stride_bytes = matrix.stride * tensor::dtype_bytes(matrix.dtype);
  return reinterpret_cast<uintptr_t>(matrix.data) % kAlignment == 0 &&
         stride_bytes % kAlignment == 0 && stride_bytes > 0 && matrix.rows > 0 &&
         matrix.rows < kMostRows && matrix.columns > 0 && matrix.columns < kMostRows;
}

static CUtensorMap encode(const Matrix& matrix, int box_rows, int box_bytes,
                          CUtensorMapSwizzle swizzle) {
  const auto element_bytes = static_cast<cuuint32_t>(tensor::dtype_bytes(matrix.dtype));
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(matrix.columns),
                               static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t row_bytes[1] = {static_cast<cuuint64_t>(matrix.stride) * element_bytes};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_bytes) / element_bytes,
                             static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = encode_function()(
      &map, element_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      2, const_cast<void*>(matrix.data), sizes, row_bytes, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  FATHOM_CHECK(result == CUDA_SUCCESS, "no tensor map of " << matrix.rows << " x " << matrix.columns
                                                           << ", stride " << matrix.stride
                                                           << ": error " << result);
  return map;
}

CUtensorMap tensor_map(const Matrix& matrix, int box_rows) {
  return encode(matrix, box_rows, 128, CU_TENSOR_MAP_SWIZZLE_128B);
}

CUtensorMap tensor_map(const Bytes5& bytes) {
  cuuint64_t sizes[5], strides[4];
  cuuint32_t box[5];
  std::copy(std::begin(bytes.sizes), std::end(bytes.sizes), sizes);
  std::copy(std::begin(bytes.strides), std::end(bytes.strides), strides);
  std::copy(std::begin(bytes.box), std::end(bytes.box), box);
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode_function()(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 5, const_cast<void*>(bytes.data), sizes, strides, box,
      steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  FATHOM_CHECK(result == CUDA_SUCCESS, "no tensor map of " << sizes[0] << " x " << sizes[1] << " x "
                                                           << sizes[2] << " x " << sizes[3] << " x "
                                                           << sizes[4] << ": error " << result);
  return map;
}

CUtensorMap plain_map(const Matrix& matrix, int box_rows, int box_bytes) {
  return encode(matrix, box_rows, box_bytes, CU_TENSOR_MAP_SWIZZLE_NONE);
}

}  // namespace fathom::cuda
