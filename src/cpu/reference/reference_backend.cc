#include "cpu/reference/reference_backend.h"

#include "cpu/memory.h"
#include "cpu/reference/ops.h"
#include "cpu/stream.h"
#include "ops/kv_format.h"

namespace fathom::cpu {
namespace {

using tensor::DType;

bool supports(std::string_view op, DType dtype) {
  for (const std::string_view matrix : {"linear", "linear_pair", "head_linear", "moe_experts",
                                        "moe_experts_shared", "fill_from_table"}) {
    if (op == matrix)
      return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF8E4M3;
  }
  for (const std::string_view takes_bf16 :
       {"embedding", "rms_norm", "rms_norm_quantize", "moe_gate"}) {
    if (op == takes_bf16) return dtype == DType::kF32 || dtype == DType::kBf16;
  }
  for (const std::string_view of_cache : {"kv_append", "kv_gather", "mla_absorbed", "mla_sparse"}) {
    if (op == of_cache) return ops::KvFormat::is_known(dtype);
  }
  for (const std::string_view of_keys : {"index_append", "index_query", "index_scores"}) {
    if (op == of_keys) return dtype == DType::kF32 || dtype == DType::kF8E4M3;
  }
  return dtype == DType::kF32;
}

std::unique_ptr<ops::Stream> make_stream(const ops::StreamConfig&) {
  return std::make_unique<CpuStream>(reference_backend());
}

ops::Backend make_backend() {
  ops::Backend backend;
  backend.name = "cpu-reference";
  backend.device = "CPU, 1 thread";
  backend.allocate = allocate;
  backend.deallocate = deallocate;
  backend.allocate_host = allocate;
  backend.deallocate_host = deallocate;
  backend.free_memory_bytes = free_memory_bytes;
  backend.copy_to_device = copy_to_device;
  backend.copy_to_host = copy_to_host;
  backend.make_stream = make_stream;
  backend.act = DType::kF32;
  backend.supports = supports;
  backend.embedding = {reference::embedding};
  backend.gather_rows = {reference::gather_rows};
  backend.add_rows = {reference::add_rows};
  backend.rms_norm = {reference::rms_norm, reference::rms_norm_scratch};
  backend.linear = {reference::linear, reference::linear_scratch};
  backend.head_linear = {reference::head_linear, reference::head_linear_scratch};
  backend.rope_table = {reference::rope_table};
  backend.rope = {reference::rope};
  backend.kv_append = {reference::kv_append, reference::kv_append_scratch};
  backend.kv_gather = {reference::kv_gather, reference::kv_gather_scratch};
  backend.mla_absorbed = {reference::mla_absorbed, reference::mla_absorbed_scratch};
  backend.mla_expanded = {reference::mla_expanded, reference::mla_expanded_scratch};
  backend.silu_mul = {reference::silu_mul};
  backend.moe_gate = {reference::moe_gate, reference::moe_gate_scratch};
  backend.moe_experts = {reference::moe_experts, reference::moe_experts_scratch};
  backend.quantize_fp8 = {reference::quantize_fp8};
  backend.fill_from_table = {reference::fill_from_table};
  backend.rms_norm_quantize = {reference::rms_norm_quantize, reference::rms_norm_quantize_scratch};
  backend.silu_mul_quantize = {reference::silu_mul_quantize, reference::silu_mul_quantize_scratch};
  backend.linear_pair = {reference::linear_pair, reference::linear_pair_scratch};
  backend.moe_experts_shared = {reference::moe_experts_shared,
                                reference::moe_experts_shared_scratch};
  backend.sample = {reference::sample, reference::sample_scratch};
  backend.step_inputs = {reference::step_inputs};
  backend.commit_tokens = {reference::commit_tokens};
  backend.write_words = {reference::write_words};
  backend.count_tokens = {reference::count_tokens};
  backend.draft_inputs = {reference::draft_inputs};
  backend.draft_rows = {reference::draft_rows};
  backend.accept_drafts = {reference::accept_drafts};
  backend.move_rows = {reference::move_rows};
  backend.grow_drafts = {reference::grow_drafts};
  backend.select_rows = {reference::select_rows};
  backend.index_append = {reference::index_append, reference::index_append_scratch};
  backend.index_query = {reference::index_query, reference::index_query_scratch};
  backend.index_scores = {reference::index_scores, reference::index_scores_scratch};
  backend.top_rows = {reference::top_rows, reference::top_rows_scratch};
  backend.mla_sparse = {reference::mla_sparse, reference::mla_sparse_scratch};
  return backend;
}

}  // namespace

const ops::Backend& reference_backend() {
  static const ops::Backend backend = make_backend();
  return backend;
}

}  // namespace fathom::cpu
