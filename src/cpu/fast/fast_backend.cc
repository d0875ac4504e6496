#include "cpu/fast/fast_backend.h"

#include <string>

#include "base/check.h"
#include "cpu/fast/cpu_topology.h"
#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/reference_backend.h"

namespace fathom::cpu {

namespace {

template <Isa kIsa>
std::unique_ptr<ops::Stream> make_stream(const ops::StreamConfig& config) {
  return std::make_unique<FastStream>(fast_backend(kIsa), config.num_threads, kIsa);
}

std::string describe(Isa isa) {
  const int cores = num_physical_cores();
  return std::string(isa_name(isa)) + " CPU, " + std::to_string(cores) +
         (cores == 1 ? " core" : " cores");
}

// What stays with the reference is a few table lookups per token: nothing to gain.
template <Isa kIsa>
ops::Backend make_backend() {
  static const std::string device = describe(kIsa);
  ops::Backend backend = reference_backend();
  backend.name = "cpu";
  backend.device = device;
  backend.make_stream = make_stream<kIsa>;
  backend.embedding = {fast::embedding};
  backend.gather_rows = {fast::gather_rows};
  backend.rms_norm = {fast::rms_norm};
  backend.linear = {fast::linear, fast::linear_scratch};
  backend.head_linear = {fast::head_linear, fast::head_linear_scratch};
  backend.rope = {fast::rope};
  backend.kv_append = {fast::kv_append, fast::kv_append_scratch};
  backend.kv_gather = {fast::kv_gather};
  backend.mla_absorbed = {fast::mla_absorbed, fast::mla_absorbed_scratch};
  backend.mla_expanded = {fast::mla_expanded, fast::mla_expanded_scratch};
  backend.mla_finish = {fast::mla_finish};
  backend.silu_mul = {fast::silu_mul};
  backend.moe_gate = {fast::moe_gate, fast::moe_gate_scratch};
  backend.moe_experts = {fast::moe_experts, fast::moe_experts_scratch};
  backend.quantize_fp8 = {fast::quantize_fp8};
  backend.sample = {fast::sample, fast::sample_scratch};
  return backend;
}

template <Isa kIsa>
const ops::Backend& backend_of() {
  static const ops::Backend backend = make_backend<kIsa>();
  return backend;
}

}  // namespace

const ops::Backend& fast_backend(Isa isa) {
  FATHOM_CHECK(isa_supported(isa), "instruction set " << isa_name(isa) << " is not supported");
  switch (isa) {
    case Isa::kAvx512:
      return backend_of<Isa::kAvx512>();
    case Isa::kAvx2:
      return backend_of<Isa::kAvx2>();
    case Isa::kPortable:
      break;
  }
  return backend_of<Isa::kPortable>();
}

const ops::Backend& fast_backend() { return fast_backend(effective_isa()); }

}  // namespace fathom::cpu
