#include "ops/sample.h"

#include <utility>

#include "base/token_mask.h"
#include "ops/boundary.h"

namespace fathom::ops {

using tensor::Dim, tensor::DType, tensor::expect, tensor::expect_or_null;

namespace {

// One value per slot.
void expect_slots(const SamplingSlots& p) {
  Dim slots("slots"), biases("biases");
  for (const auto& [name, array] : {std::pair{"temperature", &p.temperature},
                                    {"top_p", &p.top_p},
                                    {"min_p", &p.min_p},
                                    {"repetition", &p.repetition},
                                    {"frequency", &p.frequency},
                                    {"presence", &p.presence}})
    expect(name, *array, DType::kF32, {&slots});
  for (const auto& [name, array] : {std::pair{"top_k", &p.top_k},
                                    {"num_top", &p.num_top},
                                    {"penalty_row", &p.penalty_row},
                                    {"bias_start", &p.bias_start},
                                    {"ban_start", &p.ban_start},
                                    {"ban_end", &p.ban_end},
                                    {"ban_until", &p.ban_until}})
    expect(name, *array, DType::kI32, {&slots});
  expect("seed", p.seed, DType::kU64, {&slots});
  expect("bias_ids", p.bias_ids, DType::kI32, {&biases});
  expect("bias_values", p.bias_values, DType::kF32, {&biases});
}

}  // namespace

void sample(const SampleArgs& args, Stream& stream) {
  Dim rows("rows"), vocab_size("vocab_size"), penalty_rows("penalty_rows");
  expect("logits", args.logits, DType::kF32, {&rows, &vocab_size});
  expect_slots(args.slots);
  Dim max_top("max_top"), max_path("max_path");
  Dim mask_words("ceil(vocab_size / 64)", num_mask_words(vocab_size.value()));
  expect_or_null("counts", args.slots.counts, DType::kI32, {&penalty_rows, &vocab_size});
  expect("slot", args.slot, DType::kI32, {&rows});
  expect("position", args.position, DType::kI32, {&rows});
  expect("forced", args.forced, DType::kI32, {&rows});
  expect_or_null("paths", args.paths, DType::kI32, {&rows, &max_path});
  expect_or_null("mask", args.mask, DType::kU64, {&rows, &mask_words});
  expect("tokens", args.tokens, DType::kI32, {&rows});
  expect("logprobs", args.logprobs, DType::kF32, {&rows});
  expect("top_ids", args.top_ids, DType::kI32, {&rows, &max_top});
  expect("top_logprobs", args.top_logprobs, DType::kF32, {&rows, &max_top});
  expect("failed", args.failed, DType::kU8, {&rows});
  expect_contiguous("counts", args.slots.counts);
  expect_contiguous("paths", args.paths);
  expect_contiguous("mask", args.mask);
  expect_contiguous("top_ids", args.top_ids);
  expect_contiguous("top_logprobs", args.top_logprobs);
  dispatch("sample", stream.backend().act, stream.backend().sample, args, stream);
}

}  // namespace fathom::ops
