#include "cpu/top_tokens.h"

namespace fathom::cpu {

void TopTokens::add(int64_t begin, int64_t end) {
  for (int64_t id = begin; id < end; ++id) {
    const float logit = logits_[id];
    if (!would_take(logit)) continue;
    if (count_ < wanted_) ++count_;
    int64_t place = count_ - 1;
    for (; place > 0 && logits_[ids_[place - 1]] < logit; --place) ids_[place] = ids_[place - 1];
    ids_[place] = static_cast<int32_t>(id);
  }
}

void TopTokens::write_logprobs(float log_total, float* logprobs) const {
  for (int64_t i = 0; i < count_; ++i) logprobs[i] = logits_[ids_[i]] - log_total;
}

}  // namespace fathom::cpu
