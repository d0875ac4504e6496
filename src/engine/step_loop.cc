#include "engine/step_loop.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/prefetch.h"
#include "base/rng.h"
#include "base/startup_error.h"
#include "base/trace.h"
#include "engine/request_check.h"

namespace fathom::engine {
namespace {

// Every running sequence must be able to decode in the same step.
int max_running_requests(const runner::RunnerInfo& info, const StepLoopConfig& config) {
  const int most = std::min(info.max_slots, info.max_batch_tokens);
  if (config.max_running_requests < 0 || config.max_running_requests > most)
    throw StartupError("max_running_requests is " + std::to_string(config.max_running_requests) +
                       ", must be in [0, " + std::to_string(most) +
                       "], 0 = the runner's slots, if a step has a token for each");
  return config.max_running_requests == 0 ? most : config.max_running_requests;
}

sched::SchedulerConfig scheduler_config(const runner::Runner& runner,
                                        const StepLoopConfig& config) {
  const runner::RunnerInfo& info = runner.info();
  if (config.chunked_prefill_size < 1)
    throw StartupError("chunked_prefill_size is " + std::to_string(config.chunked_prefill_size) +
                       ", must be >= 1");
  if (config.eos_token_ids.size() > core::kMaxEosTokenIds)
    throw StartupError("there are " + std::to_string(config.eos_token_ids.size()) +
                       " eos token ids, must be at most " + std::to_string(core::kMaxEosTokenIds));
  if (!(config.max_step_seconds >= 0 && std::isfinite(config.max_step_seconds)))
    throw StartupError("max_step_seconds is " + std::to_string(config.max_step_seconds) +
                       ", must be >= 0, 0 = no bound");
  for (int32_t token : config.eos_token_ids)
    if (token < 0 || token >= info.vocab_size)
      throw StartupError("eos token id is " + std::to_string(token) + ", must be in [0, " +
                         std::to_string(info.vocab_size) + ")");
  for (const runner::KvGroupInfo& group : info.kv_groups)
    if (config.radix_cache && group.block_tokens != info.kv_groups.front().block_tokens)
      throw StartupError("radix_cache wants blocks of one size, those of " + group.name + " have " +
                         std::to_string(group.block_tokens) + " tokens, others " +
                         std::to_string(info.kv_groups.front().block_tokens));
  std::vector<sched::KvGroupConfig> groups;
  for (const runner::KvGroupInfo& group : info.kv_groups)
    groups.push_back({.num_blocks = group.num_blocks,
                      .block_tokens = group.block_tokens,
                      .lookahead_tokens = group.lookahead_tokens});
  return {.num_lanes = info.num_lanes,
          .num_slots = info.max_slots,
          .max_batch_tokens = info.max_batch_tokens,
          .kv_groups = std::move(groups),
          .chunked_prefill_size = config.chunked_prefill_size,
          .max_running_requests = max_running_requests(info, config),
          .policy = config.schedule_policy,
          .radix_cache = config.radix_cache,
          .block_listener = config.block_listener,
          .num_drafts = num_drafts_of(config.speculation, info),
          .max_step_seconds = config.max_step_seconds,
          .step_start_tokens = info.step_start_tokens,
          .slice_work = [&runner](int num_tokens, int64_t kv_begin) {
            return runner.slice_work(num_tokens, kv_begin);
          }};
}

// A chain may have been asked to be shorter than the drafter's.
DraftDepthConfig depth_config(const runner::DrafterInfo& drafter, int max_drafts) {
  const bool is_chain = drafter.top_k == 1;
  return {.max_drafts = max_drafts,
          .num_positions = is_chain ? max_drafts : std::min(drafter.num_steps, max_drafts),
          .is_chain = is_chain};
}

// Room for what a request generates, so that a commit does not move its tokens; most need no more.
constexpr int kTokensAhead = 1024;

// A step that waited for masks for a larger part of its time says nothing about what it costs.
constexpr double kMostMaskWait = 0.05;

// Of a sequence whose slice has this error. What its own request asked for is the fault of nothing that was computed.
sched::Scheduler::Rows rows_behind(std::string_view error) {
  const bool is_right = error.empty() || core::leaves_no_token(error);
  return is_right ? sched::Scheduler::Rows::kValid : sched::Scheduler::Rows::kInvalid;
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// A seed of its own for every request that brings none. The counter's high half keeps these apart from
// the draws of tokens, which use 0.
uint64_t draw_seed(uint64_t random_seed, core::RequestId id) {
  const auto bits = philox(random_seed, 1, static_cast<uint64_t>(id));
  return uint64_t{bits[0]} << 32 | bits[1];
}

}  // namespace

StepLoop::StepLoop(runner::Runner& runner, StepLoopConfig config)
    : runner_(runner),
      config_(std::move(config)),
      max_running_requests_(engine::max_running_requests(runner.info(), config_)),
      max_drafts_(num_drafts_of(config_.speculation, runner.info())),
      scheduler_(scheduler_config(runner, config_)),
      masks_(runner, config_.mask_executor),
      next_step_id_(runner.next_step_id()) {
  const runner::DrafterInfo& drafter = runner.info().drafter;
  if (config_.speculation.adaptive && max_drafts_ > 0)
    draft_depth_.emplace(depth_config(drafter, max_drafts_));
  FATHOM_CHECK(runner.in_flight() == 0, runner.in_flight() << " steps of somebody else in flight");
}

StepLoop::~StepLoop() {
  for (const auto& [id, state] : live_) state->ended = true;
  for (; !in_flight_.empty(); in_flight_.pop_front()) {
    start_masks();
    wait_for_step();
    scheduler_.step_done(in_flight_.front().batch.step_id);
  }
  for (const auto& [id, state] : live_) scheduler_.remove(*state, sched::Scheduler::Rows::kValid);
  if (submit_next()) runner_.wait();  // the releases
}

Status StepLoop::check(const core::Request& request) const {
  return check_request(request, runner_.info());
}

Status StepLoop::add(core::Request request, uint32_t client_tag,
                     std::optional<Clock::time_point> arrived) {
  if (Status status = check(request); !status) return status;
  if (live_.count(request.id) > 0)
    return invalid_argument("request id " + std::to_string(request.id) + " is in use");
  RequestPool::Owner state = make_state(std::move(request));
  state->arrival = next_arrival_++;
  state->client_tag = client_tag;
  state->arrived = arrived.value_or(config_.clock->now());
  scheduler_.enqueue(*state);
  live_.emplace(state->id, std::move(state));
  return {};
}

RequestPool::Owner StepLoop::make_state(core::Request request) {
  RequestPool::Owner state = states_.make();
  state->id = request.id;
  state->priority = request.priority;
  state->fan_out = request.fan_out;
  state->owner = request.owner;
  state->cache_salt = std::move(request.cache_salt);
  state->owes_prompt_logprobs = request.sampling.return_prompt_logprobs;
  state->reads_cache = !state->owes_prompt_logprobs;
  state->seed = request.sampling.seed.value_or(draw_seed(config_.random_seed, request.id));
  state->stop_token_ids = request.sampling.stop_token_ids;
  const core::TokenConstraint* const constraint = request.constraint.get();
  if (!request.sampling.ignore_eos || (constraint != nullptr && constraint->ends_at_eos()))
    state->stop_token_ids.insert(state->stop_token_ids.end(), config_.eos_token_ids.begin(),
                                 config_.eos_token_ids.end());
  state->sampling = std::move(request.sampling);
  state->num_prompt_tokens = static_cast<int>(request.prompt.size());
  state->tokens = std::move(request.prompt);
  state->tokens.reserve(state->tokens.size() + static_cast<size_t>(std::min(
                                                   state->sampling.max_new_tokens, kTokensAhead)));
  state->is_masked = constraint != nullptr;
  state->first_masked_output = constraint != nullptr ? constraint->num_free_tokens() : 0;
  state->constraint = std::move(request.constraint);
  state->num_constrained_tokens = state->num_prompt_tokens;
  return state;
}

Status StepLoop::flush_cache() {
  if (is_paused() ? num_running() > 0 : !live_.empty())
    return Error{ErrorCode::kResourceEmpty,
                 "the cache is in use by " + std::to_string(live_.size()) + " requests"};
  scheduler_.clear_cache();
  return {};
}

void StepLoop::set_num_drafts(int num_drafts) {
  FATHOM_CHECK(num_drafts >= 0 && num_drafts <= max_drafts_ && !draft_depth_,
               num_drafts << " drafts, at most " << max_drafts_ << ", or the loop chooses itself");
  scheduler_.set_num_drafts(num_drafts);
}

void StepLoop::set_gives_way(core::RequestId id, bool gives_way) {
  const auto it = live_.find(id);
  if (it != live_.end()) scheduler_.set_gives_way(*it->second, gives_way);
}

void StepLoop::cancel_all() {
  for (const auto& [id, state] : live_) cancel(id);
}

bool StepLoop::is_queued(core::RequestId id) const {
  const auto it = live_.find(id);
  return it != live_.end() && it->second->times.admitted_seconds < 0;
}

void StepLoop::apply_ends(StepUpdates& updates) {
  if (ends_wanted_.empty()) return;
  commit_time_ = config_.clock->now();
  for (EndWanted& wanted : ends_wanted_) {
    const auto it = live_.find(wanted.id);
    if (it == live_.end()) continue;
    const bool expires = wanted.reason == core::FinishReason::kFailed;
    if (expires && it->second->num_admissions > 0) continue;
    if (expires) ++stats_.num_expired;
    finish(*it->second, {.reason = wanted.reason, .error = std::move(wanted.error)}, updates);
  }
  ends_wanted_.clear();
}

bool StepLoop::step(StepUpdates& updates) {
  apply_ends(updates);
  const bool was_idle = in_flight_.empty();
  const bool submitted = submit_next();
  FATHOM_CHECK(submitted || !was_idle || !scheduler_.has_work(),
               scheduler_.num_waiting() << " waiting and " << scheduler_.num_running()
                                        << " running requests cannot go on");
  const size_t keep_in_flight = config_.overlap && submitted ? 1 : 0;
  // At most two are in flight, so this is at most one commit.
  if (in_flight_.size() > keep_in_flight) commit_oldest(updates);
  start_masks();
  if (in_flight_.empty())
    ended_.clear();  // in a pause steps that would do so may be long in coming
  return !in_flight_.empty() || scheduler_.has_work();
}

bool StepLoop::submit_next() {
  const Clock::time_point start = config_.clock->now();
  if (spare_steps_.empty()) spare_steps_.emplace_back();
  sched::PlannedStep& step = spare_steps_.back();
  {
    trace::Span span("sched", "plan");
    // A plan of a pause asks for none, so it is no step of those that the depth counts.
    if (draft_depth_ && !scheduler_.is_paused())
      scheduler_.set_num_drafts(draft_depth_->choose(scheduler_.num_running()));
    scheduler_.plan(next_step_id_, step);
    span.arg("slices", static_cast<int64_t>(step.slices.size()));
    span.arg("waiting", scheduler_.num_waiting());
    span.arg("predicted_us", static_cast<int64_t>(step.predicted_seconds * 1e6));
  }
  const Clock::time_point now = config_.clock->now();
  stats_.last_plan_us = seconds_between(start, now) * 1e6;
  if (step.batch.empty()) return false;
  for (sched::Sequence* sequence : step.first_admissions) {
    auto& state = static_cast<RequestState&>(*sequence);
    state.times.admitted_seconds = seconds_between(state.arrived, now);
  }
  {
    trace::Span span("runner", "submit");
    span.arg("step", next_step_id_);
    runner_.submit(step.batch);
  }
  scheduler_.step_submitted(next_step_id_);
  in_flight_.push_back(std::move(step));
  spare_steps_.pop_back();
  ++next_step_id_;
  ++stats_.num_steps;
  return true;
}

// The masks of the oldest step depend on steps that are all committed.
void StepLoop::start_masks() {
  if (in_flight_.empty() || in_flight_.front().batch.step_id <= last_masked_step_id_) return;
  last_masked_step_id_ = in_flight_.front().batch.step_id;
  masks_.start(in_flight_.front());
}

core::StepResult StepLoop::wait_for_step() {
  const trace::Span span("runner", "wait");
  core::StepResult result = runner_.wait();
  if (!runner_.failure().empty()) masks_.wait_for_jobs();
  return result;
}

void StepLoop::commit_oldest(StepUpdates& updates) {
  start_masks();
  sched::PlannedStep step = std::move(in_flight_.front());
  in_flight_.pop_front();
  core::StepResult result = wait_for_step();
  const int64_t step_id = step.batch.step_id;
  FATHOM_CHECK(result.step_id == step_id && result.slices.size() == step.slices.size(),
               "step " << step_id << " of " << step.slices.size() << " slices, got step "
                       << result.step_id << " of " << result.slices.size());
  trace::Span span("engine", "commit");
  span.arg("step", step_id);
  commit_time_ = config_.clock->now();
  scheduler_.step_done(step_id);
  ++stats_.num_committed_steps;
  stats_.wall_seconds += result.wall_seconds;
  stats_.last_forward_seconds = result.forward_seconds;
  stats_.last_sampling_seconds = result.sampling_seconds;
  stats_.last_mask_wait_seconds = result.mask_wait_seconds;
  if (config_.max_step_seconds > 0) observe_time(step, result);
  if (draft_depth_) observe_drafts(step.batch, result);
  for (size_t i = 0; i < step.slices.size(); ++i) {
    fetch_ahead(step, result, i);
    commit_slice(step.slices[i], result.slices[i], updates);
  }
  while (!ended_.empty() && ended_.front().last_step_id <= step_id) ended_.pop_front();
  spare_steps_.push_back(std::move(step));
  stats_.last_commit_us = seconds_between(commit_time_, config_.clock->now()) * 1e6;
}

// What committing the slices after this one reads: between two steps the caches have had other uses, and waiting for
// one line after the other is what a commit would spend most of its time with.
void StepLoop::fetch_ahead(const sched::PlannedStep& step, const core::StepResult& result,
                           size_t slice) {
  constexpr size_t kObjects = 4, kContents = 2;
  const auto state_of = [&](size_t of_slice) {
    return static_cast<const RequestState*>(step.slices[of_slice].sequence);
  };
  if (slice + kObjects < step.slices.size()) {
    const RequestState* const state = state_of(slice + kObjects);
    prefetch(state, sched::Sequence::kStepLines);
    prefetch(&state->last_token, RequestState::kCommitLines);
  }
  if (slice + kContents >= step.slices.size()) return;
  const RequestState* const state = state_of(slice + kContents);
  prefetch(state->tokens.data() + state->tokens.size());
  prefetch(state->stop_token_ids.data());
  prefetch(result.slices[slice + kContents].tokens.data());
}

void StepLoop::observe_time(const sched::PlannedStep& step, const core::StepResult& result) {
  if (result.wall_seconds <= 0) return;
  if (result.mask_wait_seconds < kMostMaskWait * result.wall_seconds)
    scheduler_.step_measured(step, result.wall_seconds);
  if (!step.has_streams) return;
  StepTimeStats& times = stats_.step_time;
  ++times.num_steps;
  times.num_cut += step.is_cut ? 1 : 0;
  times.num_over += result.wall_seconds > config_.max_step_seconds ? 1 : 0;
  times.last_seconds = result.wall_seconds;
  times.last_predicted_seconds = step.predicted_seconds;
}

void StepLoop::observe_drafts(const core::Batch& batch, const core::StepResult& result) {
  draft_outcome_.clear(max_drafts_);
  draft_outcome_.seconds = result.wall_seconds;
  for (size_t i = 0; i < result.slices.size(); ++i) {
    const core::SequenceSlice& slice = batch.slices[i];
    const core::SliceResult& slice_result = result.slices[i];
    if (slice.kind() == core::SliceKind::kPrefill) {
      draft_outcome_.has_prompts = true;
    } else if (!slice_result.tokens.empty()) {
      draft_outcome_.add(slice_result.num_verified_drafts, slice.num_drafts_to_propose,
                         static_cast<int>(slice_result.tokens.size()) - 1);
    }
  }
  draft_depth_->observe(draft_outcome_);
}

void StepLoop::commit_slice(const sched::PlannedSlice& planned, core::SliceResult& result,
                            StepUpdates& updates) {
  auto& state = static_cast<RequestState&>(*planned.sequence);
  if (state.ended) {
    stats_.num_wasted_tokens += static_cast<int64_t>(result.tokens.size());
    return;
  }
  const Rows rows = rows_behind(result.error);
  // A step without a mask of its own may have failed besides; the cause is the constraint.
  if (!state.constraint_error.empty()) {
    stats_.grammar_failures.count(state.constraint_error);
    result.error = state.constraint_error;
  }
  if (!result.error.empty()) {
    finish(state, {.reason = core::FinishReason::kFailed, .error = std::move(result.error)},
           updates, rows);
    return;
  }
  if (state.owes_prompt_logprobs) take_prompt_logprobs(state, planned.first_position, result);
  const Cut cut = cut_at_end(state, result.tokens);
  for (size_t i = 0; i < cut.num_tokens; ++i) state.tokens.push_back(result.tokens[i].token);
  stats_.num_wasted_tokens += static_cast<int64_t>(result.tokens.size() - cut.num_tokens);
  take_drafts(state, result, cut);
  // Chunks and decodes add what was planned, a verify slice a row per token.
  const bool is_known = planned.min_advance == planned.num_tokens;
  scheduler_.rows_computed(planned,
                           is_known ? planned.num_tokens : static_cast<int>(result.tokens.size()));
  // The masks of this step are done, and those of the next one have not begun.
  if (state.is_masked && state.constraint->is_free()) state.is_masked = false;
  give_out(state, result.tokens, cut.num_tokens, updates);
  if (cut.reason != core::FinishReason::kNone) {
    finish(state, {.reason = cut.reason, .matched_stop_token = cut.stop_token}, updates);
  } else if (planned.ends_prefill && state.sampling.max_new_tokens == 0) {
    finish(state, {.reason = core::FinishReason::kLength}, updates);
  }
}

// A retracted sequence computes its prompt again; what is known already stays.
void StepLoop::take_prompt_logprobs(RequestState& state, int first_position,
                                    core::SliceResult& result) {
  auto index = static_cast<size_t>(first_position);
  for (core::SampledToken& token : result.prompt_logprobs)
    if (index++ == state.prompt_logprobs.size()) state.prompt_logprobs.push_back(std::move(token));
  state.reads_cache = static_cast<int>(state.prompt_logprobs.size()) + 1 >= state.num_prompt_tokens;
}

void StepLoop::give_out_prompt_logprobs(RequestState& state, RequestUpdate& update) {
  if (!std::exchange(state.owes_prompt_logprobs, false)) return;
  update.prompt_logprobs =
      std::make_shared<const std::vector<core::SampledToken>>(std::move(state.prompt_logprobs));
}

StepLoop::Cut StepLoop::cut_at_end(const RequestState& state,
                                   const std::vector<core::SampledToken>& tokens) const {
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_stop = contains(state.stop_token_ids, tokens[i].token);
    const bool is_last =
        state.num_output_tokens() + static_cast<int>(i) + 1 == state.sampling.max_new_tokens;
    if (!is_stop && !is_last) continue;
    const bool shows_all = i + 1 < tokens.size() && failpoint("step_loop.behind_end");
    return {.num_tokens = shows_all ? tokens.size() : i + 1,
            .reason = is_stop ? core::FinishReason::kStop : core::FinishReason::kLength,
            .stop_token = is_stop ? tokens[i].token : -1};
  }
  return {.num_tokens = tokens.size()};
}

void StepLoop::take_drafts(RequestState& state, core::SliceResult& result, const Cut& cut) {
  if (max_drafts_ == 0) return;
  RunningSpeculation& counts = state.speculation;
  if (result.num_verified_drafts > 0) {
    const int num_accepted =
        counts.add_verified(result.num_verified_drafts, static_cast<int>(result.tokens.size()) - 1,
                            static_cast<int>(cut.num_tokens));
    ++stats_.num_verify_slices;
    stats_.num_drafts_verified += result.num_verified_drafts;
    stats_.num_drafts_accepted += num_accepted;
  }
  if (cut.reason != core::FinishReason::kNone) return;
  const auto num_proposed = static_cast<int64_t>(result.drafts.size());
  counts.num_drafts_proposed += num_proposed;
  stats_.num_drafts_proposed += num_proposed;
  if (state.is_masked) state.drafts = std::move(result.drafts);
}

void StepLoop::give_out(RequestState& state, std::vector<core::SampledToken>& tokens,
                        size_t num_tokens, StepUpdates& updates) {
  if (num_tokens == 0) return;
  stats_.num_output_tokens += static_cast<int64_t>(num_tokens);
  const auto begin = static_cast<int32_t>(updates.tokens.size());
  for (size_t i = 0; i < num_tokens; ++i) updates.tokens.push_back(std::move(tokens[i]));
  updates.requests.push_back({.id = state.id,
                              .client_tag = state.client_tag,
                              .tokens_begin = begin,
                              .tokens_end = static_cast<int32_t>(updates.tokens.size()),
                              .num_cached_tokens = state.num_cached_tokens});
  give_out_prompt_logprobs(state, updates.requests.back());
  if (state.times.first_token_seconds < 0) {
    state.times.first_token_seconds = seconds_between(state.arrived, commit_time_);
    updates.requests.back().first_token_seconds = state.times.first_token_seconds;
  } else {
    updates.requests.back().token_gap_seconds = seconds_between(state.last_token, commit_time_);
  }
  state.last_token = commit_time_;
}

void StepLoop::finish(RequestState& state, RequestEnd end, StepUpdates& updates, Rows rows) {
  scheduler_.remove(state, rows);
  state.ended = true;
  end.num_cached_tokens = std::max(0, state.num_cached_tokens);
  end.num_retractions = state.num_retractions;
  end.num_output_tokens = state.num_output_tokens();
  end.seed = state.seed;
  end.speculation = state.speculation.counts();
  end.times = state.times;
  end.times.finished_seconds = seconds_between(state.arrived, commit_time_);
  const auto num_tokens = static_cast<int32_t>(updates.tokens.size());
  // The tokens that ended it have just opened an update.
  if (updates.requests.empty() || updates.requests.back().id != state.id ||
      updates.requests.back().end != nullptr)
    updates.requests.push_back({.id = state.id,
                                .client_tag = state.client_tag,
                                .tokens_begin = num_tokens,
                                .tokens_end = num_tokens,
                                .num_cached_tokens = end.num_cached_tokens});
  give_out_prompt_logprobs(state, updates.requests.back());
  updates.requests.back().end = std::make_unique<RequestEnd>(std::move(end));
  const auto it = live_.find(state.id);
  ended_.push_back({.last_step_id = next_step_id_ - 1, .state = std::move(it->second)});
  live_.erase(it);
}

StepLoopStats StepLoop::stats() const {
  StepLoopStats stats = stats_;
  const sched::SchedulerStats scheduled = scheduler_.stats();
  stats.num_prompt_tokens = scheduled.num_prompt_tokens;
  stats.num_cached_tokens = scheduled.num_cached_tokens;
  stats.num_prefill_tokens = scheduled.num_prefill_tokens;
  stats.num_retractions = scheduled.num_retractions;
  stats.num_evicted_blocks = scheduled.num_evicted_blocks;
  stats.step_time.bound_seconds = config_.max_step_seconds;
  stats.step_time.error = scheduled.step_cost_error;
  return stats;
}

std::string StepLoop::check_integrity(std::optional<uint64_t> part) const {
  if (std::string problem = scheduler_.check_integrity(part); !problem.empty()) return problem;
  if (static_cast<int>(live_.size()) != num_waiting() + num_running())
    return std::to_string(live_.size()) + " requests live, " + std::to_string(num_waiting()) +
           " wait, " + std::to_string(num_running()) + " run";
  return "";
}

}  // namespace fathom::engine
