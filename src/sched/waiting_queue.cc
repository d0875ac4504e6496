#include "sched/waiting_queue.h"

#include <algorithm>

namespace fathom::sched {

bool WaitingQueue::GoesBefore::operator()(const Sequence* a, const Sequence* b) const {
  if (a->priority != b->priority) return a->priority > b->priority;
  const bool a_retracted = a->num_retractions > 0, b_retracted = b->num_retractions > 0;
  if (a_retracted != b_retracted) return a_retracted;
  return a->turn < b->turn;
}

void WaitingQueue::count_owner(const Sequence& sequence, int waiting, int running) {
  const auto it = owners_.try_emplace(sequence.owner).first;
  Owner& owner = it->second;
  num_waiting_owners_ -= owner.num_waiting > 0 ? 1 : 0;
  owner.num_waiting += waiting;
  owner.num_running += running;
  num_waiting_owners_ += owner.num_waiting > 0 ? 1 : 0;
  if (owner == Owner{}) owners_.erase(it);
}

void WaitingQueue::add(Sequence& sequence) {
  count_owner(sequence, 1, 0);
  if (sequence.fan_out == 0 || sequence.num_retractions > 0) return enter_line(sequence);
  FanOut& fan_out = fan_outs_[sequence.fan_out];
  fan_out.behind.insert(&sequence);
  ++num_behind_;
  bring_up(fan_out);
}

void WaitingQueue::enter_line(Sequence& sequence) {
  if (sequence.turn < 0) sequence.turn = next_turn_++;
  line_.insert(&sequence);
  if (sequence.fan_out == 0) return;
  FanOut& fan_out = fan_outs_[sequence.fan_out];
  ++fan_out.num_in_line;
  fan_out.num_owed_tokens += sequence.num_known_tokens() - sequence.num_owed_tokens;
  sequence.num_owed_tokens = sequence.num_known_tokens();
}

void WaitingQueue::leave_line(Sequence& sequence) {
  line_.erase(&sequence);
  if (sequence.fan_out != 0) --fan_outs_.at(sequence.fan_out).num_in_line;
}

void WaitingQueue::bring_up(FanOut& fan_out) {
  while (!fan_out.behind.empty() && !fan_out.waits_for_room &&
         fan_out.num_owed_tokens < config_.turn_tokens && fan_out.num_in_line < kMostInLine) {
    Sequence* const first = *fan_out.behind.begin();
    fan_out.behind.erase(fan_out.behind.begin());
    --num_behind_;
    enter_line(*first);
  }
}

void WaitingQueue::forget_if_over(FanOutMap::iterator it) {
  const FanOut& fan_out = it->second;
  if (fan_out.behind.empty() && fan_out.num_in_line == 0 && fan_out.num_running == 0)
    fan_outs_.erase(it);
}

void WaitingQueue::remove(Sequence& sequence) {
  count_owner(sequence, -1, 0);
  const auto it = fan_outs_.find(sequence.fan_out);
  if (it != fan_outs_.end() && it->second.behind.erase(&sequence) > 0) {
    --num_behind_;
  } else {
    leave_line(sequence);
    owes(sequence, 0);
  }
  if (it != fan_outs_.end()) forget_if_over(it);
}

void WaitingQueue::owes(Sequence& sequence, int num_tokens) {
  if (sequence.fan_out == 0) return;
  FanOut& fan_out = fan_outs_.at(sequence.fan_out);
  fan_out.num_owed_tokens += num_tokens - sequence.num_owed_tokens;
  sequence.num_owed_tokens = num_tokens;
  bring_up(fan_out);
}

void WaitingQueue::count_running(FanOut& fan_out, int change) {
  num_crowds_ -= is_crowd(fan_out.num_running) ? 1 : 0;
  fan_out.num_running += change;
  num_crowds_ += is_crowd(fan_out.num_running) ? 1 : 0;
}

void WaitingQueue::stopped_running(Sequence& sequence) {
  count_owner(sequence, 0, -1);
  const auto it = fan_outs_.find(sequence.fan_out);
  if (it == fan_outs_.end()) return;
  count_running(it->second, -1);
  it->second.waits_for_room = false;
  owes(sequence, 0);
  forget_if_over(it);
}

bool WaitingQueue::set_aside(Sequence& sequence) {
  const auto it = fan_outs_.find(sequence.fan_out);
  if (it == fan_outs_.end() || it->second.num_running == 0) return false;
  FanOut& fan_out = it->second;
  fan_out.waits_for_room = true;
  leave_line(sequence);
  owes(sequence, 0);
  if (sequence.num_retractions == 0) sequence.turn = -1;
  fan_out.behind.insert(&sequence);
  ++num_behind_;
  return true;
}

bool WaitingQueue::has_crowd() const {
  if (num_crowds_ > 0) return true;
  return num_waiting_owners_ > 0 && owners_.size() > 1 &&
         std::any_of(owners_.begin(), owners_.end(), [&](const auto& owner) {
           return is_crowd(owner.second.num_running) && others_wait(owner.second);
         });
}

bool WaitingQueue::is_of_crowd(const Sequence& sequence) const {
  const auto it = fan_outs_.find(sequence.fan_out);
  if (it != fan_outs_.end() && is_crowd(it->second.num_running)) return true;
  const Owner& owner = owners_.at(sequence.owner);
  return is_crowd(owner.num_running) && others_wait(owner);
}

// With one more a fan-out, or an owner, would have more than half.
bool WaitingQueue::yields(const Sequence& sequence) const {
  if (sequence.gives_way) return true;
  const auto it = fan_outs_.find(sequence.fan_out);
  if (it != fan_outs_.end() && would_be_crowd(it->second.num_running)) return true;
  if (num_waiting_owners_ < 2) return false;
  return would_be_crowd(owners_.at(sequence.owner).num_running);
}

bool WaitingQueue::do_all_owners_yield() const {
  return num_waiting_owners_ > 1 &&
         std::all_of(owners_.begin(), owners_.end(), [&](const auto& owner) {
           return owner.second.num_waiting == 0 || would_be_crowd(owner.second.num_running);
         });
}

const Sequence* WaitingQueue::first_unyielding(int64_t plan_idx) const {
  if (do_all_owners_yield()) return nullptr;
  const auto it = std::find_if(line_.begin(), line_.end(), [&](const Sequence* sequence) {
    return !yields(*sequence) &&
           (sequence->last_deferral < 0 || sequence->last_deferral < plan_idx - 1);
  });
  return it == line_.end() ? nullptr : *it;
}

// Once a plan: what its admissions evict changes little about who goes next.
void WaitingQueue::look_up(Sequence& sequence, int64_t plan_idx) {
  if (sequence.hint_plan == plan_idx) return;
  sequence.hint_plan = plan_idx;
  sequence.num_compared = 0;
  lanes_.look_up(sequence);
}

bool WaitingQueue::needs_look_up(std::span<Sequence* const> publishing) const {
  return config_.policy == SchedulePolicy::kLpm || !publishing.empty() || lanes_.size() > 1;
}

// What a body has cached of many prompts does not let all of them go before others: those count that cost next to
// nothing.
int64_t WaitingQueue::attraction(const Sequence& sequence) const {
  const int64_t num_left = sequence.num_known_tokens() - sequence.hint_tokens;
  return sequence.fan_out != 0 && num_left > 2 * lanes_.block_tokens() ? 0 : sequence.hint_tokens;
}

Sequence* WaitingQueue::next(int64_t plan_idx, std::span<Sequence* const> publishing) {
  Sequence *best = nullptr, *yielding = nullptr;
  int num_seen = 0, num_yielding_seen = 0;
  const bool everybody_yields = do_all_owners_yield();
  for (Sequence* const sequence : line_) {
    // One that gives way does so for lower priorities, too.
    const bool decides = best == nullptr && yielding != nullptr && !yielding->gives_way;
    const Sequence* const found = decides ? yielding : best;
    if (found != nullptr && sequence->priority != found->priority) break;
    const bool has_to_yield = yields(*sequence);
    if (has_to_yield && (yielding != nullptr || ++num_yielding_seen > kWindow)) {
      if (everybody_yields) break;
      continue;
    }
    if (!has_to_yield && ++num_seen > kWindow) break;
    if (needs_look_up(publishing)) look_up(*sequence, plan_idx);
    if (is_deferred(*sequence, plan_idx, publishing)) continue;
    if (has_to_yield) {
      yielding = sequence;
      continue;
    }
    const bool is_due = sequence->num_retractions > 0 || sequence->num_overtaken >= kMaxOvertaken;
    if (best == nullptr && (config_.policy == SchedulePolicy::kFcfs || is_due)) return sequence;
    if (best == nullptr || attraction(*sequence) > attraction(*best)) best = sequence;
  }
  return best != nullptr ? best : yielding;
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
  count_owner(sequence, -1, 1);
  for (auto it = line_.begin(); it != line_.end() && *it != &sequence; ++it)
    if ((*it)->priority == sequence.priority) ++(*it)->num_overtaken;
  leave_line(sequence);
  if (sequence.fan_out != 0) count_running(fan_outs_.at(sequence.fan_out), 1);
}

std::string WaitingQueue::check_integrity() const {
  FanOutMap wanted;
  OwnerMap owners;
  int num_behind = 0;
  for (const auto& [id, fan_out] : fan_outs_) {
    if (!fan_out.behind.empty() && fan_out.num_in_line + fan_out.num_running == 0)
      return "nobody brings up those of fan-out " + std::to_string(id);
    wanted[id] = {.waits_for_room = fan_out.waits_for_room, .behind = fan_out.behind};
    num_behind += static_cast<int>(fan_out.behind.size());
    for (const Sequence* sequence : fan_out.behind) ++owners[sequence->owner].num_waiting;
  }
  for (const Sequence* sequence : line_) {
    if (sequence->slot >= 0 || sequence->ended || sequence->num_row_capacity != 0 ||
        sequence->pin.num_blocks() != 0)
      return "request " + std::to_string(sequence->id) + " waits and holds a slot or blocks";
    ++owners[sequence->owner].num_waiting;
    if (sequence->fan_out == 0) continue;
    ++wanted[sequence->fan_out].num_in_line;
    wanted[sequence->fan_out].num_owed_tokens += sequence->num_owed_tokens;
  }
  for (const Lane& lane : lanes_)
    for (const Sequence* sequence : lane.running) {
      ++owners[sequence->owner].num_running;
      if (sequence->fan_out == 0) continue;
      ++wanted[sequence->fan_out].num_running;
      wanted[sequence->fan_out].num_owed_tokens +=
          std::max(0, sequence->num_prefill_tokens - sequence->min_rows());
    }
  if (wanted != fan_outs_ || num_behind != num_behind_)
    return "what fan-outs have in line and in work is not what is there";
  const auto waits = [](const auto& owner) { return owner.second.num_waiting > 0; };
  if (owners != owners_ ||
      num_waiting_owners_ != std::count_if(owners.begin(), owners.end(), waits))
    return "what owners have waiting and running is not what is there";
  return "";
}

}  // namespace fathom::sched
