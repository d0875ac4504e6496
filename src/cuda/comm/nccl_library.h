#pragma once
// The functions of NCCL that are called here, declared by ourselves: the library is opened at run time, and its header
// is not needed to build. Names, numbers and types are those of nccl.h (2.10 and newer, where bf16 came).
//
//   Result<NcclLibrary> nccl = open_nccl("");              // "" = where the system has it
//   nccl->functions.all_reduce(...);
//
// NVLink multicast is never used (NCCL_NVLS_ENABLE=0 is set before the library is asked for anything). Thread-safe.

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>

#include "base/result.h"

namespace fathom::cuda {

using NcclComm = struct ncclComm*;

enum NcclResult : int { kNcclSuccess = 0, kNcclInProgress = 7 };
enum NcclType : int { kNcclUint8 = 1, kNcclUint32 = 3, kNcclFloat32 = 7, kNcclBfloat16 = 9 };
enum NcclOp : int { kNcclSum = 0 };
// Names a group whose ranks are in several processes: one makes it, all begin with it.
struct NcclId {
  std::array<char, 128> bytes;
};

struct NcclFunctions {
  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*error_words)(NcclResult result) = nullptr;
  // One thread makes those of all devices.
  NcclResult (*init_all)(NcclComm* comms, int count, const int* devices) = nullptr;
  NcclResult (*make_id)(NcclId* id) = nullptr;
  // On the thread's device; returns when all ranks have called it.
  NcclResult (*init_rank)(NcclComm* comm, int size, NcclId id, int rank) = nullptr;
  NcclResult (*destroy)(NcclComm comm) = nullptr;
  NcclResult (*async_error)(NcclComm comm, NcclResult* error) = nullptr;
  // What is called between both is begun together.
  NcclResult (*begin_group)() = nullptr;
  NcclResult (*end_group)() = nullptr;
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, NcclType type, NcclOp op,
                           NcclComm comm, cudaStream_t stream) = nullptr;
  // count: of a rank's piece.
  NcclResult (*all_gather)(const void* from, void* to, size_t count, NcclType type, NcclComm comm,
                           cudaStream_t stream) = nullptr;
  NcclResult (*reduce_scatter)(const void* from, void* to, size_t count, NcclType type, NcclOp op,
                               NcclComm comm, cudaStream_t stream) = nullptr;
  NcclResult (*broadcast)(const void* from, void* to, size_t count, NcclType type, int root,
                          NcclComm comm, cudaStream_t stream) = nullptr;
  NcclResult (*reduce)(const void* from, void* to, size_t count, NcclType type, NcclOp op, int root,
                       NcclComm comm, cudaStream_t stream) = nullptr;
};

struct NcclLibrary {
  NcclFunctions functions;
  std::string name;  // "NCCL 2.28.9"
};

// library: a file, or "" for libnccl.so.2. The error names what was tried.
Result<NcclLibrary> open_nccl(const std::string& library);

}  // namespace fathom::cuda
