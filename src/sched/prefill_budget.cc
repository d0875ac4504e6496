#include "sched/prefill_budget.h"

#include <algorithm>
#include <bit>

namespace fathom::sched {
namespace {

// With less of the time left nobody begins: a chunk of a few tokens costs nearly a step of its own.
constexpr double kSpent = 0.05;
// Rounding takes at most this part of a chunk.
constexpr int kRoundedPart = 8;

}  // namespace

void PrefillBudget::start(const Step& step) {
  step_ = step;
  tokens_left_ = step.num_tokens;
  long_tokens_left_ = std::max(1, step.num_tokens / 2);
  cut_by_time_ = false;
  for (size_t lane = 0; lane < lanes_.size(); ++lane)
    set_lane_seconds(static_cast<int>(lane), step.seconds);
}

void PrefillBudget::set_lane_seconds(int lane, double seconds) {
  time_of(lane) = {.limit = seconds, .left = seconds, .long_left = seconds / 2};
}

bool PrefillBudget::is_spent(int lane) const {
  const LaneTime& time = lanes_[static_cast<size_t>(lane)];
  return tokens_left_ == 0 || (is_timed() && time.has_advanced && time.left < kSpent * time.limit);
}

bool PrefillBudget::is_spent() const {
  for (size_t lane = 0; lane < lanes_.size(); ++lane)
    if (!is_spent(static_cast<int>(lane))) return false;
  return true;
}

double PrefillBudget::seconds_of(int first_position, int num_tokens) const {
  return is_timed() ? step_.cost->prompt_seconds(slice_work_(num_tokens, first_position)) : 0;
}

int PrefillBudget::fitting(int first_position, int num_tokens, double seconds) const {
  if (!is_timed() || seconds_of(first_position, num_tokens) <= seconds) return num_tokens;
  // More tokens take longer, but for the change between two forms of attention; then this may be fewer than fit.
  int fits = 0, too_many = num_tokens;
  while (too_many - fits > 1) {
    const int middle = fits + (too_many - fits) / 2;
    (seconds_of(first_position, middle) <= seconds ? fits : too_many) = middle;
  }
  return fits;
}

int PrefillBudget::rounded(int first_position, int num_tokens) const {
  if (!is_timed() || num_tokens < kRoundedPart) return num_tokens;
  const int most = std::max(1, num_tokens / kRoundedPart);
  // Blocks need not be a power of two; what is shorter than a block is.
  const int unit = most >= block_tokens_
                       ? block_tokens_
                       : static_cast<int>(std::bit_floor(static_cast<unsigned>(most)));
  return num_tokens - (first_position + num_tokens) % unit;
}

PrefillBudget::Chunk PrefillBudget::take(const Wish& wish) {
  const int most = std::min(wish.num_wanted, tokens_left_);
  LaneTime& time = time_of(wish.lane);
  Chunk chunk{
      .first_position = wish.first_position, .num_wanted = wish.num_wanted, .lane = wish.lane};
  const bool is_long =
      wish.num_wanted > step_.num_tokens ||
      (is_timed() && seconds_of(wish.first_position, wish.num_wanted) > time.limit);
  int num_tokens = most;
  double seconds = time.left;
  if (is_long) {
    num_tokens = std::min(num_tokens, std::max(long_tokens_left_, wish.min_tokens));
    if (is_timed())
      seconds = std::min(
          seconds, std::max(time.long_left, seconds_of(wish.first_position, wish.min_tokens)));
  }
  const int fits = fitting(wish.first_position, num_tokens, seconds);
  if (fits < num_tokens) {
    num_tokens = rounded(wish.first_position, fits);
    cut_by_time_ = true;
  }
  if (wish.must_advance || !time.has_advanced) num_tokens = std::max(num_tokens, std::min(1, most));
  chunk.num_tokens = num_tokens;
  chunk.seconds = num_tokens > 0 ? seconds_of(wish.first_position, num_tokens) : 0;
  time.has_advanced = time.has_advanced || num_tokens > 0;
  tokens_left_ -= num_tokens;
  time.left -= chunk.seconds;
  if (is_long) {
    long_tokens_left_ = std::max(0, long_tokens_left_ - num_tokens);
    time.long_left = std::max(0.0, time.long_left - chunk.seconds);
  }
  return chunk;
}

void PrefillBudget::take_more(Chunk& chunk) {
  const int most = std::min(chunk.num_wanted - chunk.num_tokens, tokens_left_);
  if (most <= 0) return;
  const double seconds = time_of(chunk.lane).left + chunk.seconds;
  int num_tokens = chunk.num_tokens + most;
  const int fits = fitting(chunk.first_position, num_tokens, seconds);
  if (fits < num_tokens) {
    num_tokens = rounded(chunk.first_position, fits);
    cut_by_time_ = true;
  }
  if (num_tokens <= chunk.num_tokens) return;
  tokens_left_ -= num_tokens - chunk.num_tokens;
  chunk.num_tokens = num_tokens;
  chunk.seconds = seconds_of(chunk.first_position, num_tokens);
  time_of(chunk.lane).left = seconds - chunk.seconds;
}

}  // namespace fathom::sched
