#include "apps/bench_ops/cases.h"

namespace fathom::apps {

std::vector<OpCase> all_op_cases(const OpShapes& shapes) {
  std::vector<OpCase> cases;
  for (const auto& family :
       {linear_cases, row_cases, cache_cases, attention_cases, moe_cases, sample_cases}) {
    for (OpCase& bench_case : family(shapes)) cases.push_back(std::move(bench_case));
  }
  return cases;
}

const std::vector<std::string>& benched_operators() {
  static const std::vector<std::string> operators = {"linear",
                                                     "linear_pair",
                                                     "head_linear",
                                                     "embedding",
                                                     "gather_rows",
                                                     "rms_norm",
                                                     "rms_norm_quantize",
                                                     "silu_mul",
                                                     "silu_mul_quantize",
                                                     "quantize_fp8",
                                                     "rope",
                                                     "kv_append",
                                                     "kv_gather",
                                                     "mla_absorbed",
                                                     "mla_expanded",
                                                     "moe_gate",
                                                     "moe_experts",
                                                     "moe_experts_shared",
                                                     "sample"};
  return operators;
}

}  // namespace fathom::apps
