#pragma once
// The functions of NCCL that are called here, declared by ourselves: the library is opened at run time, and its header
// is not needed to build. Names, numbers and types are those of nccl.h (2.10 and newer, where bf16 came).

#include <cuda_runtime_api.h>

#include <cstddef>

namespace fathom::cuda {

using NcclComm = struct ncclComm*;

enum NcclResult : int { kNcclSuccess = 0 };
enum NcclType : int { kNcclFloat32 = 7, kNcclBfloat16 = 9 };
enum NcclOp : int { kNcclSum = 0 };

struct NcclFunctions {
  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*error_words)(NcclResult result) = nullptr;
  // Of all devices, by one thread.
  NcclResult (*init_all)(NcclComm* comms, int count, const int* devices) = nullptr;
  NcclResult (*destroy)(NcclComm comm) = nullptr;
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, NcclType type, NcclOp op,
                           NcclComm comm, cudaStream_t stream) = nullptr;
};

}  // namespace fathom::cuda
