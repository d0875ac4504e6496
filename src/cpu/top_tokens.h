#pragma once
// The best tokens of a row of logits: larger logits first, equal ones by the smaller id.
//
//   TopTokens top(logits, ids, /*wanted=*/5);
//   top.add(0, vocab_size);
//   top.write_logprobs(log_total, logprobs);       // of the top.count() that there are
//
// Views of the caller's memory. One thread at a time.

#include <cstdint>

namespace fathom::cpu {

class TopTokens {
 public:
  // ids: room for `wanted`.
  TopTokens(const float* logits, int32_t* ids, int64_t wanted)
      : logits_(logits), ids_(ids), wanted_(wanted) {}

  // Looks at tokens [begin, end). REQUIRES: behind those that were added.
  void add(int64_t begin, int64_t end);
  // Whether add() would take a token with this logit.
  bool would_take(float logit) const {
    return count_ < wanted_ || (wanted_ > 0 && logit > logits_[ids_[count_ - 1]]);
  }
  int64_t count() const { return count_; }
  // log_total: log(sum(exp(logits))).
  void write_logprobs(float log_total, float* logprobs) const;

 private:
  const float* logits_;
  int32_t* ids_;
  int64_t wanted_, count_ = 0;
};

}  // namespace fathom::cpu
