#include "cuda/comm/nccl.h"

#include "base/check.h"
#include "cuda/runtime/stream.cuh"

namespace fathom::cuda {

Result<std::unique_ptr<Nccl>> Nccl::open(const std::string& library,
                                         const std::vector<int>& devices) {
  const Result<NcclLibrary> opened = open_nccl(library);
  if (!opened) return opened.error();
  std::unique_ptr<Nccl> nccl(new Nccl);
  nccl->functions_ = opened->functions;
  nccl->name_ = opened->name;
  nccl->comms_.resize(devices.size());
  int before = 0;
  check(cudaGetDevice(&before), "name its device");
  const NcclResult made = nccl->functions_.init_all(
      nccl->comms_.data(), static_cast<int>(devices.size()), devices.data());
  check(cudaSetDevice(before), "be used by a thread");
  if (made == kNcclSuccess) return Result<std::unique_ptr<Nccl>>(std::move(nccl));
  nccl->comms_.clear();
  return Error{ErrorCode::kInternal,
               nccl->name_ + " does not start: " + nccl->functions_.error_words(made)};
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
