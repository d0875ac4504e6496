#pragma once
// Logits to tokens, one row per sampled position, in this order:
//   1 a non-finite logit (NaN, +inf; -inf only where masked) marks the row and ends its work
//   2 log-probabilities of the raw logits: log softmax
//   3 penalties: repetition over prompt and output tokens (logit > 0 ? / : *), then
//     - frequency * count - presence * (count > 0) over output tokens
//   4 bias, then bans (bias -inf) and mask
//   5 temperature 0 or top_k 1: the largest logit, ties by lower id
//     else each token gets a weight, its probability at this temperature relative to the largest (exact rule:
//     ops/sample_weight.h). In the order of falling logit, ties by lower id, top_k keeps the first k tokens;
//     top_p the shortest beginning whose weights sum to at least top_p times the sum of all weights (the token
//     that crosses it is in; at least one); of what both keep, min_p drops weights below min_p. Probabilities
//     are not renormalised between these.
//     The order need not be computed: what is kept is all tokens above one logit, the level, and the lowest
//     ids among those that equal it. Counting into a histogram finds both.
//   6 the draw, in order of id: the first kept token whose running sum exceeds floor(bits * sum / 2^64), bits =
//     random_bits(philox(seed, 0, position)) (base/rng.h)
//   Sums of weights are sums of the integers floor(weight * 2^40). They are exact, so blocks of any size in any
//   order give the same tokens on every backend. A token below 2^-40 of the best is never drawn.
//   A row where bans and mask leave no token fails too, and one that penalties make NaN or +inf (failed 1).
//
// SamplingSlots: how the requests of running slots sample. It lies on the device and changes when a request is admitted
// (write_words, count_tokens in ops/step.h).
//   temperature        f32[slots]
//   top_k              i32[slots]    <= 0 = all
//   top_p, min_p       f32[slots]
//   repetition, frequency, presence  f32[slots]
//   seed               u64[slots]
//   num_top            i32[slots]    how many top log-probabilities the rows want, <= max_top
//   penalty_row        i32[slots]    row of counts, -1 = no penalties
//   counts             i32[penalty_rows, vocab_size]   bits 0..30: times in the output, bit 31: in the prompt;
//                                    null when no slot has penalties
//   bias_start         i32[slots];  ban_start i32[slots]   biases are the entries [bias_start, ban_start),
//   ban_end            i32[slots]    bans [ban_start, ban_end)
//   ban_until          i32[slots]    bans hold for rows with a position below it
//   bias_ids           i32[entries]; bias_values f32[entries]; finite, or -inf = ban
//
// logits             f32[rows, vocab_size]   may be overwritten (scratch)
// slot               i32[rows]     -1 = padding: the largest logit, as a slot that asks for nothing
// position           i32[rows]     number of tokens before the one sampled; the counter of the draw
// paths              i32[rows, max_path]   tokens that a row with penalties counts as output once more each: drafts on
//                                  the way to it; -1 = the end. Null = none
// mask               u64[rows, ceil(vocab_size/64)]  bit set = allowed; null = all
// forced             i32[rows]     >= 0: report this token's log-probability instead of choosing (prompt
//                                  log-probabilities), whatever penalties, biases and bans say; -1 = choose
// tokens             i32[rows]     out; -1 for a failed row
// logprobs           f32[rows]     out, of the chosen (or forced) token; 0 for a failed row
// top_ids, top_logprobs  i32|f32[rows, max_top]   out, best first, ties by lower id; -1 and 0 past num_top
//                                  and in failed rows
// failed             u8[rows]      out, 1 = non-finite, 2 = every token banned or masked

#include "ops/backend.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct SamplingSlots {
  tensor::Tensor temperature, top_k, top_p, min_p, repetition, frequency, presence, seed, num_top;
  tensor::Tensor penalty_row, counts;
  tensor::Tensor bias_start, ban_start, ban_end, ban_until, bias_ids, bias_values;
};

struct SampleArgs {
  SamplingSlots slots;
  tensor::Tensor logits, slot, position, forced;
  tensor::Tensor mask{}, paths{};
  tensor::Tensor tokens, logprobs, top_ids, top_logprobs, failed;
};
void sample(const SampleArgs& args, Stream& stream);

}  // namespace fathom::ops
