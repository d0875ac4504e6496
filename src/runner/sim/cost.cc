#include "runner/sim/cost.h"

#include "base/rng.h"

namespace fathom::runner {
namespace {

constexpr double kTokenMacs = 4e6;
constexpr int kMaxAbsorbedTokens = 64;
// Over all heads and layers: of a row or a query through kv_b_proj, of a query and a row in each form.
constexpr double kHeads = 32;
constexpr double kKvBMacs = kHeads * 512 * 256;
constexpr double kAbsorbedPairMacs = kHeads * 1088, kExpandedPairMacs = kHeads * 320;

constexpr double kGiga = 1e9, kMicro = 1e-6;

}  // namespace

core::SliceWork SimCost::slice_work(int num_tokens, int64_t kv_begin) const {
  const double tokens = num_tokens, rows = static_cast<double>(kv_begin) + tokens;
  const double pairs = tokens * static_cast<double>(kv_begin) + tokens * (tokens + 1) / 2;
  const double absorbed = tokens * kKvBMacs + pairs * kAbsorbedPairMacs;
  const double expanded = rows * kKvBMacs + pairs * kExpandedPairMacs;
  const bool is_absorbed =
      num_tokens == 1 || (num_tokens <= kMaxAbsorbedTokens && absorbed < expanded);
  return {.linear = tokens * kTokenMacs,
          .absorbed = is_absorbed ? absorbed : 0,
          .expanded = is_absorbed ? 0 : expanded};
}

void SimCost::add(int num_tokens, int64_t kv_begin, bool is_prompt) {
  if (!is_set()) return;
  ++num_slices_;
  const core::SliceWork work = slice_work(num_tokens, kv_begin);
  if (is_prompt) {
    has_prompts_ = true;
    seconds_ += work.linear / (config_.linear_rate * kGiga) +
                work.absorbed / (config_.absorbed_rate * kGiga) +
                work.expanded / (config_.expanded_rate * kGiga);
  } else {
    seconds_ += (work.linear + work.absorbed + work.expanded) / (config_.decode_rate * kGiga);
  }
}

double SimCost::end_step(int64_t step_id) {
  const bool is_empty = num_slices_ == 0;
  double seconds =
      seconds_ + kMicro * (config_.step_us + (has_prompts_ ? config_.prompt_step_us : 0));
  num_slices_ = 0;
  has_prompts_ = false;
  seconds_ = 0;
  if (is_empty) return 0;
  const auto bits = philox(config_.seed, 0, static_cast<uint64_t>(step_id));
  seconds *= 1 + config_.noise * (2.0 * static_cast<double>(uniform(bits[0])) - 1);
  if (config_.hiccup_one_in > 0 && bits[1] % static_cast<uint32_t>(config_.hiccup_one_in) == 0)
    seconds *= config_.hiccup_factor;
  if (step_id >= config_.slow_from_step) seconds *= config_.slowdown;
  return seconds;
}

}  // namespace fathom::runner
