// The best tokens, one row per task: three vectorised passes over the row.
#include "ops/top_k.h"

#include <algorithm>

#include "cpu/fast/fast_stream.h"
#include "cpu/fast/logits_row.h"
#include "cpu/fast/ops.h"

namespace fathom::cpu::fast {

void top_k(const ops::TopKArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const KernelTable& kernels = stream.kernels();
  const int64_t rows = args.logits.dim(0), vocab_size = args.logits.dim(1), k = args.k();
  stream.run(rows, rows * vocab_size, [&](int64_t row, int) {
    const float* const logits = args.logits.row<float>(row);
    int32_t* const ids = args.ids.row<int32_t>(row);
    float* const logprobs = args.logprobs.row<float>(row);
    std::fill_n(ids, k, -1);
    std::fill_n(logprobs, k, 0.0f);
    const Range range = range_of(logits, vocab_size, kernels);
    if (!range.good || range.min == -HUGE_VALF) return;
    TopTokens top(logits, ids, k);
    add_all(top, logits, vocab_size, kernels);
    top.write_logprobs(log_sum_exp(logits, vocab_size, range.max, kernels), logprobs);
  });
}

}  // namespace fathom::cpu::fast
