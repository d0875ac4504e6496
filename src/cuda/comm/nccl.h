#pragma once
// Nccl: all-reduces of NCCL, for messages above the size up to which kernels of our own are faster. Opened at run time:
// a program starts where it is not installed, and ranks of one process need it for nothing.
//
//   Result<std::unique_ptr<Nccl>> nccl = Nccl::open("", {0, 1});        // "" = where the system has it
//   nccl.value()->all_reduce(rank, tensor, stream);                     // on the rank's thread
//
// Sums are in an order of NCCL's; all ranks get the same bits. Owns its communicators. all_reduce() is thread-safe for
// distinct ranks.

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cuda/comm/nccl_library.h"
#include "ops/stream.h"
#include "tensor/tensor.h"

namespace fathom::cuda {

class Nccl {
 public:
  // library: a file, or "" for libnccl.so.2. The error names what was tried.
  static Result<std::unique_ptr<Nccl>> open(const std::string& library,
                                            const std::vector<int>& devices);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const std::string& name() const { return name_; }  // "NCCL 2.28.9"
  // t: f32 or bf16, contiguous.
  void all_reduce(int rank, const tensor::Tensor& t, ops::Stream& stream) const;

 private:
  Nccl() = default;

  NcclFunctions functions_;
  std::string name_;
  std::vector<NcclComm> comms_;  // [rank]
};

}  // namespace fathom::cuda
