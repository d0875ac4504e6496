#include "cuda/gemm/cublaslt_library.cuh"

#ifdef FATHOM_KNOWS_CUBLASLT

#include <algorithm>

#include "base/shared_library.h"
#include "cuda/elementwise/scale_layout.h"
#include "cuda/gemm/cublaslt.h"
#include "cuda/runtime/device_arena.h"
#include "cuda/runtime/stream.cuh"
#include "tensor/scale_block.h"

namespace fathom::cuda {

using tensor::DType, tensor::num_scale_blocks;

namespace {

// False when one is missing: a library of another age.
bool find_all(void* library, CublasLtFunctions& to) {
  return find(library, "cublasLtCreate", to.create) &&
         find(library, "cublasLtGetVersion", to.version) &&
         find(library, "cublasLtMatmulDescCreate", to.create_product) &&
         find(library, "cublasLtMatmulDescDestroy", to.destroy_product) &&
         find(library, "cublasLtMatmulDescSetAttribute", to.set_of_product) &&
         find(library, "cublasLtMatrixLayoutCreate", to.create_layout) &&
         find(library, "cublasLtMatrixLayoutDestroy", to.destroy_layout) &&
         find(library, "cublasLtMatrixLayoutSetAttribute", to.set_of_layout) &&
         find(library, "cublasLtMatmulPreferenceCreate", to.create_preference) &&
         find(library, "cublasLtMatmulPreferenceDestroy", to.destroy_preference) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", to.set_of_preference) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", to.find_kernel) &&
         find(library, "cublasLtMatmul", to.multiply);
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::kF8E4M3 ? CUDA_R_8F_E4M3
         : dtype == DType::kBf16 ? CUDA_R_16BF
                                 : CUDA_R_32F;
}

}  // namespace

Result<std::unique_ptr<CublasLt>> CublasLt::open(int device) {
  if (cudaSetDevice(device) != cudaSuccess)
    return Error{ErrorCode::kInternal, "the GPU cannot be used by another thread"};
  const std::string file = "libcublasLt.so." + std::to_string(CUBLAS_VERSION / 10000);
  const Result<CublasLtFunctions> functions = open_library<CublasLtFunctions>(
      "cuBLASLt", {file, "/usr/local/cuda/lib64/" + file}, find_all);
  if (!functions) return functions.error();
  auto opened = std::make_unique<CublasLt>();
  opened->functions_ = *functions;
  if (functions->create(&opened->handle_) != CUBLAS_STATUS_SUCCESS)
    return Error{ErrorCode::kInternal, "cuBLASLt does not start"};
  const size_t version = functions->version();
  opened->name_ = "cuBLASLt " + std::to_string(version / 10000) + "." +
                  std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
  return Result<std::unique_ptr<CublasLt>>(std::move(opened));
}

std::unique_ptr<Plan> CublasLt::make_plan(const Kind& kind) {
  const CublasLtFunctions& f = functions_;
  const auto layout = [&](DType dtype, int64_t columns, int64_t rows, int64_t stride) {
    return make(f.create_layout, f.destroy_layout, type_of(dtype), static_cast<uint64_t>(columns),
                static_cast<uint64_t>(rows), stride);
  };
  std::unique_ptr<Plan> plan(
      new Plan{.product = make(f.create_product, f.destroy_product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               .weight = layout(kind.dtype, kind.k, kind.n, kind.k),
               .rows = layout(kind.dtype, kind.k, kind.measured_rows, kind.a_stride),
               .out = layout(kind.out, kind.n, kind.measured_rows, kind.out_stride)});
  set(*plan, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (kind.dtype == DType::kF8E4M3) {
    set(*plan, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
        int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F});
    set(*plan, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F});
    // Without scales the library has no kernel. Those of a call come with it.
    const void* const some = reinterpret_cast<const void*>(256);
    set(*plan, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, some);
    set(*plan, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, some);
  }
  find_kernel(*plan);
  if (plan->has_kernel) load_kernel(kind, *plan);
  return plan;
}

void CublasLt::find_kernel(Plan& plan) {
  const CublasLtFunctions& f = functions_;
  const auto preference = make(f.create_preference, f.destroy_preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    FATHOM_CHECK(f.set_of_preference(preference.get(), attribute, &value, sizeof value) ==
                     CUBLAS_STATUS_SUCCESS,
                 "cuBLASLt does not know preference " << attribute);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kCublasLtWorkspaceBytes));
  constexpr uint32_t kAlignment = 16;
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    prefer(attribute, kAlignment);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      f.find_kernel(handle_, plan.product.get(), plan.weight.get(), plan.rows.get(), plan.out.get(),
                    plan.out.get(), preference.get(), 1, &found, &count);
  plan.has_kernel = status == CUBLAS_STATUS_SUCCESS && count > 0;
  plan.kernel = found.algo;
}

// The first call of a kernel loads it. This one computes zeros.
void CublasLt::load_kernel(const Kind& kind, const Plan& plan) {
  const int64_t rows = kind.measured_rows;
  const int64_t row_bytes = std::max(kind.a_stride, kind.k) * tensor::dtype_bytes(kind.dtype);
  DeviceArena sizes;
  const auto carve = [&](DeviceArena& arena) {
    Operands operands{
        .b = arena.take<char>(kind.n * row_bytes),
        .a = arena.take<char>(rows * row_bytes),
        .out = arena.take<char>(rows * kind.out_stride * tensor::dtype_bytes(kind.out)),
        .workspace = arena.take<char>(kCublasLtWorkspaceBytes)};
    if (kind.dtype != DType::kF8E4M3) return operands;
    const int64_t blocks = num_scale_blocks(kind.k);
    operands.b_scale = arena.take<float>(num_scale_blocks(kind.n) * (blocks + kScaleLine));
    operands.a_scale = arena.take<float>(blocks * rows);
    return operands;
  };
  carve(sizes);
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  if (cudaMalloc(&memory, static_cast<size_t>(sizes.bytes())) != cudaSuccess) {
    cudaGetLastError();  // the kernel is loaded by its first call, then
    return;
  }
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream");
  check(cudaMemsetAsync(memory, 0, static_cast<size_t>(sizes.bytes()), stream), "clear memory");
  DeviceArena arena(memory);
  multiply(plan, carve(arena), rows, kind.accumulate, stream);
  check(cudaStreamSynchronize(stream), "finish the work of a stream");
  check(cudaStreamDestroy(stream), "end a stream");
  check(cudaFree(memory), "free memory");
}

bool CublasLt::multiply(const Plan& plan, const Operands& operands, int64_t rows, bool accumulate,
                        cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  set_columns(plan.rows, rows);
  set_columns(plan.out, rows);
  if (operands.a_scale != nullptr) {
    set(plan, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(operands.b_scale));
    set(plan, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(operands.a_scale));
  }
  const float alpha = 1, beta = accumulate ? 1 : 0;
  return functions_.multiply(handle_, plan.product.get(), &alpha, operands.b, plan.weight.get(),
                             operands.a, plan.rows.get(), &beta, operands.out, plan.out.get(),
                             operands.out, plan.out.get(), &plan.kernel, operands.workspace,
                             kCublasLtWorkspaceBytes, stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace fathom::cuda

#endif
