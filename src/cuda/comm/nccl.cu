#include "cuda/comm/nccl.h"

#include <cstdlib>

#include "base/check.h"
#include "base/shared_library.h"
#include "cuda/runtime/stream.cuh"

namespace fathom::cuda {
namespace {

bool find_all(void* library, NcclFunctions& to) {
  return find(library, "ncclGetVersion", to.get_version) &&
         find(library, "ncclGetErrorString", to.error_words) &&
         find(library, "ncclCommInitAll", to.init_all) &&
         find(library, "ncclCommDestroy", to.destroy) &&
         find(library, "ncclAllReduce", to.all_reduce);
}

// NCCL counts 2.28.9 as 22809.
std::string version_name(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

constexpr int kOldestVersion = 21000;  // bf16

}  // namespace

Result<std::unique_ptr<Nccl>> Nccl::open(const std::string& library,
                                         const std::vector<int>& devices) {
  const std::vector<std::string> names = {library.empty() ? "libnccl.so.2" : library};
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/1);
  // Ranks meet when they are made: a first sum that is captured could not.
  setenv("NCCL_RUNTIME_CONNECT", "0", /*overwrite=*/1);
  const Result<NcclFunctions> functions = open_library<NcclFunctions>("NCCL", names, find_all);
  if (!functions) return functions.error();
  int version = 0;
  if (functions->get_version(&version) != kNcclSuccess || version < kOldestVersion)
    return Error{ErrorCode::kNotFound, "NCCL " + version_name(version) + " is too old, needed is " +
                                           version_name(kOldestVersion) + " or newer"};
  std::unique_ptr<Nccl> nccl(new Nccl);
  nccl->functions_ = *functions;
  nccl->name_ = "NCCL " + version_name(version);
  nccl->comms_.resize(devices.size());
  int before = 0;
  check(cudaGetDevice(&before), "name its device");
  const NcclResult made =
      functions->init_all(nccl->comms_.data(), static_cast<int>(devices.size()), devices.data());
  check(cudaSetDevice(before), "be used by a thread");
  if (made == kNcclSuccess) return Result<std::unique_ptr<Nccl>>(std::move(nccl));
  nccl->comms_.clear();
  return Error{ErrorCode::kInternal,
               nccl->name_ + " does not start: " + functions->error_words(made)};
}

Nccl::~Nccl() {
  for (const NcclComm comm : comms_) functions_.destroy(comm);
}

void Nccl::all_reduce(int rank, const tensor::Tensor& t, ops::Stream& stream) const {
  const bool is_bf16 = t.dtype() == tensor::DType::kBf16;
  FATHOM_CHECK((is_bf16 || t.dtype() == tensor::DType::kF32) && t.is_contiguous(),
               "a sum by NCCL of " << t.describe());
  const NcclResult result =
      functions_.all_reduce(t.data(), t.data(), static_cast<size_t>(t.num_elements()),
                            is_bf16 ? kNcclBfloat16 : kNcclFloat32, kNcclSum,
                            comms_[static_cast<size_t>(rank)], CudaStream::of(stream).handle());
  FATHOM_CHECK(result == kNcclSuccess,
               "NCCL could not add " << t.describe() << ": " << functions_.error_words(result));
}

}  // namespace fathom::cuda
