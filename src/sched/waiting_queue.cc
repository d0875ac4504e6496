#include "sched/waiting_queue.h"

#include <algorithm>

namespace fathom::sched {

bool WaitingQueue::GoesBefore::operator()(const Sequence* a, const Sequence* b) const {
  if (a->priority != b->priority) return a->priority > b->priority;
  const bool a_retracted = a->num_retractions > 0, b_retracted = b->num_retractions > 0;
  if (a_retracted != b_retracted) return a_retracted;
  return a->arrival < b->arrival;
}

// Once a plan: what its admissions evict changes little about who goes next.
void WaitingQueue::look_up(Sequence& sequence, int64_t plan_idx) {
  if (sequence.hint_plan == plan_idx) return;
  sequence.hint_plan = plan_idx;
  sequence.num_compared = 0;
  lanes_.look_up(sequence);
}

Sequence* WaitingQueue::next(int64_t plan_idx, std::span<Sequence* const> publishing) {
  Sequence* best = nullptr;
  int num_seen = 0;
  for (Sequence* const sequence : waiting_) {
    if (best != nullptr && sequence->priority != best->priority) break;
    if (++num_seen > kWindow) break;
    if (policy_ == SchedulePolicy::kLpm || !publishing.empty() || lanes_.size() > 1)
      look_up(*sequence, plan_idx);
    if (is_deferred(*sequence, plan_idx, publishing)) continue;
    const bool is_due = sequence->num_retractions > 0 || sequence->num_overtaken >= kMaxOvertaken;
    if (best == nullptr && (policy_ == SchedulePolicy::kFcfs || is_due)) return sequence;
    if (best == nullptr || sequence->hint_tokens > best->hint_tokens) best = sequence;
  }
  return best;
}

bool WaitingQueue::is_deferred(Sequence& sequence, int64_t plan_idx,
                               std::span<Sequence* const> publishing) const {
  if (!sequence.reads_cache || sequence.num_deferred_steps > kMaxDeferredSteps) return false;
  if (sequence.last_deferral != plan_idx) {
    // Those that it was compared with before the last admission of this plan are still the same.
    const auto helps = [&](const Sequence* running) { return gains_from(sequence, *running); };
    const size_t num_old = std::min(sequence.num_compared, publishing.size());
    const auto others = publishing.subspan(num_old);
    sequence.num_compared = publishing.size();
    if (std::none_of(others.begin(), others.end(), helps)) return false;
    ++sequence.num_deferred_steps;
    sequence.last_deferral = plan_idx;
  }
  return sequence.num_deferred_steps <= kMaxDeferredSteps;
}

// Whether `running` will publish at least one more block than any lane has that `sequence` can use.
bool WaitingQueue::gains_from(const Sequence& sequence, const Sequence& running) const {
  const auto cached = static_cast<std::ptrdiff_t>(sequence.hint_tokens);
  const std::ptrdiff_t end = cached + lanes_.block_tokens();
  // A block is found with the tokens behind it; those that `running` has yet to sample are nobody's guess.
  const std::ptrdiff_t key_end = end + lanes_.lookahead_tokens();
  if (end >= sequence.num_known_tokens() || key_end > sequence.num_known_tokens() ||
      key_end > running.num_prefill_tokens)
    return false;
  const auto ours = sequence.tokens.begin(), theirs = running.tokens.begin();
  // The block that would be gained differs first, most of the time, and in its first token.
  return ours[cached] == theirs[cached] &&
         std::equal(ours + cached, ours + key_end, theirs + cached) &&
         sequence.cache_salt == running.cache_salt && std::equal(ours, ours + cached, theirs) &&
         lanes_.attracts(lanes_.number_of(running));
}

void WaitingQueue::admitted(Sequence& sequence) {
  for (auto it = waiting_.begin(); it != waiting_.end() && *it != &sequence; ++it)
    if ((*it)->priority == sequence.priority) ++(*it)->num_overtaken;
  waiting_.erase(&sequence);
}

}  // namespace fathom::sched
