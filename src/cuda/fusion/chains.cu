// Chains of element-wise operators as one kernel each (ops/chain.h), compiled by NVRTC for the widths of the model.
// Bound by latency, as their operators are: what they save is launches. Grid: rows x operators.

#include <optional>
#include <variant>
#include <vector>

#include "cuda/cache/append_row.cuh"
#include "cuda/cache/rope_row.cuh"
#include "cuda/elementwise/norm_row.cuh"
#include "cuda/fusion/chain_source.h"
#include "cuda/fusion/chains.h"
#include "cuda/jit/compiled_kernels.h"
#include "cuda/jit/launch_compiled.h"

namespace fathom::cuda {
namespace {

using LinkParams = std::variant<NormParams, RopeParams, AppendParams>;

// Null: the chain's kernel takes whole pieces of 16 bytes.
std::optional<LinkParams> params_of(const ops::RmsNormQuantizeArgs& args) {
  const NormParams params = norm_params(args.norm, args.quantised);
  if (!params.aligned) return {};
  return params;
}
std::optional<LinkParams> params_of(const ops::RopeArgs& args) {
  if (!has_pieces(args)) return {};
  return rope_params(args);
}
std::optional<LinkParams> params_of(const ops::KvAppendArgs& args) { return append_params(args); }

class FusedChains : public ops::ChainRunner {
 public:
  explicit FusedChains(int64_t max_rows) : max_rows_(max_rows) {}

  int64_t max_rows() const { return max_rows_; }

  void note(std::span<const ops::ChainLink> chain) override {
    const ChainShape shape = shape_of(chain);
    if (chain_block(shape) == 0) return;
    kernels_.want(shape, chain_name(shape), [&] { return chain_source(shape); });
  }

  bool run(std::span<const ops::ChainLink> chain, ops::Stream& stream) override {
    const int64_t rows = ops::link_rows(chain.front());
    if (rows == 0 || rows > max_rows_) return false;
    const ChainShape shape = shape_of(chain);
    void* const code = kernels_.code_of(shape);
    if (code == nullptr) return false;
    std::vector<LinkParams> params;
    for (const ops::ChainLink& link : chain) {
      const auto of_link = std::visit([](const auto& args) { return params_of(args); }, link);
      if (!of_link) return false;
      params.push_back(*of_link);
    }
    std::vector<void*> addresses;
    for (LinkParams& one : params)
      addresses.push_back(std::visit([](auto& value) -> void* { return &value; }, one));
    launch_compiled(code,
                    {.grid = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(chain.size())),
                     .block = chain_block(shape)},
                    stream, addresses.data());
    return true;
  }

 private:
  const int64_t max_rows_;
  CompiledKernels<ChainShape> kernels_;
};

}  // namespace

ops::ChainRunner* fuse_chains(int64_t max_rows) {
  // Never destroyed: streams may outlive whoever asked for it.
  static FusedChains* latest = nullptr;
  const bool is_new = max_rows > 0 && (latest == nullptr || latest->max_rows() != max_rows);
  if (is_new) latest = new FusedChains(max_rows);
  ops::ChainRunner* const runner = max_rows > 0 ? latest : nullptr;
  ops::set_chain_runner(runner);
  return runner;
}

}  // namespace fathom::cuda
