#include "ops/backend.h"

#include <algorithm>
#include <array>

namespace fathom::ops {
namespace {

struct Entry {
  std::string_view op;
  bool (*is_provided)(const Backend&);
};

template <auto Member>
bool has(const Backend& backend) {
  return (backend.*Member).run != nullptr;
}

constexpr std::array kEntries = {
    Entry{"embedding", has<&Backend::embedding>},
    Entry{"gather_rows", has<&Backend::gather_rows>},
    Entry{"add_rows", has<&Backend::add_rows>},
    Entry{"rms_norm", has<&Backend::rms_norm>},
    Entry{"linear", has<&Backend::linear>},
    Entry{"head_linear", has<&Backend::head_linear>},
    Entry{"rope_table", has<&Backend::rope_table>},
    Entry{"rope", has<&Backend::rope>},
    Entry{"kv_append", has<&Backend::kv_append>},
    Entry{"kv_gather", has<&Backend::kv_gather>},
    Entry{"mla_absorbed", has<&Backend::mla_absorbed>},
    Entry{"mla_expanded", has<&Backend::mla_expanded>},
    Entry{"silu_mul", has<&Backend::silu_mul>},
    Entry{"moe_gate", has<&Backend::moe_gate>},
    Entry{"moe_experts", has<&Backend::moe_experts>},
    Entry{"quantize_fp8", has<&Backend::quantize_fp8>},
    Entry{"fill_from_table", has<&Backend::fill_from_table>},
    Entry{"rms_norm_quantize", has<&Backend::rms_norm_quantize>},
    Entry{"silu_mul_quantize", has<&Backend::silu_mul_quantize>},
    Entry{"linear_pair", has<&Backend::linear_pair>},
    Entry{"moe_experts_shared", has<&Backend::moe_experts_shared>},
    Entry{"mla_plan", has<&Backend::mla_plan>},
    Entry{"sample", has<&Backend::sample>},
    Entry{"step_inputs", has<&Backend::step_inputs>},
    Entry{"commit_tokens", has<&Backend::commit_tokens>},
    Entry{"write_words", has<&Backend::write_words>},
    Entry{"count_tokens", has<&Backend::count_tokens>},
    Entry{"draft_inputs", has<&Backend::draft_inputs>},
    Entry{"draft_rows", has<&Backend::draft_rows>},
    Entry{"accept_drafts", has<&Backend::accept_drafts>},
    Entry{"move_rows", has<&Backend::move_rows>},
    Entry{"grow_drafts", has<&Backend::grow_drafts>},
    Entry{"select_rows", has<&Backend::select_rows>},
    Entry{"index_append", has<&Backend::index_append>},
    Entry{"index_query", has<&Backend::index_query>},
    Entry{"index_scores", has<&Backend::index_scores>},
    Entry{"top_rows", has<&Backend::top_rows>},
    Entry{"mla_sparse", has<&Backend::mla_sparse>},
};

}  // namespace

bool provides(const Backend& backend, const Requirement& requirement) {
  const auto* entry = std::find_if(kEntries.begin(), kEntries.end(),
                                   [&](const Entry& e) { return e.op == requirement.op; });
  return entry != kEntries.end() && entry->is_provided(backend) && backend.supports != nullptr &&
         backend.supports(requirement.op, requirement.dtype);
}

const std::vector<FusedOperator>& fused_operators() {
  static const std::vector<FusedOperator> operators = {
      {"rms_norm_quantize", {"rms_norm", "quantize_fp8"}},
      {"silu_mul_quantize", {"silu_mul", "quantize_fp8"}},
      {"linear_pair", {"linear", "linear"}},
      {"moe_experts_shared", {"linear", "silu_mul", "linear", "moe_experts"}},
      {"mla_plan", {"mla_absorbed"}},
  };
  return operators;
}

std::vector<std::string> missing_operators(const Backend& backend,
                                           const std::vector<Requirement>& requirements) {
  std::vector<std::string> sentences;
  for (const Requirement& requirement : requirements) {
    if (provides(backend, requirement)) continue;
    sentences.push_back(
        std::string(backend.name) + " has no operator " + std::string(requirement.op) + " for " +
        std::string(tensor::dtype_name(requirement.dtype)) + " on " + std::string(backend.device));
  }
  return sentences;
}

}  // namespace fathom::ops
