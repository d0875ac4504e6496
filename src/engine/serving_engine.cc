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
#include "engine/engine_observer.h"

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
  observer_ = std::make_unique<EngineObserver>(
      *metrics_, ObserverConfig{.clock = config_.step.clock,
                                .block_tokens = kv_group_.block_tokens,
                                .max_step_seconds = config_.step.max_step_seconds,
                                .integrity_interval_seconds = config_.integrity_interval_seconds});
  publish({}, false);
  collector_ = registry.add_collector([this] { show(snapshot(), *metrics_); });
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
    const MutexLock lock(mutex_);
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
    const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  if (num_live_ == 0) return;
  commands_.ends.push_back({id, reason});
  // While the id lives the engine's thread is awake, but for a pause.
  if (is_paused_) wake_.notify_one();
}

void ServingEngine::cancel_all() {
  const MutexLock lock(mutex_);
  commands_.cancel_all = num_live_ > 0;
  if (is_paused_) wake_.notify_one();
}

void ServingEngine::set_gives_way(core::RequestId id, bool gives_way) {
  const MutexLock lock(mutex_);
  if (num_live_ == 0) return;
  // While the id lives the engine's thread is awake, or will be when a pause ends.
  commands_.gives_way.emplace_back(id, gives_way);
}

Status ServingEngine::flush_cache() {
  MutexLock lock(mutex_);
  const bool is_in_use = is_halted_ ? published_.num_running > 0 : num_live_ > 0;
  if (is_in_use)
    return Error{ErrorCode::kResourceEmpty, std::to_string(num_live_) +
                                                " requests are running or waiting, the cache is "
                                                "flushed only without any"};
  commands_.flush = true;
  const int64_t ticket = ++num_flushes_wanted_;
  wake_.notify_one();
  flushed_.wait(lock,
                [&]() FATHOM_REQUIRES(mutex_) { return num_flushes_done_ >= ticket || stopping_; });
  if (num_flushes_done_ < ticket)
    return Error{ErrorCode::kCancelled, "the server is shutting down"};
  return {};
}

Status ServingEngine::pause(PauseMode mode) {
  using Pause = Commands::Pause;
  MutexLock lock(mutex_);
  if (!draining_ && !stopping_) {
    commands_.pause = mode == PauseMode::kRetract ? Pause::kRetract : Pause::kInPlace;
    commands_.cancel_all = commands_.cancel_all || mode == PauseMode::kAbort;
    is_paused_ = true;
    is_halted_ = false;
    wake_.notify_one();
    halted_.wait(lock,
                 [&]() FATHOM_REQUIRES(mutex_) { return is_halted_ || !is_paused_ || stopping_; });
    if (is_halted_) return {};
  }
  if (draining_ || stopping_) return Error{ErrorCode::kCancelled, "the server is shutting down"};
  return Error{ErrorCode::kCancelled, "the pause was ended before the engine had come to a halt"};
}

void ServingEngine::resume() {
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  draining_ = true;
  resume_locked();
}

EngineSnapshot ServingEngine::snapshot() const {
  const MutexLock lock(mutex_);
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
  MutexLock lock(mutex_);
  const auto is_wanted = [&]() FATHOM_REQUIRES(mutex_) { return stopping_ || !commands_.empty(); };
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
  if (may_work && !loop_->is_paused()) observer_->work_begins();
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
  observer_->count_added();
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
    const MutexLock lock(mutex_);
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
    }
    deadlines_.pop_front();
  }
}

void ServingEngine::finish_step(StepUpdates updates, bool has_work) {
  const trace::Span span("engine", "hand over");
  const Clock::time_point begin = clock_.now();
  observer_->observe(loop_->stats(), updates);
  observer_->check_when_due(*loop_, has_work);
  publish(updates, has_work);
  if (updates.requests.empty()) return;
  sink_.on_updates(std::make_shared<const StepUpdates>(std::move(updates)));
  metrics_->steps.hand_over_seconds.observe(seconds_between(begin, clock_.now()));
}

void ServingEngine::publish(const StepUpdates& updates, bool has_work) {
  EngineSnapshot look = observer_->look(*loop_, has_work);
  look.failure = runner_.failure();
  const Clock::time_point now = clock_.now();
  const int64_t num_ends =
      std::count_if(updates.requests.begin(), updates.requests.end(),
                    [](const RequestUpdate& update) { return update.end != nullptr; });
  const MutexLock lock(mutex_);
  published_ = std::move(look);
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
  const MutexLock lock(mutex_);
  if (commands_.pause != Commands::Pause::kUnchanged || is_halted_) return;
  is_halted_ = true;
  halted_.notify_all();
}

}  // namespace fathom::engine
