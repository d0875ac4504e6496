#include "ops/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "cpu/reference/ops.h"

namespace fathom::cpu::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint8_t kNonFinite = 1, kNothingLeft = 2;
constexpr int32_t kCountBits = 0x7fffffff;

// A token and its logit after penalties, bias and mask. The array is indexed by token until it is
// sorted.
struct Candidate {
  float logit;
  int32_t id;
};

bool is_better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// One value per row of a parameter.
template <class T>
T at(const tensor::Tensor& parameter, int64_t row) {
  return *parameter.row<T>(row);
}

bool is_allowed(const ops::SampleArgs& args, int64_t row, int64_t id) {
  return args.mask.is_null() || ((args.mask.row<uint64_t>(row)[id / 64] >> (id % 64)) & 1) != 0;
}

bool has_non_finite(const ops::SampleArgs& args, int64_t row) {
  const float* logits = args.logits.row<float>(row);
  for (int64_t id = 0; id < args.logits.dim(1); ++id) {
    if (std::isfinite(logits[id])) continue;
    if (logits[id] == -kInfinity && !is_allowed(args, row, id)) continue;
    return true;
  }
  return false;
}

// log(sum(exp(logits))): the sum in double, because it has as many terms as the vocabulary.
float log_sum_exp(const float* logits, int64_t n) {
  const float max = *std::max_element(logits, logits + n);
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(std::exp(logits[i] - max));
  return max + static_cast<float>(std::log(total));
}

// The num_top largest log-probabilities, kept sorted while the row is read once.
void write_top(const ops::SampleArgs& args, int64_t row, float log_total) {
  const float* logits = args.logits.row<float>(row);
  int32_t* ids = args.top_ids.row<int32_t>(row);
  float* logprobs = args.top_logprobs.row<float>(row);
  const int64_t wanted = std::min<int64_t>(at<int32_t>(args.num_top, row), args.top_ids.dim(1));
  int64_t count = 0;
  for (int64_t id = 0; id < args.logits.dim(1) && wanted > 0; ++id) {
    const float logprob = logits[id] - log_total;
    if (count == wanted && logprob <= logprobs[count - 1]) continue;
    if (count < wanted) ++count;
    int64_t place = count - 1;
    for (; place > 0 && logprobs[place - 1] < logprob; --place) {
      logprobs[place] = logprobs[place - 1];
      ids[place] = ids[place - 1];
    }
    logprobs[place] = logprob;
    ids[place] = static_cast<int32_t>(id);
  }
}

// Steps 3 and 4: candidates[id] = the logit after penalties, bias, bans and mask.
void adjust(const ops::SampleArgs& args, int64_t row, Candidate* candidates) {
  const int64_t vocab_size = args.logits.dim(1);
  const float* logits = args.logits.row<float>(row);
  for (int64_t id = 0; id < vocab_size; ++id) {
    candidates[id] = {logits[id], static_cast<int32_t>(id)};
  }
  if (const auto penalty_row = at<int32_t>(args.penalty_row, row); penalty_row >= 0) {
    const int32_t* counts = args.counts.row<int32_t>(penalty_row);
    const auto repetition = at<float>(args.repetition, row);
    const auto frequency = at<float>(args.frequency, row);
    const auto presence = at<float>(args.presence, row);
    for (int64_t id = 0; id < vocab_size; ++id) {
      if (counts[id] == 0) continue;
      float& logit = candidates[id].logit;
      logit = logit > 0 ? logit / repetition : logit * repetition;
      const int32_t times = counts[id] & kCountBits;
      logit = logit - frequency * static_cast<float>(times) - (times > 0 ? presence : 0.0f);
    }
  }
  for (int32_t i = at<int32_t>(args.bias_start, row); i < at<int32_t>(args.bias_start, row + 1);
       ++i) {
    const auto id = at<int32_t>(args.bias_ids, i);
    FATHOM_CHECK(id >= 0 && id < vocab_size,
                 "bias_ids[" << i << "] is " << id << " of " << vocab_size);
    candidates[id].logit += at<float>(args.bias_values, i);
  }
  for (int64_t id = 0; id < vocab_size; ++id) {
    if (!is_allowed(args, row, id)) candidates[id].logit = -kInfinity;
  }
}

// Draws by falling probability. Candidates are taken from a heap one by one, because top_p and the
// draw usually end after a few of a large vocabulary; what was taken lies, best first, at the end
// of the array going backwards.
class Draw {
 public:
  Draw(const ops::SampleArgs& args, int64_t row, Candidate* candidates, float max)
      : candidates_(candidates),
        vocab_size_(args.logits.dim(1)),
        temperature_(at<float>(args.temperature, row)),
        max_(max),
        top_k_(at<int32_t>(args.top_k, row)),
        top_p_(at<float>(args.top_p, row)),
        min_p_(at<float>(args.min_p, row)) {}

  int32_t run(float u) {
    double total = 0;
    for (int64_t i = 0; i < vocab_size_; ++i) total += weight(candidates_[i]);
    std::make_heap(candidates_, candidates_ + vocab_size_, is_worse);
    const bool restricted = (top_k_ > 0 && top_k_ < vocab_size_) || top_p_ < 1 || min_p_ > 0;
    return pick(u * (restricted ? restrict_to_best(total) : total));
  }

 private:
  static bool is_worse(const Candidate& a, const Candidate& b) { return is_better(b, a); }

  // Probability relative to the best candidate's, so that min_p compares with it directly.
  double weight(const Candidate& c) const {
    return static_cast<double>(std::exp((c.logit - max_) / temperature_));
  }

  const Candidate& take_next() {
    std::pop_heap(candidates_, candidates_ + (vocab_size_ - taken_), is_worse);
    return candidates_[vocab_size_ - ++taken_];
  }

  // Takes what top_k, top_p and min_p leave and returns its weight.
  double restrict_to_best(double total) {
    const int64_t most = top_k_ > 0 ? std::min<int64_t>(top_k_, vocab_size_) : vocab_size_;
    double kept = weight(take_next());
    while (taken_ < most && kept < top_p_ * total) {
      const double next = weight(candidates_[0]);
      if (next < min_p_ || next == 0) break;
      kept += weight(take_next());
    }
    return kept;
  }

  // The first token whose running sum exceeds `target`.
  int32_t pick(double target) {
    const int64_t restricted_to = taken_ > 0 ? taken_ : vocab_size_;
    double running = 0;
    int32_t last = candidates_[taken_ > 0 ? vocab_size_ - 1 : 0].id;
    for (int64_t i = 0; i < restricted_to; ++i) {
      const Candidate& candidate = i < taken_ ? candidates_[vocab_size_ - 1 - i] : take_next();
      const double w = weight(candidate);
      if (w == 0) break;  // rounding left the running sum below the target
      running += w;
      last = candidate.id;
      if (running > target) break;
    }
    return last;
  }

  Candidate* candidates_;
  int64_t vocab_size_;
  float temperature_, max_;
  int32_t top_k_;
  float top_p_, min_p_;
  int64_t taken_ = 0;
};

struct Choice {
  int32_t token = -1;
  uint8_t failed = 0;
};

Choice choose(const ops::SampleArgs& args, int64_t row, Candidate* candidates) {
  const auto forced = at<int32_t>(args.forced, row);
  if (forced >= 0) return {.token = forced};
  adjust(args, row, candidates);
  const Candidate* best = std::min_element(candidates, candidates + args.logits.dim(1), is_better);
  if (best->logit == -kInfinity) return {.failed = kNothingLeft};
  if (!std::isfinite(best->logit)) return {.failed = kNonFinite};
  if (at<float>(args.temperature, row) == 0 || at<int32_t>(args.top_k, row) == 1) {
    return {.token = best->id};
  }
  const auto position = static_cast<uint64_t>(at<int32_t>(args.position, row));
  const float u = uniform(philox(at<uint64_t>(args.seed, row), 0, position)[0]);
  return {.token = Draw(args, row, candidates, best->logit).run(u)};
}

}  // namespace

int64_t sample_scratch(const ops::SampleArgs& args, const ops::Stream&) {
  return args.logits.dim(1) * static_cast<int64_t>(sizeof(Candidate));
}

void sample_row(const ops::SampleArgs& args, int64_t row, void* candidates) {
  const int64_t max_top = args.top_ids.dim(1), vocab_size = args.logits.dim(1);
  std::fill_n(args.top_ids.row<int32_t>(row), max_top, -1);
  std::fill_n(args.top_logprobs.row<float>(row), max_top, 0.0f);
  *args.logprobs.row<float>(row) = 0.0f;
  Choice choice{.failed = kNonFinite};
  if (!has_non_finite(args, row)) choice = choose(args, row, static_cast<Candidate*>(candidates));
  *args.tokens.row<int32_t>(row) = choice.token;
  *args.failed.row<uint8_t>(row) = choice.failed;
  if (choice.failed != 0) return;
  FATHOM_CHECK(choice.token < vocab_size, "forced[" << row << "] is " << choice.token);
  const float* logits = args.logits.row<float>(row);
  const float log_total = log_sum_exp(logits, vocab_size);
  *args.logprobs.row<float>(row) = logits[choice.token] - log_total;
  write_top(args, row, log_total);
}

void sample(const ops::SampleArgs& args, ops::Stream& stream) {
  void* candidates = stream.scratch();
  for (int64_t row = 0; row < args.logits.dim(0); ++row) sample_row(args, row, candidates);
}

}  // namespace fathom::cpu::reference
