// Sampling by the words of the contract: a row that is restricted is sorted, and sums run over the whole row.
#include "ops/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/vector_math.h"
#include "cpu/sample_row.h"
#include "cpu/stream.h"
#include "cpu/top_tokens.h"
#include "ops/sample_weight.h"

namespace fathom::cpu::reference {
namespace {

// Scratch of one row.
struct Workspace {
  float* adjusted;  // [vocab_size]
  float* weights;   // [vocab_size]
  int32_t* order;   // [vocab_size]
};

Workspace carve(const ops::SampleArgs& args, ScratchArena& arena) {
  const int64_t vocab_size = args.logits.dim(1);
  return {.adjusted = arena.take<float>(vocab_size),
          .weights = arena.take<float>(vocab_size),
          .order = arena.take<int32_t>(vocab_size)};
}

bool has_non_finite(const SampleRow& row) {
  const float* const logits = row.logits();
  return !std::all_of(logits, logits + row.vocab_size(), [](float x) { return x < HUGE_VALF; }) ||
         !row.mask_explains_minus_infinity();
}

uint64_t sum_of_shares(const float* weights, int64_t n) {
  uint64_t sum = 0;
  for (int64_t id = 0; id < n; ++id) sum += ops::sample_share(weights[id]);
  return sum;
}

// Sets the weights of what top_k, top_p and min_p drop to 0.
void restrict_weights(const SampleRow& row, const Workspace& space) {
  const int64_t vocab_size = row.vocab_size();
  const uint64_t total = sum_of_shares(space.weights, vocab_size);
  const uint64_t wanted = row.top_p() < 1 ? ops::sample_top_p_share(row.top_p(), total) : total;
  std::iota(space.order, space.order + vocab_size, 0);
  std::sort(space.order, space.order + vocab_size, [&](int32_t a, int32_t b) {
    const float x = space.adjusted[a], y = space.adjusted[b];
    return x > y || (x == y && a < b);
  });
  uint64_t sum = 0;
  for (int64_t i = 0; i < vocab_size; ++i) {
    float& weight = space.weights[space.order[i]];
    const bool kept = i == 0 || (i < row.top_k() && sum < wanted);
    sum += ops::sample_share(weight);
    if (!kept || weight < row.min_p()) weight = 0;
  }
}

int64_t draw(const SampleRow& row, float largest, const Workspace& space) {
  const int64_t vocab_size = row.vocab_size();
  const float factor = ops::sample_factor(row.temperature());
  for (int64_t id = 0; id < vocab_size; ++id)
    space.weights[id] = ops::sample_weight(space.adjusted[id], largest, factor);
  if (row.top_k() < vocab_size || row.top_p() < 1 || row.min_p() > 0) restrict_weights(row, space);
  const uint64_t target = scale_bits(row.bits(), sum_of_shares(space.weights, vocab_size));
  uint64_t running = 0;
  for (int64_t id = 0; id < vocab_size; ++id) {
    running += ops::sample_share(space.weights[id]);
    if (running > target) return id;
  }
  FATHOM_CHECK(false, "the draw passed the sum of weights, " << running);
  return -1;
}

struct Choice {
  int64_t token = -1;
  uint8_t failed = 0;
};

Choice choose(const SampleRow& row, const Workspace& space) {
  if (row.forced() >= 0) return {.token = row.forced()};
  row.adjust(space.adjusted);
  const float* const begin = space.adjusted;
  const float* const end = begin + row.vocab_size();
  if (!std::all_of(begin, end, [](float x) { return x < HUGE_VALF; }))
    return {.failed = SampleRow::kNonFinite};
  const float* const best = std::max_element(begin, end);
  if (*best == -HUGE_VALF) return {.failed = SampleRow::kNothingLeft};
  if (row.is_greedy()) return {.token = best - begin};
  return {.token = draw(row, *best, space)};
}

void sample_row(const SampleRow& row, const Workspace& space) {
  if (has_non_finite(row)) return row.write_failure(SampleRow::kNonFinite);
  const Choice choice = choose(row, space);
  if (choice.failed != 0) return row.write_failure(choice.failed);
  FATHOM_CHECK(choice.token < row.vocab_size(), "forced is " << choice.token);
  const float log_total = log_sum_exp(row.logits(), row.vocab_size());
  row.write(choice.token, row.logits()[choice.token] - log_total);
  TopTokens top(row.logits(), row.top_ids(), row.num_top());
  top.add(0, row.vocab_size());
  top.write_logprobs(log_total, row.top_logprobs());
}

}  // namespace

int64_t sample_scratch(const ops::SampleArgs& args, const ops::Stream&) {
  ScratchArena arena;
  carve(args, arena);
  return arena.bytes();
}

void sample(const ops::SampleArgs& args, ops::Stream& stream) {
  ScratchArena arena(stream.scratch());
  const Workspace space = carve(args, arena);
  for (int64_t row = 0; row < args.logits.dim(0); ++row) sample_row(SampleRow(args, row), space);
}

}  // namespace fathom::cpu::reference
