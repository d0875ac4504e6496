// Absorbed attention over rows of any size and format: one block for a head of a query token, cache rows 128 at a
// time. For small and odd models and for caches in float32; every row of the cache is read by each head.
//
// Grid: tokens x heads. Shared memory: the query and the weighted values as float32, 3 KB a head of 512 + 64.

#include "cuda/attention/absorbed_any.cuh"
#include "cuda/attention/absorbed_source.h"
#include "cuda/attention/choice.h"
#include "cuda/attention/mla_absorbed.h"
#include "cuda/attention/ops.h"
#include "cuda/jit/compiled_kernels.h"
#include "cuda/jit/launch_compiled.h"

namespace fathom::cuda {
namespace {

template <class Latent>
__global__ void __launch_bounds__(kAnyThreads)
    absorbed_kernel(const __grid_constant__ AbsorbedParams p) {
  extern __shared__ float shared[];
  __shared__ AnyTile tile;
  let_next_start();
  attend_any<Latent, false>(p, shared, tile);
}

AbsorbedSizes sizes_of(const ops::MlaAbsorbedArgs& args) {
  return {.format = args.cache.format,
          .heads = args.out.dim(1),
          .block_tokens = args.cache.block_tokens()};
}

CompiledKernels<AbsorbedSizes>& compiled() {
  static CompiledKernels<AbsorbedSizes> kernels;
  return kernels;
}

bool is_aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

void generic_absorbed(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  AbsorbedParams p = absorbed_params(args);
  p.group_tokens = 1;
  p.head_groups = p.heads;
  const int shared = (2 * p.cache.latent_dim + p.cache.rope_dim) * int{sizeof(float)};
  const LaunchShape shape{.grid = static_cast<unsigned>(args.out.dim(0) * args.out.dim(1)),
                          .block = kAnyThreads,
                          .shared_bytes = shared};
  void* const code = compiled().code_of(sizes_of(args));
  if (code != nullptr && is_aligned(p.cache.data, 16)) {
    void* parameters[] = {&p};
    return launch_compiled(code, shape, stream, parameters);
  }
  with_cache_type(args.cache.format.latent,
                  [&]<class Latent>(Latent) { launch(absorbed_kernel<Latent>, shape, stream, p); });
}

bool is_tuned(const ops::MlaAbsorbedArgs& args) {
  return takes_tuned_attention() && absorbed::can_run(args);
}

}  // namespace

AbsorbedParams absorbed_params(const ops::MlaAbsorbedArgs& args) {
  AbsorbedParams p{};
  p.q_latent = args.q_latent.as<Bf16>();
  p.q_rope = args.q_rope.as<Bf16>();
  p.q_rope_token_stride = args.q_rope.stride(0);
  p.q_rope_head_stride = args.q_rope.stride(1);
  p.q_rope_is_aligned =
      is_aligned(p.q_rope, 16) && p.q_rope_token_stride % 8 == 0 && p.q_rope_head_stride % 8 == 0;
  p.cache = kv_layout(args.cache);
  p.block_tables = args.block_tables.as<int32_t>();
  p.table_stride = args.block_tables.stride(0);
  p.block_tokens = static_cast<int>(args.cache.block_tokens());
  p.query_start = args.query_start.is_null() ? nullptr : args.query_start.as<int32_t>();
  p.kv_len = args.kv_len.as<int32_t>();
  p.tree_mask = args.tree_mask.is_null() ? nullptr : args.tree_mask.as<uint64_t>();
  p.tokens = static_cast<int>(args.out.dim(0));
  p.seqs = static_cast<int>(args.kv_len.dim(0));
  p.heads = static_cast<int>(args.out.dim(1));
  p.scale = args.scale * kLog2E;
  p.out = args.out.as<Bf16>();
  return p;
}

int64_t mla_absorbed_scratch(const ops::MlaAbsorbedArgs& args, const ops::Stream& stream) {
  if (is_tuned(args)) return absorbed::scratch_bytes(args, stream);
  // Steps are measured before the first one runs.
  if (stream.is_measuring()) {
    const AbsorbedSizes sizes = sizes_of(args);
    compiled().want(sizes, absorbed_name(sizes), [&] { return absorbed_source(sizes); });
  }
  return 0;
}

void mla_absorbed(const ops::MlaAbsorbedArgs& args, ops::Stream& stream) {
  is_tuned(args) ? absorbed::run(args, stream) : generic_absorbed(args, stream);
}

}  // namespace fathom::cuda
