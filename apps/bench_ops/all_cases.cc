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

}  // namespace fathom::apps
