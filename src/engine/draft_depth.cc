#include "engine/draft_depth.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "base/check.h"

namespace fathom::engine {
namespace {

// Numbers of running sequences that are measured together: 1 to 8 each alone, then four per octave.
constexpr int kNumBuckets = 64;
constexpr int kNearBuckets = 2;

// Before anything is measured: rows that a step computes in the time of one, and what a draft costs itself.
constexpr double kFlatRows = 32, kCostPerDraft = 0.05;
// And how likely a draft is right; two sequences' worth of evidence. A probe hopes for more.
constexpr double kPriorAcceptance = 0.7, kPriorTrials = 2, kHopedAcceptance = 0.9;

constexpr int kMeasuredSteps = 2, kMaxPlainAttempts = 6;
constexpr double kMemorySequences = 64;
// Evidence this old counts little beside what a probe sees.
constexpr int64_t kStaleSteps = 128;
// What a depth was found to lose is believed half as much after so many steps, and then its times are measured anew.
constexpr int64_t kDoubtSteps = 1024;
constexpr double kStaleTrials = 8;

constexpr double kInitialCredit = 16, kMaxCredit = 32, kIncome = 0.005;
// A debt is forgiven beyond this: a machine that stood still says nothing about drafts.
constexpr double kMinCredit = -16;
// Another depth must be this much better: a change of depth costs a step's drafts.
constexpr double kWorthSwitching = 1.03;
constexpr int kMinProbe = 4, kMaxProbe = 17, kProbedSequences = 16;

int bucket_of(int num_running) {
  if (num_running <= 8) return std::max(num_running, 1) - 1;
  const auto value = static_cast<unsigned>(num_running);
  const int octave = static_cast<int>(std::bit_width(value)) - 1;  // 3 for 8 to 15
  const int quarter = static_cast<int>(value >> (octave - 2)) - 4;
  return std::min(7 + 4 * (octave - 3) + quarter, kNumBuckets - 1);
}

size_t cell_index(int bucket, int depth, int max_drafts) {
  return static_cast<size_t>(bucket) * (static_cast<size_t>(max_drafts) + 1) +
         static_cast<size_t>(depth);
}

// The cost of a depth is about proportional to it, so another one's tells something.
double scaled_cost(double cost, int from_depth, int to_depth) {
  return 1 + std::max(cost - 1, 0.0) * to_depth / from_depth;
}

}  // namespace

void DraftOutcome::clear(int max_drafts) {
  const auto size = static_cast<size_t>(max_drafts) + 1;
  verified.assign(size, 0);
  accepted.assign(size, 0);
  num_sequences = 0;
  num_verified = num_asked = num_tokens = 0;
  has_prompts = false;
  seconds = 0;
}

DraftDepth::DraftDepth(const DraftDepthConfig& config)
    : config_(config),
      cells_(static_cast<size_t>(kNumBuckets) * static_cast<size_t>(config.max_drafts + 1)),
      plain_attempts_(kNumBuckets),
      positions_(static_cast<size_t>(config.num_positions)),
      credit_(kInitialCredit) {
  FATHOM_CHECK(config.max_drafts >= 1 && config.num_positions >= 1 &&
                   (!config.is_chain || config.num_positions == config.max_drafts),
               config.max_drafts << " drafts, " << config.num_positions << " positions");
}

DraftDepth::Cell& DraftDepth::cell(int bucket, int depth) {
  return cells_[cell_index(bucket, depth, config_.max_drafts)];
}

const DraftDepth::Cell& DraftDepth::cell(int bucket, int depth) const {
  return cells_[cell_index(bucket, depth, config_.max_drafts)];
}

bool DraftDepth::is_measured(int bucket, int depth) const {
  return cell(bucket, depth).num_steps >= kMeasuredSteps;
}

int DraftDepth::measured_bucket(int bucket, int depth) const {
  for (int distance = 0; distance <= kNearBuckets; ++distance)
    for (const int near : {bucket - distance, bucket + distance})
      if (near >= 0 && near < kNumBuckets && is_measured(near, 0) && is_measured(near, depth))
        return near;
  return -1;
}

double DraftDepth::relative_cost(int num_running, int depth) const {
  if (depth == 0) return 1;
  const int bucket = bucket_of(num_running);
  const auto measured_cost = [&](int of_depth) {
    const int near = measured_bucket(bucket, of_depth);
    return near < 0 ? 0.0 : cell(near, of_depth).seconds / cell(near, 0).seconds;
  };
  for (int distance = 0; distance < config_.max_drafts; ++distance)
    for (const int other : {depth - distance, depth + distance})
      if (other >= 1 && other <= config_.max_drafts)
        if (const double cost = measured_cost(other); cost > 0)
          return scaled_cost(cost, other, depth);
  const double rows = num_running;
  return std::max(1.0, rows * (1 + depth) / kFlatRows) / std::max(1.0, rows / kFlatRows) +
         kCostPerDraft * depth;
}

double DraftDepth::acceptance(int position) const {
  double share = 1;
  for (int i = 0; i <= position; ++i) {
    const Position& seen = positions_[static_cast<size_t>(i)];
    const double expected = kPriorAcceptance * share * kPriorTrials;
    share = std::min(share, (seen.hits + expected) / (seen.trials + kPriorTrials));
  }
  return share;
}

double DraftDepth::expected_tokens(int depth) const {
  if (depth == 0) return 1;
  double tokens = 1;
  const int num_positions = config_.is_chain ? depth : config_.num_positions;
  for (int i = 0; i < num_positions; ++i) tokens += acceptance(i);
  return tokens;
}

int DraftDepth::choose(int num_running) {
  ++step_;
  if (num_running <= 0) return current_;
  if (probe_steps_left_ > 0) {
    --probe_steps_left_;
    return probe_depth_;
  }
  if (credit_ < 0) suspended_ = true;
  if (credit_ >= 1) suspended_ = false;
  if (suspended_ || wants_plain_measured(num_running)) return current_ = 0;
  current_ = best_depth(num_running);
  start_probe_if_due(num_running);
  return current_;
}

bool DraftDepth::wants_plain_measured(int num_running) {
  const int bucket = bucket_of(num_running);
  if (is_measured(bucket, 0)) return false;
  for (int depth = 1; depth <= config_.max_drafts; ++depth)
    if (measured_bucket(bucket, depth) >= 0) return false;
  // Steps with prompts are not measured: do not wait for one without them forever.
  int& attempts = plain_attempts_[static_cast<size_t>(bucket)];
  return attempts++ < kMaxPlainAttempts;
}

int DraftDepth::best_depth(int num_running) const {
  const double current_rate = rate(num_running, current_);
  double best_rate = current_rate * kWorthSwitching;
  int best = current_;
  for (int depth = 0; depth <= config_.max_drafts; depth = next_depth(depth)) {
    const double depth_rate = rate(num_running, depth);
    if (depth_rate > best_rate) {
      best = depth;
      best_rate = depth_rate;
    }
    if (depth == config_.max_drafts) break;
  }
  return best;
}

void DraftDepth::start_probe_if_due(int num_running) {
  const int bucket = bucket_of(num_running);
  const bool is_known = current_ == 0 && std::abs(bucket - probed_bucket_) <= kNearBuckets;
  if (!is_known) probe_interval_ = kProbeSteps;
  if (step_ - last_probe_step_ < probe_interval_) return;
  const int target = probe_target(num_running);
  if (target == current_) return;
  const int num_steps = probe_length(num_running, target);
  if (num_steps == 0) return;
  if (is_known) probe_interval_ = std::min(2 * probe_interval_, kMaxProbeSteps);
  probed_bucket_ = current_ == 0 ? bucket : -1;
  last_probe_step_ = step_;
  probe_depth_ = target;
  probe_steps_left_ = num_steps;
  for (Position& seen : positions_) {
    if (step_ - seen.last_step < kStaleSteps || seen.trials <= kStaleTrials) continue;
    seen.hits *= kStaleTrials / seen.trials;
    seen.trials = kStaleTrials;
  }
}

// As many steps as tell something, or as the credit pays for; 0 = too few.
int DraftDepth::probe_length(int num_running, int target) const {
  if (target == 0) return kMinProbe;
  const int wanted =
      std::clamp((kProbedSequences + num_running - 1) / num_running + 1, kMinProbe, kMaxProbe);
  const int near = measured_bucket(bucket_of(num_running), target);
  const int64_t last_step = near < 0 ? positions_[0].last_step : cell(near, target).last_step;
  const auto age = static_cast<double>(step_ - last_step);
  const double loss = (relative_cost(num_running, target) - expected_tokens(target)) *
                      std::exp2(-age / static_cast<double>(kDoubtSteps));
  if (2 * wanted * loss <= credit_) return wanted;
  const double affordable = credit_ / (2 * loss);
  return affordable < kMinProbe ? 0 : static_cast<int>(affordable);
}

// Without drafts, the depth that would pay most if they were good; else the neighbour seen longest ago.
int DraftDepth::probe_target(int num_running) const {
  if (current_ == 0) {
    int best = 0;
    double best_rate = 0, tokens = 1, share = 1;
    for (int depth = 1; depth <= config_.max_drafts; ++depth) {
      if (depth <= config_.num_positions) tokens += share *= kHopedAcceptance;
      if (!config_.is_chain && depth < config_.max_drafts) continue;
      const double hoped_rate = tokens / relative_cost(num_running, depth);
      if (hoped_rate <= best_rate) continue;
      best = depth;
      best_rate = hoped_rate;
    }
    return best;
  }
  const int bucket = bucket_of(num_running);
  int target = current_;
  int64_t oldest = step_ - kProbeSteps;
  for (const int depth : {0, current_ - 1, current_ + 1}) {
    if (depth > config_.max_drafts || (!config_.is_chain && depth != 0)) continue;
    if (cell(bucket, depth).last_step >= oldest) continue;
    oldest = cell(bucket, depth).last_step;
    target = depth;
  }
  return target;
}

void DraftDepth::observe(const DraftOutcome& outcome) {
  if (outcome.num_sequences == 0) return;
  credit_ = std::min(credit_ + kIncome, kMaxCredit);
  observe_acceptance(outcome);
  if (outcome.has_prompts || outcome.seconds <= 0) return;
  observe_time(outcome);
  const Cell& plain = cell(bucket_of(outcome.num_sequences), 0);
  if (outcome.num_verified + outcome.num_asked > 0 && plain.num_steps > 0)
    credit_ += static_cast<double>(outcome.num_tokens) / outcome.num_sequences -
               outcome.seconds / plain.seconds;
  credit_ = std::clamp(credit_, kMinCredit, kMaxCredit);
}

void DraftDepth::observe_acceptance(const DraftOutcome& outcome) {
  // From the deepest position up: who verified or accepted more drafts did so at this one, too.
  int64_t trials = 0, hits = 0;
  const double memory = std::max(kMemorySequences, 4.0 * outcome.num_sequences);
  const int max_drafts = config_.max_drafts;
  const auto count = [](const std::vector<int32_t>& counts, int drafts) {
    return counts[static_cast<size_t>(drafts)];
  };
  if (!config_.is_chain)
    for (int drafts = config_.num_positions + 1; drafts <= max_drafts; ++drafts)
      trials += count(outcome.verified, drafts);
  for (int i = config_.num_positions; i >= 1; --i) {
    if (i <= max_drafts) {
      trials += count(outcome.verified, i);
      hits += count(outcome.accepted, i);
    }
    if (trials == 0) continue;
    Position& seen = positions_[static_cast<size_t>(i - 1)];
    const double kept = std::max(0.0, 1 - static_cast<double>(trials) / memory);
    seen.trials = seen.trials * kept + static_cast<double>(trials);
    seen.hits = seen.hits * kept + static_cast<double>(hits);
    seen.last_step = step_;
  }
}

void DraftDepth::observe_time(const DraftOutcome& outcome) {
  const double verified = static_cast<double>(outcome.num_verified) / outcome.num_sequences;
  const double asked = static_cast<double>(outcome.num_asked) / outcome.num_sequences;
  // A few sequences near their end have fewer. When the depth changes a step has the cost of neither.
  const double depth = std::round(verified);
  if (std::abs(verified - depth) > 0.25 || std::abs(asked - depth) > 0.25) return;
  Cell& seen = cell(bucket_of(outcome.num_sequences), static_cast<int>(depth));
  if (step_ - seen.last_step > kDoubtSteps) seen.num_steps = 0;
  seen.last_step = step_;
  seen.add(outcome.seconds);
}

void DraftDepth::Cell::add(double step_seconds) {
  recent[static_cast<size_t>(num_steps++ % kRecent)] = static_cast<float>(step_seconds);
  std::array<float, kRecent> sorted = recent;
  const int64_t count = std::min<int64_t>(num_steps, kRecent);
  const auto middle = sorted.begin() + (count - 1) / 2;
  std::nth_element(sorted.begin(), middle, sorted.begin() + count);
  seconds = *middle;
}

}  // namespace fathom::engine
