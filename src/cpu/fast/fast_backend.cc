#include "cpu/fast/fast_backend.h"

#include <string>

#include "base/check.h"
#include "cpu/fast/bandwidth.h"
#include "cpu/fast/cpu_topology.h"
#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/reference/reference_backend.h"
#include "ops/parts_only.h"

namespace fathom::cpu {

namespace {

enum class Attention { kFast, kGeneric };

template <Isa kIsa, Attention kAttention>
const ops::Backend& backend_of();

template <Isa kIsa, Attention kAttention>
std::unique_ptr<ops::Stream> make_stream(const ops::StreamConfig& config) {
  return std::make_unique<FastStream>(backend_of<kIsa, kAttention>(), config.num_threads, kIsa);
}

std::string describe(Isa isa) {
  const int cores = num_physical_cores();
  return std::string(isa_name(isa)) + " CPU, " + std::to_string(cores) +
         (cores == 1 ? " core" : " cores");
}

// Its rows need no plan.
void take_generic_attention(ops::Backend& backend) {
  const ops::Backend& reference = reference_backend();
  backend.mla_absorbed = reference.mla_absorbed;
  backend.mla_sparse = reference.mla_sparse;
  backend.mla_expanded = reference.mla_expanded;
  backend.mla_plan = {};
  backend.mla_plan_bytes = nullptr;
}

template <Isa kIsa, Attention kAttention>
ops::Backend make_backend() {
  static const std::string device = describe(kIsa);
  // What has no line below runs as on the reference: a few table lookups or copies per token, or not for speed. Fused
  // operators do not, which would be slower there than their parts here.
  ops::Backend backend = ops::parts_only(reference_backend());
  backend.name = "cpu";
  backend.device = device;
  backend.read_bandwidth_gb_s = measure_read_bandwidth_gb_s;
  backend.make_stream = make_stream<kIsa, kAttention>;
  backend.embedding = {fast::embedding};
  backend.gather_rows = {fast::gather_rows};
  backend.add_rows = {fast::add_rows};
  backend.rms_norm = {fast::rms_norm};
  backend.linear = {fast::linear, fast::linear_scratch};
  backend.head_linear = {fast::head_linear, fast::head_linear_scratch};
  backend.rope = {fast::rope};
  backend.kv_append = {fast::kv_append, fast::kv_append_scratch};
  backend.kv_gather = {fast::kv_gather};
  backend.mla_absorbed = {fast::mla_absorbed, fast::mla_absorbed_scratch};
  backend.mla_expanded = {fast::mla_expanded, fast::mla_expanded_scratch};
  backend.silu_mul = {fast::silu_mul};
  backend.moe_gate = {fast::moe_gate, fast::moe_gate_scratch};
  backend.moe_experts = {fast::moe_experts, fast::moe_experts_scratch};
  backend.quantize_fp8 = {fast::quantize_fp8};
  backend.sample = {fast::sample, fast::sample_scratch};
  backend.top_k = {fast::top_k};
  backend.index_append = {fast::index_append, fast::index_append_scratch};
  backend.index_query = {fast::index_query, fast::index_query_scratch};
  backend.index_scores = {fast::index_scores, fast::index_scores_scratch};
  backend.top_rows = {fast::top_rows, fast::top_rows_scratch};
  backend.mla_sparse = {fast::mla_sparse, fast::mla_sparse_scratch};
  // Of the fused operators those that save work here. The kernels widen what they read, so rows quantised
  // ahead would be widened again.
  backend.linear_pair = {fast::linear_pair, fast::linear_pair_scratch};
  backend.index_append_query = {.run = fast::index_append_query,
                                .scratch_bytes = fast::index_append_query_scratch,
                                .takes = fast::takes_index_append_query};
  backend.mla_plan = {fast::mla_plan};
  backend.mla_plan_bytes = fast::mla_plan_bytes;
  if (kAttention == Attention::kGeneric) take_generic_attention(backend);
  return backend;
}

template <Isa kIsa, Attention kAttention>
const ops::Backend& backend_of() {
  static const ops::Backend backend = make_backend<kIsa, kAttention>();
  return backend;
}

template <Attention kAttention>
const ops::Backend& backend_for(Isa isa) {
  FATHOM_CHECK(isa_supported(isa), "instruction set " << isa_name(isa) << " is not supported");
  switch (isa) {
    case Isa::kAmx:
      return backend_of<Isa::kAmx, kAttention>();
    case Isa::kAvx512Bf16:
      return backend_of<Isa::kAvx512Bf16, kAttention>();
    case Isa::kAvx512:
      return backend_of<Isa::kAvx512, kAttention>();
    case Isa::kAvx2:
      return backend_of<Isa::kAvx2, kAttention>();
    case Isa::kPortable:
      break;
  }
  return backend_of<Isa::kPortable, kAttention>();
}

}  // namespace

const ops::Backend& fast_backend(Isa isa) { return backend_for<Attention::kFast>(isa); }

const ops::Backend& fast_backend() { return fast_backend(effective_isa()); }

const ops::Backend& generic_attention_backend() {
  return backend_for<Attention::kGeneric>(effective_isa());
}

}  // namespace fathom::cpu
