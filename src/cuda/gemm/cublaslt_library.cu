#include "cuda/gemm/cublaslt_library.cuh"

#ifdef FATHOM_KNOWS_CUBLASLT

#include <dlfcn.h>

#include <algorithm>

#include "cuda/device_arena.h"
#include "cuda/gemm/cublaslt.h"
#include "cuda/gemm/scale_layout.h"
#include "cuda/stream.cuh"
#include "tensor/scale_block.h"

namespace fathom::cuda {

using tensor::DType, tensor::num_scale_blocks;

namespace {

// Null when one is missing: a library of another age.
bool find_all(void* library, CublasLtFunctions& to) {
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  return find("cublasLtCreate", to.create) && find("cublasLtGetVersion", to.version) &&
         find("cublasLtMatmulDescCreate", to.create_product) &&
         find("cublasLtMatmulDescDestroy", to.destroy_product) &&
         find("cublasLtMatmulDescSetAttribute", to.set_of_product) &&
         find("cublasLtMatrixLayoutCreate", to.create_layout) &&
         find("cublasLtMatrixLayoutDestroy", to.destroy_layout) &&
         find("cublasLtMatrixLayoutSetAttribute", to.set_of_layout) &&
         find("cublasLtMatmulPreferenceCreate", to.create_preference) &&
         find("cublasLtMatmulPreferenceDestroy", to.destroy_preference) &&
         find("cublasLtMatmulPreferenceSetAttribute", to.set_of_preference) &&
         find("cublasLtMatmulAlgoGetHeuristic", to.find_kernel) &&
         find("cublasLtMatmul", to.multiply);
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
  auto opened = std::make_unique<CublasLt>();
  const std::string known = std::to_string(CUBLAS_VERSION / 10000);
  std::string tried;
  for (const std::string& library :
       {"libcublasLt.so." + known, "/usr/local/cuda/lib64/libcublasLt.so." + known}) {
    tried += (tried.empty() ? "" : ", ") + library;
    void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    if (find_all(handle, opened->functions_) &&
        opened->functions_.create(&opened->handle_) == CUBLAS_STATUS_SUCCESS) {
      const size_t version = opened->functions_.version();
      opened->name_ = "cuBLASLt " + std::to_string(version / 10000) + "." +
                      std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
      return Result<std::unique_ptr<CublasLt>>(std::move(opened));
    }
    tried += " (does not start)";
  }
  return Error{ErrorCode::kNotFound, "cuBLASLt cannot be opened, tried " + tried};
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

// The first call of a kernel loads it. This one computes a corner of zeros.
void CublasLt::load_kernel(const Kind& kind, const Plan& plan) {
  constexpr int64_t kCorner = 256;
  const int64_t columns = std::min(kind.n, kCorner), rows = std::min(kind.measured_rows, kCorner);
  const int64_t row_bytes = std::max(kind.a_stride, kind.k) * tensor::dtype_bytes(kind.dtype);
  DeviceArena sizes;
  const auto carve = [&](DeviceArena& arena) {
    Operands operands{
        .b = arena.take<char>(columns * row_bytes),
        .a = arena.take<char>(rows * row_bytes),
        .out = arena.take<char>(rows * kind.out_stride * tensor::dtype_bytes(kind.out)),
        .workspace = arena.take<char>(kCublasLtWorkspaceBytes)};
    if (kind.dtype != DType::kF8E4M3) return operands;
    const int64_t blocks = num_scale_blocks(kind.k);
    operands.b_scale = arena.take<float>(num_scale_blocks(columns) * (blocks + kScaleLine));
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
  set_columns(plan.weight, columns);
  DeviceArena arena(memory);
  multiply(plan, carve(arena), rows, kind.accumulate, stream);
  check(cudaStreamSynchronize(stream), "finish the work of a stream");
  set_columns(plan.weight, kind.n);
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
