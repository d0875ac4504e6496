#include "engine/serving_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/startup_error.h"
#include "base/trace.h"

namespace fathom::engine {
namespace {

// How often requests that wait in a pause are looked through for those that have waited too long.
constexpr std::chrono::milliseconds kDeadlineInterval{100};
constexpr std::chrono::milliseconds kSlowStep{250};  // failpoint serving_engine.slow_step

ServingConfig checked(ServingConfig config) {
  if (config.max_queued_requests < 0)
    throw StartupError("max_queued_requests is " + std::to_string(config.max_queued_requests) +
                       ", must be >= 0");
  if (!std::isfinite(config.max_queue_seconds) || config.max_queue_seconds <= 0)
    throw StartupError("max_queue_seconds is " + std::to_string(config.max_queue_seconds) +
                       ", must be > 0");
  if (config.step.mask_executor)
    throw StartupError("step.mask_executor is set, the serving engine brings its own");
  if (config.num_mask_workers < 1 || config.num_mask_workers > 64)
    throw StartupError("num_mask_workers is " + std::to_string(config.num_mask_workers) +
                       ", must be in [1, 64]");
  if (!std::isfinite(config.integrity_interval_seconds) || config.integrity_interval_seconds < 0)
    throw StartupError("integrity_interval_seconds is " +
                       std::to_string(config.integrity_interval_seconds) + ", must be >= 0");
  return config;
}

Clock::time_point after(Clock::time_point now, double seconds) {
  return now + std::chrono::duration_cast<Clock::time_point::duration>(
                   std::chrono::duration<double>(seconds));
}

}  // namespace

ServingEngine::ServingEngine(runner::Runner& runner, ServingConfig config, UpdateSink& sink)
    : config_(checked(std::move(config))),
      clock_(*config_.step.clock),
      sink_(sink),
      runner_(runner),
      kv_group_(runner.info().kv_groups.at(0)),
      own_registry_(config_.registry == nullptr ? std::make_unique<metrics::Registry>() : nullptr) {
  metrics::Registry& registry = own_registry_ ? *own_registry_ : *config_.registry;
  metrics_ = std::make_unique<EngineMetrics>(
      registry,
      EngineDimensions{.block_tokens = kv_group_.block_tokens,
                       .num_blocks = int64_t{runner.info().num_lanes} * kv_group_.num_blocks,
                       .max_context_tokens = runner.info().max_context_tokens,
                       .num_lanes = runner.info().num_lanes});
  // At most two jobs a step in flight: their number needs no bound.
  mask_workers_ = std::make_unique<WorkerPool>(
      WorkerPoolConfig{.name = "mask worker",
                       .num_threads = config_.num_mask_workers,
                       .max_queued_jobs = std::numeric_limits<int>::max()});
  StepLoopConfig step = config_.step;
  step.mask_executor = [this](std::function<void()> job) { compute_masks(std::move(job)); };
  loop_ = std::make_unique<StepLoop>(runner, std::move(step));
  publish({}, false);
  next_check_ = after(clock_.now(), config_.integrity_interval_seconds);
  collector_ = registry.add_collector([this] { refresh_metrics(); });
  thread_ = std::thread([this] { run(); });
}

void ServingEngine::compute_masks(std::function<void()> job) {
  const bool posted = mask_workers_->post([this, job = std::move(job)] {
    const trace::Span span("mask", "fill");
    const Stopwatch watch;
    job();
    metrics_->steps.mask_seconds.observe(watch.seconds());
  });
  FATHOM_CHECK(posted, "a mask job was refused");
}

ServingEngine::~ServingEngine() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  // What the loop still has in flight may wait for masks, so it goes before their workers.
  loop_.reset();
}

// ---- any thread ----

Result<core::RequestId> ServingEngine::submit(core::Request request, uint32_t client_tag) {
  EngineTotals& totals = metrics_->totals;
  if (Status status = loop_->check(request); !status) {
    totals.rejected_invalid.add();
    return status.error();
  }
  const auto num_prompt_tokens = static_cast<double>(request.prompt.size());
  core::RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stopping_ || !published_.failure.empty()) {
      totals.rejected_draining.add();
      return Error{ErrorCode::kCancelled, "the server is shutting down"};
    }
    const int64_t most = int64_t{max_running_requests()} + config_.max_queued_requests;
    if (num_live_ >= most) {
      totals.rejected_queue_full.add();
      return Error{ErrorCode::kResourceEmpty, "the queue is full: " + std::to_string(num_live_) +
                                                  " requests of at most " + std::to_string(most) +
                                                  " are running or waiting"};
    }
    const Clock::time_point now = clock_.now();
    if (num_live_ == 0) last_progress_ = now;
    ++num_live_;
    ++num_accepted_;
    id = request.id = next_id_++;
    commands_.submissions.push_back({std::move(request), client_tag, now});
  }
  wake_.notify_one();
  metrics_->requests.prompt_tokens.observe(num_prompt_tokens);
  return id;
}

void ServingEngine::stop(core::RequestId id) { command_end(id, core::FinishReason::kStop); }

void ServingEngine::cancel(core::RequestId id) { command_end(id, core::FinishReason::kCancelled); }

void ServingEngine::command_end(core::RequestId id, core::FinishReason reason) {
  const std::lock_guard lock(mutex_);
  if (num_live_ == 0) return;
  commands_.ends.push_back({id, reason});
  // While the id lives the engine's thread is awake, but for a pause.
  if (is_paused_) wake_.notify_one();
}

void ServingEngine::cancel_all() {
  const std::lock_guard lock(mutex_);
  commands_.cancel_all = num_live_ > 0;
  if (is_paused_) wake_.notify_one();
}

void ServingEngine::set_gives_way(core::RequestId id, bool gives_way) {
  const std::lock_guard lock(mutex_);
  if (num_live_ == 0) return;
  // While the id lives the engine's thread is awake, or will be when a pause ends.
  commands_.gives_way.emplace_back(id, gives_way);
}

Status ServingEngine::flush_cache() {
  std::unique_lock lock(mutex_);
  const bool is_in_use = is_halted_ ? published_.num_running > 0 : num_live_ > 0;
  if (is_in_use)
    return Error{ErrorCode::kResourceEmpty, std::to_string(num_live_) +
                                                " requests are running or waiting, the cache is "
                                                "flushed only without any"};
  commands_.flush = true;
  const int64_t ticket = ++num_flushes_wanted_;
  wake_.notify_one();
  flushed_.wait(lock, [&] { return num_flushes_done_ >= ticket || stopping_; });
  if (num_flushes_done_ < ticket)
    return Error{ErrorCode::kCancelled, "the server is shutting down"};
  return {};
}

Status ServingEngine::pause(PauseMode mode) {
  using Pause = Commands::Pause;
  std::unique_lock lock(mutex_);
  if (!draining_ && !stopping_) {
    commands_.pause = mode == PauseMode::kRetract ? Pause::kRetract : Pause::kInPlace;
    commands_.cancel_all = commands_.cancel_all || mode == PauseMode::kAbort;
    is_paused_ = true;
    is_halted_ = false;
    wake_.notify_one();
    halted_.wait(lock, [&] { return is_halted_ || !is_paused_ || stopping_; });
    if (is_halted_) return {};
  }
  if (draining_ || stopping_) return Error{ErrorCode::kCancelled, "the server is shutting down"};
  return Error{ErrorCode::kCancelled, "the pause was ended before the engine had come to a halt"};
}

void ServingEngine::resume() {
  const std::lock_guard lock(mutex_);
  resume_locked();
}

void ServingEngine::resume_locked() {
  if (!is_paused_) return;
  commands_.pause = Commands::Pause::kResume;
  is_paused_ = is_halted_ = false;
  last_progress_ = clock_.now();
  wake_.notify_one();
  halted_.notify_all();
}

void ServingEngine::begin_drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  resume_locked();
}

EngineSnapshot ServingEngine::snapshot() const {
  const std::lock_guard lock(mutex_);
  EngineSnapshot snapshot = published_;
  snapshot.num_waiting = static_cast<int>(std::max<int64_t>(num_live_ - snapshot.num_running, 0));
  snapshot.num_received = num_accepted_;
  snapshot.has_work = num_live_ > 0;
  snapshot.draining = draining_;
  snapshot.paused = is_paused_;
  if (snapshot.has_work && !is_paused_)
    snapshot.seconds_since_progress = std::max(seconds_between(last_progress_, clock_.now()), 0.0);
  return snapshot;
}

void ServingEngine::refresh_metrics() {
  const EngineSnapshot now = snapshot();
  const auto rows = [&](int64_t blocks) { return static_cast<double>(blocks * now.block_tokens); };
  EngineLoad& load = metrics_->load;
  load.num_running.set(now.num_running);
  load.num_waiting.set(now.num_waiting);
  load.kv_usage_ratio.set(static_cast<double>(now.num_used_blocks()) /
                          static_cast<double>(std::max<int64_t>(now.num_blocks, 1)));
  load.kv_used_tokens.set(rows(now.num_used_blocks()));
  load.kv_available_tokens.set(rows(now.num_free_blocks));
  load.kv_evictable_tokens.set(rows(now.num_cached_blocks));
  load.kv_fenced_tokens.set(rows(now.num_fenced_blocks));
  load.cache_hit_rate.set(now.cache_hit_rate);
  load.generation_tokens_per_second.set(now.has_work ? now.generation_tokens_per_second : 0);
  load.seconds_since_progress.set(now.seconds_since_progress);
  load.paused.set(now.paused ? 1 : 0);
  for (size_t lane = 0; lane < metrics_->lanes.size(); ++lane) {
    metrics_->lanes[lane].num_running->set(now.lanes[lane].num_running);
    metrics_->lanes[lane].kv_used_tokens->set(rows(now.lanes[lane].num_used_blocks()));
  }

  EngineTotals& totals = metrics_->totals;
  const auto set = [](metrics::Counter& counter, int64_t total) {
    counter.set_total(static_cast<double>(total));
  };
  set(totals.prompt_tokens, now.num_prompt_tokens);
  set(totals.cached_tokens, now.num_cached_tokens);
  set(totals.prefill_tokens, now.num_prefill_tokens);
  set(totals.generation_tokens, now.num_output_tokens);
  set(totals.wasted_tokens, now.num_wasted_tokens);
  set(totals.evicted_tokens, now.num_evicted_tokens);
  set(totals.steps, now.num_steps);
  set(totals.retractions, now.num_retractions);
  set(totals.grammar_dead_ends, now.grammar_failures.num_dead_ends);
  set(totals.grammar_refusals, now.grammar_failures.num_refusals);
  set(totals.grammar_without_memory, now.grammar_failures.num_without_memory);
  set(totals.requests_received, now.num_received);
  refresh_speculation_metrics(now.speculation);
  refresh_step_time_metrics(now.step_time);
}

void ServingEngine::refresh_step_time_metrics(const StepTimeSnapshot& now) {
  StepTimeMetrics& metrics = metrics_->step_time;
  metrics.bound_seconds.set(now.bound_seconds);
  metrics.longest_seconds.set(now.longest_seconds);
  metrics.predicted_seconds.set(now.predicted_seconds);
  metrics.error.set(now.error);
  metrics.steps.set_total(static_cast<double>(now.num_steps));
  metrics.cut_steps.set_total(static_cast<double>(now.num_cut));
  metrics.steps_over.set_total(static_cast<double>(now.num_over));
}

void ServingEngine::refresh_speculation_metrics(const SpeculationSnapshot& now) {
  SpeculationMetrics& metrics = metrics_->speculation;
  metrics.num_drafts.set(now.num_drafts);
  metrics.accept_length.set(now.accept_length);
  metrics.accept_rate.set(now.accept_rate);
  const auto set = [](metrics::Counter& counter, int64_t total) {
    counter.set_total(static_cast<double>(total));
  };
  set(metrics.verify_slices, now.num_verify_slices);
  set(metrics.proposed_drafts, now.num_drafts_proposed);
  set(metrics.verified_drafts, now.num_drafts_verified);
  set(metrics.accepted_drafts, now.num_drafts_accepted);
}

// ---- the engine's thread ----

void ServingEngine::run() {
  // A step serves everybody and is not written to be cut anywhere.
  const memory::MustSucceed scope;
  trace::set_thread_name("engine");
  bool has_work = false;
  Commands commands;
  while (take_commands(has_work, commands)) {
    StepUpdates updates;
    apply(std::exchange(commands, {}), updates);
    expire_queued();
    if (failpoint("serving_engine.slow_step")) std::this_thread::sleep_for(kSlowStep);
    has_work = loop_->step(updates);
    finish_step(std::move(updates), has_work);
    observe_failure();
    publish_halt(has_work);
  }
}

// Sleeps while there is neither work nor a command. False = the end.
bool ServingEngine::take_commands(bool has_work, Commands& commands) {
  std::unique_lock lock(mutex_);
  const auto is_wanted = [&] { return stopping_ || !commands_.empty(); };
  if (!has_work) {
    if (loop_->is_paused() && !deadlines_.empty())
      wake_.wait_for(lock, kDeadlineInterval, is_wanted);
    else
      wake_.wait(lock, is_wanted);
  }
  std::swap(commands, commands_);
  if (stopping_) {
    flushed_.notify_all();
    halted_.notify_all();
  }
  return !stopping_;
}

void ServingEngine::apply(Commands commands, StepUpdates& updates) {
  // Before the submissions: a flush is accepted only while there is no request.
  if (commands.flush) flush();
  apply_pause(commands.pause);
  const bool may_work = !commands.submissions.empty() || loop_->num_live() > 0;
  if (may_work && !loop_->is_paused() && !had_work_) {
    rates_.open(clock_.now(), rate_totals());
    had_work_ = true;
  }
  for (Submission& submission : commands.submissions) add(std::move(submission), updates);
  for (const EndCommand& end : commands.ends)
    end.reason == core::FinishReason::kStop ? loop_->stop(end.id) : loop_->cancel(end.id);
  if (commands.cancel_all) loop_->cancel_all();
  for (const auto& [id, gives_way] : commands.gives_way) loop_->set_gives_way(id, gives_way);
}

void ServingEngine::apply_pause(Commands::Pause pause) {
  using Pause = sched::Scheduler::Pause;
  switch (pause) {
    case Commands::Pause::kUnchanged:
      return;
    case Commands::Pause::kResume:
      return loop_->resume();
    case Commands::Pause::kInPlace:
      return loop_->pause(Pause::kKeepRunning);
    case Commands::Pause::kRetract:
      return loop_->pause(Pause::kRetract);
  }
}

void ServingEngine::add(Submission submission, StepUpdates& updates) {
  const core::RequestId id = submission.request.id;
  ++num_added_;
  // It was checked by submit(); should it be refused all the same, it fails alone.
  Status status =
      failpoint("serving_engine.add")
          ? Status(Error{ErrorCode::kInternal, "failpoint serving_engine.add"})
          : loop_->add(std::move(submission.request), submission.client_tag, submission.arrived);
  if (status) {
    deadlines_.push_back({after(submission.arrived, config_.max_queue_seconds), id});
    return;
  }
  FATHOM_LOG(kError, "engine", "request refused after it was accepted",
             {{"error", status.error().message}});
  const auto num_tokens = static_cast<int32_t>(updates.tokens.size());
  RequestUpdate update{.id = id,
                       .client_tag = submission.client_tag,
                       .tokens_begin = num_tokens,
                       .tokens_end = num_tokens};
  update.end = std::make_unique<RequestEnd>();
  update.end->reason = core::FinishReason::kFailed;
  update.end->error = "internal error";
  update.end->times.finished_seconds = seconds_between(submission.arrived, clock_.now());
  updates.requests.push_back(std::move(update));
}

void ServingEngine::flush() {
  // Requests have ended, but the steps that release their slots may still be in flight.
  StepUpdates none;
  while (loop_->step(none)) {
  }
  Status flushed = loop_->flush_cache();
  FATHOM_CHECK(flushed, flushed.error().message);
  {
    const std::lock_guard lock(mutex_);
    num_flushes_done_ = num_flushes_wanted_;
  }
  flushed_.notify_all();
}

void ServingEngine::expire_queued() {
  while (!deadlines_.empty()) {
    const Deadline& first = deadlines_.front();
    if (loop_->is_queued(first.id)) {
      if (clock_.now() < first.at) return;
      const auto seconds = static_cast<int64_t>(config_.max_queue_seconds);
      loop_->expire(first.id, "waited more than " + std::to_string(seconds) +
                                  " seconds in the queue, the limit");
      metrics_->totals.queue_timeouts.add();
    }
    deadlines_.pop_front();
  }
}

void ServingEngine::finish_step(StepUpdates updates, bool has_work) {
  const trace::Span span("engine", "hand over");
  const Clock::time_point begin = clock_.now();
  observe_step(loop_->stats());
  observe(updates);
  if (begin >= next_check_) {
    check_invariants();
    next_check_ = after(begin, config_.integrity_interval_seconds);
  }
  publish(updates, has_work);
  if (updates.requests.empty()) return;
  sink_.on_updates(std::make_shared<const StepUpdates>(std::move(updates)));
  metrics_->steps.hand_over_seconds.observe(seconds_between(begin, clock_.now()));
}

void ServingEngine::observe_step(const StepLoopStats& stats) {
  StepHistograms& steps = metrics_->steps;
  if (stats.num_steps > last_stats_.num_steps)
    steps.plan_seconds.observe(stats.last_plan_us * 1e-6);
  if (stats.num_committed_steps > last_stats_.num_committed_steps) {
    steps.commit_seconds.observe(stats.last_commit_us * 1e-6);
    steps.step_seconds.observe(stats.wall_seconds - last_stats_.wall_seconds);
    if (stats.last_forward_seconds >= 0) steps.forward_seconds.observe(stats.last_forward_seconds);
    if (stats.last_sampling_seconds >= 0)
      steps.sampling_seconds.observe(stats.last_sampling_seconds);
    steps.mask_wait_seconds.observe(stats.last_mask_wait_seconds);
  }
  if (stats.step_time.num_steps > last_stats_.step_time.num_steps)
    step_times_.add(clock_.now(), {.seconds = stats.step_time.last_seconds,
                                   .predicted_seconds = stats.step_time.last_predicted_seconds});
  last_stats_ = stats;
}

void ServingEngine::observe(const StepUpdates& updates) {
  RequestHistograms& requests = metrics_->requests;
  // Requests that decode together have the same gap: one observation for all of them. Tokens that came together
  // share theirs.
  double gap = -1;
  uint64_t count = 0;
  for (const RequestUpdate& update : updates.requests) {
    if (update.first_token_seconds >= 0)
      requests.time_to_first_token_seconds.observe(update.first_token_seconds);
    if (update.token_gap_seconds >= 0) {
      const int32_t num_tokens = update.tokens_end - update.tokens_begin;
      const double token_gap = update.token_gap_seconds / num_tokens;
      if (token_gap != gap && count > 0)
        requests.inter_token_latency_seconds.observe(gap, std::exchange(count, 0));
      gap = token_gap;
      count += static_cast<uint64_t>(num_tokens);
    }
    if (!update.end) continue;
    const RequestEnd& end = *update.end;
    ++num_ended_;
    metrics_->totals.count_end(end.reason);
    requests.e2e_latency_seconds.observe(end.times.finished_seconds);
    requests.generation_tokens.observe(end.num_output_tokens);
    if (end.times.admitted_seconds >= 0) requests.queue_seconds.observe(end.times.admitted_seconds);
    if (end.times.first_token_seconds < 0) continue;
    requests.prefill_seconds.observe(end.times.first_token_seconds - end.times.admitted_seconds);
    requests.decode_seconds.observe(end.times.finished_seconds - end.times.first_token_seconds);
  }
  if (count > 0) requests.inter_token_latency_seconds.observe(gap, count);
}

void ServingEngine::check_invariants() {
  const trace::Span span("engine", "check integrity");
  const std::string wrong = failpoint("serving_engine.integrity")
                                ? "failpoint serving_engine.integrity"
                                : loop_->check_integrity();
  if (!wrong.empty()) {
    ++num_violations_;
    metrics_->totals.integrity_violations.add();
    FATHOM_LOG(kError, "engine", "integrity violated", {{"what", wrong}});
  }
  if (num_added_ != num_ended_ + loop_->num_live()) {
    ++num_violations_;
    metrics_->totals.accounting_violations.add();
    FATHOM_LOG(kError, "engine", "accounting violated",
               {{"added", num_added_}, {"ended", num_ended_}, {"live", loop_->num_live()}});
  }
}

RateWindow::Totals ServingEngine::rate_totals() const {
  return {.prompt_tokens = last_stats_.num_prompt_tokens,
          .cached_tokens = last_stats_.num_cached_tokens,
          .output_tokens = last_stats_.num_output_tokens,
          .verify_slices = last_stats_.num_verify_slices,
          .verified_drafts = last_stats_.num_drafts_verified,
          .accepted_drafts = last_stats_.num_drafts_accepted};
}

SpeculationSnapshot ServingEngine::speculation() const {
  if (loop_->max_drafts() == 0) return {};
  return {.max_drafts = loop_->max_drafts(),
          .num_drafts = loop_->num_drafts(),
          .num_verify_slices = last_stats_.num_verify_slices,
          .num_drafts_proposed = last_stats_.num_drafts_proposed,
          .num_drafts_verified = last_stats_.num_drafts_verified,
          .num_drafts_accepted = last_stats_.num_drafts_accepted,
          .accept_length = rates_.accept_length(),
          .accept_rate = rates_.accept_rate()};
}

StepTimeSnapshot ServingEngine::step_time() const {
  const StepTimeStats& stats = last_stats_.step_time;
  const StepTimeWindow::Step& longest = step_times_.longest();
  return {.bound_seconds = config_.step.max_step_seconds,
          .longest_seconds = longest.seconds,
          .predicted_seconds = longest.predicted_seconds,
          .error = stats.error,
          .num_steps = stats.num_steps,
          .num_cut = stats.num_cut,
          .num_over = stats.num_over};
}

std::vector<LaneSnapshot> ServingEngine::lanes() const {
  std::vector<LaneSnapshot> all;
  for (const sched::Lane& lane : loop_->scheduler().lanes()) {
    const sched::KvUsage blocks = lane.blocks.usage();
    all.push_back({.num_running = static_cast<int>(lane.running.size()),
                   .num_blocks = blocks.num_blocks,
                   .num_free_blocks = blocks.num_free,
                   .num_cached_blocks = blocks.num_evictable,
                   .num_fenced_blocks = blocks.num_fenced});
  }
  return all;
}

void ServingEngine::publish(const StepUpdates& updates, bool has_work) {
  const Clock::time_point now = clock_.now();
  const StepLoopStats& stats = last_stats_;
  const RateWindow::Totals totals = rate_totals();
  if (had_work_) has_work ? rates_.advance(now, totals) : rates_.close(now, totals);
  had_work_ = has_work;
  if (!has_work) step_times_.clear();

  const sched::KvUsage blocks = loop_->scheduler().kv_usage();
  EngineSnapshot look{.num_running = loop_->num_running(),
                      .num_waiting = loop_->num_waiting(),
                      .num_blocks = blocks.num_blocks,
                      .num_free_blocks = blocks.num_free,
                      .num_cached_blocks = blocks.num_evictable,
                      .num_fenced_blocks = blocks.num_fenced,
                      .block_tokens = kv_group_.block_tokens,
                      .num_steps = stats.num_steps,
                      .num_prompt_tokens = stats.num_prompt_tokens,
                      .num_cached_tokens = stats.num_cached_tokens,
                      .num_output_tokens = stats.num_output_tokens,
                      .num_prefill_tokens = stats.num_prefill_tokens,
                      .num_wasted_tokens = stats.num_wasted_tokens,
                      .num_evicted_tokens = stats.num_evicted_blocks * kv_group_.block_tokens,
                      .num_retractions = stats.num_retractions,
                      .grammar_failures = stats.grammar_failures,
                      .num_ended = num_ended_,
                      .num_violations = num_violations_,
                      .generation_tokens_per_second = rates_.tokens_per_second(),
                      .cache_hit_rate = rates_.hit_rate(),
                      .speculation = speculation(),
                      .step_time = step_time(),
                      .failure = runner_.failure(),
                      .lanes = lanes()};
  const int64_t num_ends =
      std::count_if(updates.requests.begin(), updates.requests.end(),
                    [](const RequestUpdate& update) { return update.end != nullptr; });
  const std::lock_guard lock(mutex_);
  published_ = look;
  num_live_ -= num_ends;
  last_progress_ = now;
}

// Once the updates are out: whoever is told may end the server.
void ServingEngine::observe_failure() {
  if (has_failed_ || runner_.failure().empty()) return;
  has_failed_ = true;
  if (config_.on_failure) config_.on_failure(runner_.failure());
}

// Once the updates are out: whoever paused sees what came before.
void ServingEngine::publish_halt(bool has_work) {
  if (has_work || !loop_->is_paused()) return;
  const std::lock_guard lock(mutex_);
  if (commands_.pause != Commands::Pause::kUnchanged || is_halted_) return;
  is_halted_ = true;
  halted_.notify_all();
}

}  // namespace fathom::engine
