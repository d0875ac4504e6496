#include "cpu/sample_row.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "base/token_mask.h"

namespace fathom::cpu {
namespace {

constexpr int32_t kCountBits = 0x7fffffff;

}  // namespace

SampleRow::SampleRow(const ops::SampleArgs& args, int64_t row)
    : args_(args), row_(row), slot_(of_row(args.slot)) {
  FATHOM_CHECK(slot_ >= -1 && slot_ < args.slots.seed.dim(0),
               "slot[" << row << "] is " << slot_ << " of " << args.slots.seed.dim(0));
}

int32_t SampleRow::penalty_row() const {
  return forced() >= 0 ? -1 : of_slot<int32_t>(args_.slots.penalty_row, -1);
}

SampleRow::Biases SampleRow::biases() const {
  if (slot_ < 0 || forced() >= 0) return {};
  const ops::SamplingSlots& slots = args_.slots;
  const bool has_bans = of_row(args_.position) < *slots.ban_until.row<int32_t>(slot_);
  return {.begin = *slots.bias_start.row<int32_t>(slot_),
          .end = *(has_bans ? slots.ban_end : slots.ban_start).row<int32_t>(slot_)};
}

int64_t SampleRow::top_k() const {
  const int32_t k = top_k_given();
  return k > 0 ? std::min<int64_t>(k, vocab_size()) : vocab_size();
}

uint64_t SampleRow::bits() const {
  const auto position = static_cast<uint64_t>(of_row(args_.position));
  return random_bits(philox(of_slot<uint64_t>(args_.slots.seed, 0), 0, position));
}

bool SampleRow::is_allowed(int64_t id) const {
  return args_.mask.is_null() || mask_allows(args_.mask.row<uint64_t>(row_), id);
}

// A batch with one masked row has a mask for each; those of the others allow everything.
bool SampleRow::allows_all() const {
  if (args_.mask.is_null()) return true;
  const uint64_t* const words = args_.mask.row<uint64_t>(row_);
  const int64_t num_whole = vocab_size() / kMaskWordTokens;
  const uint64_t rest = (uint64_t{1} << (vocab_size() % kMaskWordTokens)) - 1;
  return (rest == 0 || (words[num_whole] & rest) == rest) &&
         std::all_of(words, words + num_whole, [](uint64_t word) { return ~word == 0; });
}

bool SampleRow::is_plain() const {
  const Biases all = biases();
  return penalty_row() < 0 && all.begin == all.end && allows_all();
}

void SampleRow::add_penalties(float* adjusted) const {
  if (penalty_row() < 0) return;
  const ops::SamplingSlots& slots = args_.slots;
  const int32_t* counts = slots.counts.row<int32_t>(penalty_row());
  const auto repetition = of_slot<float>(slots.repetition, 1);
  const auto frequency = of_slot<float>(slots.frequency, 0);
  const auto presence = of_slot<float>(slots.presence, 0);
  const auto penalise = [&](int64_t id, int32_t seen) {
    float& logit = adjusted[id];
    logit = logit > 0 ? logit / repetition : logit * repetition;
    const int32_t times = seen & kCountBits;
    logit = logit - frequency * static_cast<float>(times) - (times > 0 ? presence : 0.0f);
  };
  const std::span<const int32_t> on_path = path();
  for (int64_t id = 0; id < vocab_size(); ++id)
    if (counts[id] != 0) penalise(id, counts[id]);
  for (size_t i = 0; i < on_path.size(); ++i) {
    const int32_t id = on_path[i];
    FATHOM_CHECK(id < vocab_size(), "path has " << id << " of " << vocab_size());
    if (std::find(on_path.begin(), on_path.begin() + static_cast<int64_t>(i), id) !=
        on_path.begin() + static_cast<int64_t>(i))
      continue;
    adjusted[id] = logits()[id];
    penalise(id, counts[id] + static_cast<int32_t>(std::count(on_path.begin(), on_path.end(), id)));
  }
}

std::span<const int32_t> SampleRow::path() const {
  if (args_.paths.is_null()) return {};
  const int32_t* const begin = args_.paths.row<int32_t>(row_);
  return {begin, std::find(begin, begin + args_.paths.dim(1), -1)};
}

void SampleRow::adjust(float* adjusted) const {
  std::copy_n(logits(), vocab_size(), adjusted);
  add_penalties(adjusted);
  const Biases all = biases();
  for (int32_t i = all.begin; i < all.end; ++i) {
    const int32_t id = *args_.slots.bias_ids.row<int32_t>(i);
    FATHOM_CHECK(id >= 0 && id < vocab_size(),
                 "bias_ids[" << i << "] is " << id << " of " << vocab_size());
    adjusted[id] += *args_.slots.bias_values.row<float>(i);
  }
  if (allows_all()) return;
  const uint64_t* const words = args_.mask.row<uint64_t>(row_);
  for (int64_t begin = 0; begin < vocab_size(); begin += kMaskWordTokens) {
    const int64_t end = std::min(begin + kMaskWordTokens, vocab_size());
    if (words[begin / kMaskWordTokens] == ~uint64_t{0}) continue;
    for (int64_t id = begin; id < end; ++id)
      if (!is_allowed(id)) adjusted[id] = -HUGE_VALF;
  }
}

bool SampleRow::mask_explains_minus_infinity() const {
  const float* const values = logits();
  for (int64_t id = 0; id < vocab_size(); ++id)
    if (values[id] == -HUGE_VALF && is_allowed(id)) return false;
  return true;
}

int64_t SampleRow::num_top() const {
  return std::clamp<int64_t>(of_slot<int32_t>(args_.slots.num_top, 0), 0, args_.top_ids.dim(1));
}

void SampleRow::write(int64_t token, float logprob) const {
  const int64_t max_top = args_.top_ids.dim(1);
  std::fill_n(top_ids(), max_top, -1);
  std::fill_n(top_logprobs(), max_top, 0.0f);
  *args_.tokens.row<int32_t>(row_) = static_cast<int32_t>(token);
  *args_.logprobs.row<float>(row_) = logprob;
  *args_.failed.row<uint8_t>(row_) = 0;
}

void SampleRow::write_failure(uint8_t failed) const {
  write(-1, 0);
  *args_.failed.row<uint8_t>(row_) = failed;
}

}  // namespace fathom::cpu
