#include "cuda/gemm/cublaslt.h"

#include <future>
#include <map>

#include "base/log.h"
#include "cuda/elementwise/scale_layout.h"
#include "cuda/gemm/cublaslt_library.cuh"
#include "cuda/gemm/library.h"
#include "cuda/runtime/background.h"
#include "cuda/runtime/stream.cuh"
#include "tensor/scale_block.h"

namespace fathom::cuda {

using tensor::DType, tensor::num_scale_blocks;

namespace {

bool is_f8(const ProductArgs& product) { return product.a.dtype == DType::kF8E4M3; }

}  // namespace

CublasLtScratch carve_cublaslt(const ProductArgs& product, DeviceArena& arena) {
  CublasLtScratch scratch;
  const int64_t blocks = num_scale_blocks(product.a.columns);
  if (is_f8(product)) scratch.a_scale = arena.take<float>(blocks * product.a.rows);
  if (is_f8(product) && blocks % kScaleLine != 0)
    scratch.b_scale = arena.take<float>(num_scale_blocks(product.n) * (blocks + kScaleLine));
  scratch.workspace = arena.take<char>(kCublasLtWorkspaceBytes);
  return scratch;
}

bool cublaslt_takes(const ProductArgs& product) {
  const Matrix& a = product.a;
  if (product.tiles != nullptr || product.a_rows != nullptr || a.rows == 0) return false;
  if (!library_knows(product.weight)) return false;
  return !is_f8(product) || (a.rows % 4 == 0 && product.n % 16 == 0 && a.columns % 16 == 0);
}

#ifdef FATHOM_KNOWS_CUBLASLT
namespace {

Kind kind_of(const ProductArgs& product, int64_t measured_rows) {
  return {.dtype = product.a.dtype,
          .out = product.out_dtype,
          .measured_rows = measured_rows,
          .n = product.n,
          .k = product.a.columns,
          .a_stride = product.a.stride,
          .out_stride = product.out_stride,
          .accumulate = product.accumulate};
}

Result<std::unique_ptr<CublasLt>> open_and_tell(int device) {
  Result<std::unique_ptr<CublasLt>> opened = CublasLt::open(device);
  if (opened.has_value()) {
    FATHOM_LOG(kInfo, "cuda", "product library", {{"opened", opened.value()->name()}});
  } else {
    FATHOM_LOG(kInfo, "cuda", "product library", {{"not_opened", opened.error().message}});
  }
  return opened;
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "name its device");
  return device;
}

using Opening = std::shared_future<Result<std::unique_ptr<CublasLt>>>;

// The library as opened for the current device, since a handle belongs to one. A thread of its own opens it once.
const Opening& opening() {
  static std::mutex& mutex = *new std::mutex;
  static auto& of_devices = *new std::map<int, Opening>;
  const int device = current_device();
  const std::lock_guard lock(mutex);
  const auto known = of_devices.find(device);
  if (known != of_devices.end()) return known->second;
  return of_devices.emplace(device, background().start([device] { return open_and_tell(device); }))
      .first->second;
}
const Result<std::unique_ptr<CublasLt>>& library() { return opening().get(); }

// What was asked for so far on each device; the same for everybody. Prompts come in any number of rows, so where the
// library is to take all of them there may be any number of kinds.
class Plans {
 public:
  using Entry = std::shared_future<std::unique_ptr<Plan>>;

  // Null in it: there is no library.
  Entry of(const Kind& kind) {
    constexpr size_t kMostPlans = 4096;
    const std::lock_guard lock(mutex_);
    const auto key = std::make_pair(current_device(), kind);
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    if (plans_.size() >= kMostPlans) plans_.clear();
    const auto make = [kind, device = key.first]() -> std::unique_ptr<Plan> {
      check(cudaSetDevice(device), "be used by another thread");
      if (!library().has_value()) return nullptr;
      std::unique_ptr<Plan> plan = library().value()->make_plan(kind);
      FATHOM_LOG(kDebug, "cuda", "product kernel",
                 {{"out", kind.n},
                  {"in", kind.k},
                  {"dtype", tensor::dtype_name(kind.dtype)},
                  {"rows", kind.measured_rows},
                  {"out_stride", kind.out_stride},
                  {"in_stride", kind.a_stride},
                  {"found", plan->has_kernel}});
      return plan;
    };
    return plans_.emplace(key, background().start(make)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<int, Kind>, Entry> plans_;  // by device
};

Plans& plans() {
  static Plans& all = *new Plans;
  return all;
}

}  // namespace

Result<std::string> find_cublaslt() {
  if (!library().has_value()) return library().error();
  return library().value()->name();
}

void open_cublaslt_soon() { opening(); }
void wait_for_cublaslt() { background().wait(); }

void prepare_cublaslt(const ProductArgs& product, int64_t measured_rows) {
  plans().of(kind_of(product, measured_rows));
}

bool cublaslt_product(const ProductArgs& product, int64_t measured_rows,
                      const CublasLtScratch& scratch, ops::Stream& stream) {
  const Plans::Entry entry = plans().of(kind_of(product, measured_rows));
  const Plan* const plan = entry.get().get();
  if (plan == nullptr || !plan->has_kernel) return false;
  const bool has_padding = scratch.b_scale != nullptr;
  if (is_f8(product))
    arrange_scales({.a = product.a_scale,
                    .a_out = scratch.a_scale,
                    .rows = static_cast<int>(product.a.rows),
                    .b = product.b_scale,
                    .b_out = scratch.b_scale,
                    .b_rows = static_cast<int>(num_scale_blocks(product.n)),
                    .blocks = static_cast<int>(num_scale_blocks(product.a.columns))},
                   stream);
  return library().value()->multiply(*plan,
                                     {.b = product.b,
                                      .a = product.a.data,
                                      .b_scale = has_padding ? scratch.b_scale : product.b_scale,
                                      .a_scale = scratch.a_scale,
                                      .out = product.out,
                                      .workspace = scratch.workspace},
                                     product.a.rows, product.accumulate,
                                     CudaStream::of(stream).handle());
}

#else

Result<std::string> find_cublaslt() {
  return Error{ErrorCode::kNotFound,
               "this program was built without the headers of cuBLASLt 12.9 or newer"};
}

void open_cublaslt_soon() {}
void wait_for_cublaslt() {}
void prepare_cublaslt(const ProductArgs&, int64_t) {}

bool cublaslt_product(const ProductArgs&, int64_t, const CublasLtScratch&, ops::Stream&) {
  return false;
}

#endif

}  // namespace fathom::cuda
