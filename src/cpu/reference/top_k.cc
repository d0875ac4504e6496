#include "ops/top_k.h"

#include <algorithm>
#include <cmath>

#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "cpu/top_tokens.h"

namespace fathom::cpu::reference {

void top_k(const ops::TopKArgs& args, ops::Stream&) {
  const int64_t vocab_size = args.logits.dim(1), k = args.k();
  for (int64_t row = 0; row < args.logits.dim(0); ++row) {
    const float* const logits = args.logits.row<float>(row);
    int32_t* const ids = args.ids.row<int32_t>(row);
    float* const logprobs = args.logprobs.row<float>(row);
    std::fill_n(ids, k, -1);
    std::fill_n(logprobs, k, 0.0f);
    if (!std::all_of(logits, logits + vocab_size, [](float x) { return std::isfinite(x); }))
      continue;
    TopTokens top(logits, ids, k);
    top.add(0, vocab_size);
    top.write_logprobs(log_sum_exp(logits, vocab_size), logprobs);
  }
}

}  // namespace fathom::cpu::reference
