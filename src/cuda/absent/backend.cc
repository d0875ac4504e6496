// Instead of the CUDA backend, where the program is built without the CUDA toolkit.

#include "cuda/backend.h"

#include "base/check.h"
#include "cuda/attention/choice.h"
#include "cuda/comm/nccl_ranks.h"
#include "cuda/comm/peer_ranks.h"
#include "cuda/fusion/chains.h"
#include "cuda/gemm/large.h"
#include "cuda/gemm/library.h"
#include "cuda/inventory.h"
#include "cuda/jit/jit.h"
#include "cuda/linear/batch_product.h"
#include "cuda/profile/profile.h"

namespace fathom::cuda {

bool is_built() { return false; }

Presence find_gpu() {
  return {
      .usable = false,
      .why_not =
          "this program was built without CUDA: install the CUDA toolkit (nvcc) and build again"};
}

std::string built_with() { return ""; }
std::string driver_cuda() { return ""; }
std::vector<Gpu> list_gpus() { return {}; }
std::vector<std::string> bus_ids(int) { return {}; }

const ops::Backend& backend() { FATHOM_CHECK(false, "this program was built without CUDA"); }

const ops::Backend& batch_invariant_backend() { return backend(); }

comm::MakeGroup make_peer_ranks(const PeerOptions&) { return {}; }
comm::MakeNodeGroup make_nccl_ranks(const NcclOptions&) { return {}; }

void set_attention_backend(AttentionBackend) {}
void set_gemm_backend(GemmBackend) {}
void set_jit(const jit::Options&) {}
void settle_jit() {}
void hasten_jit() {}
std::vector<jit::KernelState> jit_states() { return {}; }
jit::Progress jit_progress() { return {}; }
ops::ChainRunner* fuse_chains(int64_t) { return nullptr; }
Result<std::string> find_cublaslt() { return Error{ErrorCode::kNotFound, find_gpu().why_not}; }
void open_cublaslt_soon() {}
void wait_for_cublaslt() {}

void join_traces() {}

std::unique_ptr<trace::DeviceRecorder> make_recorder(std::vector<std::string>) { return nullptr; }

bool run_batch_product(Stored, const ProductParams&, ops::Stream&) { return false; }
bool takes_many_rows(Stored, const ProductParams&) { return false; }
bool large_linear(const ops::LinearArgs&, ops::Stream&) { return false; }
bool library_linear(const ops::LinearArgs&, ops::Stream&) { return false; }
int64_t large_linear_scratch(const ops::LinearArgs&) { return 0; }
bool large_linear_pair(const ops::LinearPairArgs&, ops::Stream&) { return false; }
int64_t large_linear_pair_scratch(const ops::LinearPairArgs&) { return 0; }
bool large_moe_experts(const ops::MoeExpertsArgs&, ops::Stream&) { return false; }
int64_t large_moe_experts_scratch(const ops::MoeExpertsArgs&) { return 0; }

}  // namespace fathom::cuda
