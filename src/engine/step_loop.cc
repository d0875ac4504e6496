#include "engine/step_loop.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "base/startup_error.h"

namespace fathom::engine {
namespace {

sched::SchedulerConfig scheduler_config(const runner::RunnerInfo& info,
                                        const StepLoopConfig& config) {
  if (config.chunked_prefill_size < 1)
    throw StartupError("chunked_prefill_size is " + std::to_string(config.chunked_prefill_size) +
                       ", must be >= 1");
  if (config.max_running_requests < 0 || config.max_running_requests > info.max_slots)
    throw StartupError("max_running_requests is " + std::to_string(config.max_running_requests) +
                       ", must be in [0, " + std::to_string(info.max_slots) +
                       "], 0 = the runner's slots");
  for (int32_t token : config.eos_token_ids)
    if (token < 0 || token >= info.vocab_size)
      throw StartupError("eos token id is " + std::to_string(token) + ", must be in [0, " +
                         std::to_string(info.vocab_size) + ")");
  // Every running sequence must be able to decode in the same step.
  const int most = std::min(info.max_slots, info.max_batch_tokens);
  std::vector<sched::KvGroupConfig> groups;
  for (const runner::KvGroupInfo& group : info.kv_groups)
    groups.push_back({.num_blocks = group.num_blocks, .block_tokens = group.block_tokens});
  return {.num_slots = info.max_slots,
          .max_batch_tokens = info.max_batch_tokens,
          .kv_groups = std::move(groups),
          .chunked_prefill_size = config.chunked_prefill_size,
          .max_running_requests = config.max_running_requests == 0
                                      ? most
                                      : std::min(most, config.max_running_requests)};
}

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
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
      scheduler_(scheduler_config(runner.info(), config_)),
      next_step_id_(runner.next_step_id()) {
  FATHOM_CHECK(runner.in_flight() == 0, runner.in_flight() << " steps of somebody else in flight");
}

StepLoop::~StepLoop() {
  while (!in_flight_.empty()) {
    runner_.wait();
    scheduler_.step_done(in_flight_.front().step_id);
    in_flight_.pop_front();
  }
  for (const auto& [id, state] : live_) scheduler_.remove(*state);
  if (submit_next()) runner_.wait();  // the releases
}

Status StepLoop::check(const core::Request& request) const {
  if (Status status = core::validate(request.sampling, runner_.info().vocab_size); !status)
    return status;
  return check_fits(request);
}

Status StepLoop::add(core::Request request, uint32_t client_tag,
                     std::optional<Clock::time_point> arrived) {
  if (Status status = check(request); !status) return status;
  if (live_.count(request.id) > 0)
    return invalid_argument("request id " + std::to_string(request.id) + " is in use");

  auto state = std::make_shared<RequestState>();
  state->id = request.id;
  state->arrival = next_arrival_++;
  state->client_tag = client_tag;
  state->arrived = arrived.value_or(config_.clock->now());
  state->seed = request.sampling.seed.value_or(draw_seed(config_.random_seed, request.id));
  state->stop_token_ids = request.sampling.stop_token_ids;
  if (!request.sampling.ignore_eos)
    state->stop_token_ids.insert(state->stop_token_ids.end(), config_.eos_token_ids.begin(),
                                 config_.eos_token_ids.end());
  state->sampling = std::move(request.sampling);
  state->num_prompt_tokens = static_cast<int>(request.prompt.size());
  state->tokens = std::move(request.prompt);
  live_.emplace(state->id, state);
  scheduler_.enqueue(std::move(state));
  return {};
}

Status StepLoop::check_fits(const core::Request& request) const {
  const runner::RunnerInfo& info = runner_.info();
  if (request.prompt.empty()) return invalid_argument("the prompt has no tokens, must have one");
  for (size_t i = 0; i < request.prompt.size(); ++i)
    if (request.prompt[i] < 0 || request.prompt[i] >= info.vocab_size)
      return invalid_argument("prompt token " + std::to_string(i) + " is " +
                              std::to_string(request.prompt[i]) + ", must be in [0, " +
                              std::to_string(info.vocab_size) + "), the vocabulary");
  const int64_t num_prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t needed = num_prompt + request.sampling.max_new_tokens;
  const std::string what = "prompt of " + std::to_string(num_prompt) +
                           " tokens plus max_new_tokens " +
                           std::to_string(request.sampling.max_new_tokens) + " needs ";
  if (needed > info.max_context_tokens)
    return Error{ErrorCode::kTooLong, what + std::to_string(needed) + " tokens, the context is " +
                                          std::to_string(info.max_context_tokens)};
  for (const runner::KvGroupInfo& group : info.kv_groups) {
    const int64_t blocks = (needed + group.block_tokens - 1) / group.block_tokens;
    if (blocks > group.num_blocks)
      return Error{ErrorCode::kTooLong, what + std::to_string(blocks) + " blocks of the cache, " +
                                            std::to_string(group.num_blocks) + " exist"};
  }
  return {};
}

void StepLoop::cancel_all() {
  for (const auto& [id, state] : live_) cancel(id);
}

void StepLoop::apply_ends(StepUpdates& updates) {
  if (ends_wanted_.empty()) return;
  commit_time_ = config_.clock->now();
  for (EndWanted& wanted : ends_wanted_) {
    const auto it = live_.find(wanted.id);
    if (it == live_.end()) continue;
    const RequestStatePtr state = it->second;
    const bool expires = wanted.reason == core::FinishReason::kFailed;
    if (expires && state->times.admitted_seconds >= 0) continue;
    finish(*state, {.reason = wanted.reason, .error = std::move(wanted.error)}, updates);
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
  return !in_flight_.empty() || scheduler_.has_work();
}

bool StepLoop::submit_next() {
  const Stopwatch watch(*config_.clock);
  sched::PlannedStep step = scheduler_.plan(next_step_id_);
  stats_.last_plan_us = watch.seconds() * 1e6;
  if (step.batch.empty()) return false;
  note_admissions(step);
  for (const core::SequenceSlice& slice : step.batch.slices)
    stats_.num_prefill_tokens += static_cast<int64_t>(slice.tokens.size());
  runner_.submit(step.batch);
  scheduler_.step_submitted(next_step_id_);
  in_flight_.push_back({next_step_id_, std::move(step.slices)});
  ++next_step_id_;
  ++stats_.num_steps;
  return true;
}

void StepLoop::note_admissions(const sched::PlannedStep& step) {
  if (step.batch.admissions.empty()) return;
  const Clock::time_point now = config_.clock->now();
  for (const sched::PlannedSlice& slice : step.slices) {
    auto& state = static_cast<RequestState&>(*slice.sequence);
    if (state.times.admitted_seconds >= 0) continue;
    state.times.admitted_seconds = seconds_between(state.arrived, now);
    stats_.num_prompt_tokens += state.num_prompt_tokens;
  }
}

void StepLoop::commit_oldest(StepUpdates& updates) {
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  core::StepResult result = runner_.wait();
  FATHOM_CHECK(result.step_id == step.step_id && result.slices.size() == step.slices.size(),
               "step " << step.step_id << " of " << step.slices.size() << " slices, got step "
                       << result.step_id << " of " << result.slices.size());
  commit_time_ = config_.clock->now();
  scheduler_.step_done(step.step_id);
  stats_.device_seconds += result.seconds;
  for (size_t i = 0; i < step.slices.size(); ++i)
    commit_slice(step.slices[i], result.slices[i], updates);
  stats_.last_commit_us = seconds_between(commit_time_, config_.clock->now()) * 1e6;
}

void StepLoop::commit_slice(const sched::PlannedSlice& planned, core::SliceResult& result,
                            StepUpdates& updates) {
  auto& state = static_cast<RequestState&>(*planned.sequence);
  if (state.ended) {
    stats_.num_wasted_tokens += static_cast<int64_t>(result.tokens.size());
    return;
  }
  if (!result.error.empty()) {
    finish(state, {.reason = core::FinishReason::kFailed, .error = std::move(result.error)},
           updates);
    return;
  }
  // A retracted sequence computes its prompt again; what is known already stays.
  size_t index = static_cast<size_t>(planned.first_position);
  for (core::SampledToken& token : result.prompt_logprobs)
    if (index++ == state.prompt_logprobs.size()) state.prompt_logprobs.push_back(std::move(token));
  for (core::SampledToken& token : result.tokens) take_token(state, std::move(token), updates);
  if (planned.ends_prefill && state.sampling.max_new_tokens == 0)
    finish(state, {.reason = core::FinishReason::kLength}, updates);
}

void StepLoop::take_token(RequestState& state, core::SampledToken token, StepUpdates& updates) {
  const int32_t id = token.token;
  state.tokens.push_back(id);
  ++stats_.num_output_tokens;
  const auto begin = static_cast<int32_t>(updates.tokens.size());
  updates.tokens.push_back(std::move(token));
  updates.requests.push_back({.id = state.id,
                              .client_tag = state.client_tag,
                              .tokens_begin = begin,
                              .tokens_end = begin + 1});
  if (state.times.first_token_seconds < 0) {
    state.times.first_token_seconds = seconds_between(state.arrived, commit_time_);
    updates.requests.back().first_token_seconds = state.times.first_token_seconds;
  } else {
    updates.requests.back().token_gap_seconds = seconds_between(state.last_token, commit_time_);
  }
  state.last_token = commit_time_;
  if (contains(state.stop_token_ids, id)) {
    finish(state, {.reason = core::FinishReason::kStop, .matched_stop_token = id}, updates);
  } else if (state.num_output_tokens() == state.sampling.max_new_tokens) {
    finish(state, {.reason = core::FinishReason::kLength}, updates);
  }
}

void StepLoop::finish(RequestState& state, RequestEnd end, StepUpdates& updates) {
  scheduler_.remove(state);
  state.ended = true;
  end.num_retractions = state.num_retractions;
  end.num_output_tokens = state.num_output_tokens();
  end.seed = state.seed;
  end.prompt_logprobs = std::move(state.prompt_logprobs);
  end.times = state.times;
  end.times.finished_seconds = seconds_between(state.arrived, commit_time_);
  const auto num_tokens = static_cast<int32_t>(updates.tokens.size());
  // The token that ended it has just opened an update.
  if (updates.requests.empty() || updates.requests.back().id != state.id)
    updates.requests.push_back({.id = state.id,
                                .client_tag = state.client_tag,
                                .tokens_begin = num_tokens,
                                .tokens_end = num_tokens});
  updates.requests.back().end = std::make_unique<RequestEnd>(std::move(end));
  live_.erase(state.id);
}

StepLoopStats StepLoop::stats() const {
  StepLoopStats stats = stats_;
  stats.num_retractions = scheduler_.num_retractions();
  return stats;
}

std::string StepLoop::check_integrity() const { return scheduler_.check_integrity(); }

}  // namespace fathom::engine
