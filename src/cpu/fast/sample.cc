// Sampling, one row per task. A row that only wants its largest logit is two vectorised passes over the
// logits; everything else is the reference's rule, one row per thread.
#include "ops/sample.h"

#include <algorithm>
#include <cmath>

#include "cpu/fast/fast_stream.h"
#include "cpu/fast/ops.h"
#include "cpu/reference/ops.h"

namespace fathom::cpu::fast {

namespace {

// A batch with one masked row has a mask for each; those of the others allow everything.
bool allows_all(const ops::SampleArgs& args, int64_t row) {
  if (args.mask.is_null()) return true;
  const uint64_t* const words = args.mask.row<uint64_t>(row);
  const int64_t vocab_size = args.logits.dim(1), num_whole = vocab_size / 64;
  const uint64_t rest = (uint64_t{1} << (vocab_size % 64)) - 1;
  return (rest == 0 || (words[num_whole] & rest) == rest) &&
         std::all_of(words, words + num_whole, [](uint64_t word) { return ~word == 0; });
}

// Whether the row's token is the largest raw logit and nothing but its log-probability is wanted.
bool is_plain_greedy(const ops::SampleArgs& args, int64_t row) {
  const auto int_at = [row](const tensor::Tensor& t, int64_t i = 0) {
    return *t.row<int32_t>(row + i);
  };
  return (*args.temperature.row<float>(row) == 0 || int_at(args.top_k) == 1) &&
         int_at(args.penalty_row) < 0 && int_at(args.bias_start) == int_at(args.bias_start, 1) &&
         int_at(args.num_top) <= 0 && int_at(args.forced) < 0 && allows_all(args, row);
}

// False when a logit is not finite; nothing has been written then.
bool sample_greedy(const ops::SampleArgs& args, int64_t row, const KernelTable& kernels) {
  const int64_t vocab_size = args.logits.dim(1), max_top = args.top_ids.dim(1);
  const float* const logits = args.logits.row<float>(row);
  float max = 0;
  if (!kernels.max_row(logits, vocab_size, &max)) return false;
  const float sum = kernels.sum_exp_row(logits, max, 1.0f, vocab_size);
  // -inf is not finite either. It weighs nothing, so it can hide only from the maximum.
  if (std::find(logits, logits + vocab_size, -HUGE_VALF) != logits + vocab_size) return false;
  *args.tokens.row<int32_t>(row) =
      static_cast<int32_t>(std::find(logits, logits + vocab_size, max) - logits);
  // logits[token] - log(sum of exponentials), where the logit is the maximum itself.
  *args.logprobs.row<float>(row) = max - (max + std::log(sum));
  *args.failed.row<uint8_t>(row) = 0;
  std::fill_n(args.top_ids.row<int32_t>(row), max_top, -1);
  std::fill_n(args.top_logprobs.row<float>(row), max_top, 0.0f);
  return true;
}

}  // namespace

int64_t sample_scratch(const ops::SampleArgs& args, const ops::Stream& stream) {
  return fast_stream(stream).num_threads() * reference::sample_scratch(args, stream);
}

void sample(const ops::SampleArgs& args, ops::Stream& ops_stream) {
  FastStream& stream = fast_stream(ops_stream);
  const int64_t rows = args.logits.dim(0), bytes = reference::sample_scratch(args, stream);
  auto* const scratch = static_cast<char*>(stream.scratch());
  stream.run(rows, rows * args.logits.dim(1), [&](int64_t row, int worker) {
    if (is_plain_greedy(args, row) && sample_greedy(args, row, stream.kernels())) return;
    reference::sample_row(args, row, scratch + worker * bytes);
  });
}

}  // namespace fathom::cpu::fast
