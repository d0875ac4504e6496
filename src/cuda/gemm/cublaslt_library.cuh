#pragma once
// The library behind cublaslt.h as it was opened: its functions, and products described as it wants them. It computes
// columns, out^T = b * a^T, so its first matrix is the weight. Scales: one for each 128 x 128 of the weight, one for
// each 128 of a row, which version 12.9 brought.
//
//   Result<std::unique_ptr<CublasLt>> library = CublasLt::open(/*device=*/0);
//   const std::unique_ptr<Plan> plan = (*library)->make_plan(kind);
//   if (plan->has_kernel) (*library)->multiply(*plan, operands, rows, /*accumulate=*/false, stream);
//
// Internal to gemm/. Thread-safe.

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

#if defined(CUBLAS_VERSION) && CUBLAS_VERSION >= 120900
#define FATHOM_KNOWS_CUBLASLT

#include <cuda_runtime_api.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#include "base/check.h"
#include "base/result.h"
#include "tensor/dtype.h"

namespace fathom::cuda {

struct CublasLtFunctions {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_product = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_of_product = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_of_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_of_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_kernel = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
};

template <class Object>
using Owned = std::unique_ptr<std::remove_pointer_t<Object>, cublasStatus_t (*)(Object)>;

// What a product is but for its addresses and rows.
struct Kind {
  tensor::DType dtype, out;
  int64_t measured_rows, n, k, a_stride, out_stride;
  bool accumulate;
  auto operator<=>(const Kind&) const = default;
};

// A product as the library wants it described, with the kernel that it chose; has_kernel false: it has none.
struct Plan {
  Owned<cublasLtMatmulDesc_t> product;
  Owned<cublasLtMatrixLayout_t> weight, rows, out;
  cublasLtMatmulAlgo_t kernel{};
  bool has_kernel = false;
};

// The addresses of a call.
struct Operands {
  const void *b = nullptr, *a = nullptr;
  const float *b_scale = nullptr, *a_scale = nullptr;  // f8 only
  void *out = nullptr, *workspace = nullptr;
};

class CublasLt {
 public:
  static Result<std::unique_ptr<CublasLt>> open(int device);

  const std::string& name() const { return name_; }
  // With its kernel loaded.
  std::unique_ptr<Plan> make_plan(const Kind& kind);
  bool multiply(const Plan& plan, const Operands& operands, int64_t rows, bool accumulate,
                cudaStream_t stream);

 private:
  template <class Object, class... Arguments>
  Owned<Object> make(cublasStatus_t (*create)(Object*, Arguments...),
                     cublasStatus_t (*destroy)(Object), Arguments... arguments) {
    Object object = nullptr;
    FATHOM_CHECK(create(&object, arguments...) == CUBLAS_STATUS_SUCCESS,
                 "cuBLASLt describes nothing");
    return {object, destroy};
  }
  template <class Value>
  void set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    FATHOM_CHECK(functions_.set_of_product(plan.product.get(), attribute, &value, sizeof value) ==
                     CUBLAS_STATUS_SUCCESS,
                 "cuBLASLt does not know attribute " << attribute);
  }
  void set_columns(const Owned<cublasLtMatrixLayout_t>& layout, int64_t columns) {
    FATHOM_CHECK(functions_.set_of_layout(layout.get(), CUBLASLT_MATRIX_LAYOUT_COLS, &columns,
                                          sizeof columns) == CUBLAS_STATUS_SUCCESS,
                 "cuBLASLt refuses " << columns << " rows");
  }
  void find_kernel(Plan& plan);
  void load_kernel(const Kind& kind, const Plan& plan);

  CublasLtFunctions functions_;
  cublasLtHandle_t handle_ = nullptr;  // stays until the process ends
  std::string name_;
  std::mutex mutex_;  // of descriptions, which a call completes
};

}  // namespace fathom::cuda

#endif
