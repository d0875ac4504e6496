#include "cuda/comm/nccl_library.h"

#include <cstdlib>
#include <vector>

#include "base/shared_library.h"

namespace fathom::cuda {
namespace {

bool find_all(void* library, NcclFunctions& to) {
  return find(library, "ncclGetVersion", to.get_version) &&
         find(library, "ncclGetErrorString", to.error_words) &&
         find(library, "ncclCommInitAll", to.init_all) &&
         find(library, "ncclGetUniqueId", to.make_id) &&
         find(library, "ncclCommInitRank", to.init_rank) &&
         find(library, "ncclCommDestroy", to.destroy) &&
         find(library, "ncclCommGetAsyncError", to.async_error) &&
         find(library, "ncclGroupStart", to.begin_group) &&
         find(library, "ncclGroupEnd", to.end_group) &&
         find(library, "ncclAllReduce", to.all_reduce) &&
         find(library, "ncclAllGather", to.all_gather) &&
         find(library, "ncclReduceScatter", to.reduce_scatter) &&
         find(library, "ncclBroadcast", to.broadcast) && find(library, "ncclReduce", to.reduce);
}

// NCCL counts 2.28.9 as 22809.
std::string version_name(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

constexpr int kOldestVersion = 21000;  // bf16

}  // namespace

Result<NcclLibrary> open_nccl(const std::string& library) {
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
  return NcclLibrary{.functions = *functions, .name = "NCCL " + version_name(version)};
}

}  // namespace fathom::cuda
