#include "apps/bench_ops/cases.h"

namespace fathom::apps {

std::vector<OpCase> all_op_cases(const OpShapes& shapes) {
  std::vector<OpCase> cases;
  for (const auto& family : {linear_cases, row_cases, cache_cases, attention_cases, index_cases,
                             moe_cases, sample_cases, slot_cases, verify_cases, draft_cases}) {
    for (OpCase& bench_case : family(shapes)) cases.push_back(std::move(bench_case));
  }
  return cases;
}

const std::vector<std::string>& benched_operators() {
  static const std::vector<std::string> operators = {
      "linear",       "linear_pair",       "head_linear",   "embedding",
      "gather_rows",  "add_rows",          "rms_norm",      "rms_norm_quantize",
      "silu_mul",     "silu_mul_quantize", "quantize_fp8",  "rope_table",
      "rope",         "kv_append",         "kv_gather",     "mla_absorbed",
      "mla_expanded", "moe_gate",          "moe_experts",   "moe_experts_shared",
      "sample",       "step_inputs",       "commit_tokens", "write_words",
      "count_tokens", "draft_inputs",      "draft_rows",    "accept_drafts",
      "move_rows",    "grow_drafts",       "select_rows",   "index_append",
      "index_query",  "index_scores",      "top_rows",      "mla_sparse"};
  return operators;
}

}  // namespace fathom::apps
