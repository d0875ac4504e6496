#pragma once
// ServingEngine: the engine with a thread of its own. Requests come from any thread, tokens leave through
// an UpdateSink. It runs steps while there is work and sleeps otherwise.
//
//   ServingEngine engine(*runner, {.step = {...}, .max_queued_requests = 256}, sink);
//   Result<core::RequestId> id = engine.submit({.prompt = ids, .sampling = params}, /*client_tag=*/2);
//   if (!id) return error(id.error());        // refused: nothing was queued, no update will come
//   ... sink gets the updates; the last one of each request has `end` ...
//   engine.stop(*id);  engine.cancel(*id);
//
// Every accepted request gets exactly one update with `end`. An update can reach the sink before submit() has
// returned the id. The runner, the sink and the registry outlive the engine.
// All functions are thread-safe; none of them waits for a step, but flush_cache() and pause() may.

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "base/worker_pool.h"
#include "core/request.h"
#include "engine/engine_metrics.h"
#include "engine/engine_snapshot.h"
#include "engine/step_loop.h"
#include "engine/updates.h"
#include "metrics/registry.h"
#include "runner/runner.h"

namespace fathom::engine {

class EngineObserver;

struct ServingConfig {
  StepLoopConfig step{};  // scheduler, overlap, eos ids, clock; mask_executor stays empty
  // Requests beyond those that can run at once; more are refused with kResourceEmpty.
  int max_queued_requests = 256;
  double max_queue_seconds = 600;  // a request that waits longer ends with kFailed
  int num_mask_workers = 2;
  // How often the engine checks its own state while it works, of what is cached a part each time, and all of it at
  // the end of its work; what it finds is logged and counted (fathom:invariant_violations_total), it goes on. 0 = all
  // of it after every step, for tests.
  double integrity_interval_seconds = 10;
  metrics::Registry* registry = nullptr;  // null = one of its own
  // Told once, by the engine's thread, that the runner has failed (Runner::failure()): what it had in flight has ended
  // with that error, and so will all that is still accepted.
  std::function<void(const std::string& why)> on_failure{};
};

// What becomes of the requests that a pause finds.
enum class PauseMode {
  kAbort,    // those accepted so far end with kCancelled
  kInPlace,  // they keep their slots and rows and go on as if nothing had been
  kRetract,  // they give both back and are computed again: the cache may be flushed meanwhile
};

class ServingEngine {
 public:
  // Throws StartupError when a setting is out of range.
  ServingEngine(runner::Runner& runner, ServingConfig config, UpdateSink& sink);
  // Ends what still runs (kCancelled, without updates) and joins the thread.
  ~ServingEngine();
  ServingEngine(const ServingEngine&) = delete;
  ServingEngine& operator=(const ServingEngine&) = delete;

  // Gives the request its id. Errors: kInvalidArgument, kTooLong: the request; kResourceEmpty: the queue is
  // full; kCancelled: draining, or the runner has failed.
  Result<core::RequestId> submit(core::Request request, uint32_t client_tag);
  // The request ends with kStop (a stop string matched) or kCancelled before the next step is planned. Its
  // slot and blocks are free within two steps. Unknown ids are ignored.
  void stop(core::RequestId id);
  void cancel(core::RequestId id);
  void cancel_all();
  // Whether it should run only while nobody else needs its slot or blocks, as its client does not take what it has.
  void set_gives_way(core::RequestId id, bool gives_way);

  // Forgets the prefix cache. Error kResourceEmpty when requests are running or waiting; in a pause, when some have
  // slots.
  Status flush_cache();

  // Nothing is admitted or computed until resume(). Requests are taken and wait meanwhile, with the queue's limits, and
  // may end. Returns once no step is in flight and every token that came is out. Error kCancelled: resume() or a drain
  // came first. Pausing again sets another mode.
  Status pause(PauseMode mode);
  void resume();

  // From now on submit() refuses, and a pause is over. Returns at once; has_work turns false with the last end.
  void begin_drain();

  EngineSnapshot snapshot() const;
  EngineMetrics& metrics() { return *metrics_; }
  // Requests that can run at once.
  int max_running_requests() const { return loop_->max_running_requests(); }

 private:
  struct Submission {
    core::Request request;
    uint32_t client_tag;
    Clock::time_point arrived;
  };
  struct EndCommand {
    core::RequestId id;
    core::FinishReason reason;
  };
  struct Commands {
    std::vector<Submission> submissions{};
    std::vector<EndCommand> ends{};
    std::vector<std::pair<core::RequestId, bool>> gives_way{};
    bool cancel_all = false, flush = false;
    enum class Pause { kUnchanged, kResume, kInPlace, kRetract } pause = Pause::kUnchanged;
    bool empty() const {
      return submissions.empty() && ends.empty() && gives_way.empty() && !cancel_all && !flush &&
             pause == Pause::kUnchanged;
    }
  };
  struct Deadline {
    Clock::time_point at;
    core::RequestId id;
  };

  void command_end(core::RequestId id, core::FinishReason reason);
  void resume_locked() FATHOM_REQUIRES(mutex_);

  // The engine's thread.
  void run();
  bool take_commands(bool has_work, Commands& commands);
  void apply(Commands commands, StepUpdates& updates);
  void apply_pause(Commands::Pause pause);
  void add(Submission submission, StepUpdates& updates);
  void flush();
  void expire_queued();
  void finish_step(StepUpdates updates, bool has_work);
  void publish(const StepUpdates& updates, bool has_work);
  void publish_halt(bool has_work);
  void observe_failure();
  // A job for mask_workers_, timed.
  void compute_masks(std::function<void()> job);

  const ServingConfig config_;
  const Clock& clock_;
  UpdateSink& sink_;
  const runner::Runner& runner_;
  const runner::KvGroupInfo kv_group_;
  std::unique_ptr<metrics::Registry> own_registry_;
  std::unique_ptr<EngineMetrics> metrics_;
  std::unique_ptr<WorkerPool> mask_workers_;  // outlives the loop, whose last steps may want masks
  std::unique_ptr<StepLoop> loop_;

  // Shared by all threads.
  mutable Mutex mutex_;
  CondVar wake_, flushed_, halted_;
  Commands commands_ FATHOM_GUARDED_BY(mutex_);
  bool stopping_ FATHOM_GUARDED_BY(mutex_) = false, draining_ FATHOM_GUARDED_BY(mutex_) = false;
  bool is_paused_ FATHOM_GUARDED_BY(mutex_) = false;  // or about to be
  bool is_halted_ FATHOM_GUARDED_BY(mutex_) = false;  // and no step is in flight
  core::RequestId next_id_ FATHOM_GUARDED_BY(mutex_) = 1;
  int64_t num_accepted_ FATHOM_GUARDED_BY(mutex_) = 0, num_live_ FATHOM_GUARDED_BY(mutex_) = 0;
  int64_t num_flushes_wanted_ FATHOM_GUARDED_BY(mutex_) = 0;
  int64_t num_flushes_done_ FATHOM_GUARDED_BY(mutex_) = 0;
  Clock::time_point last_progress_ FATHOM_GUARDED_BY(mutex_){};
  EngineSnapshot published_ FATHOM_GUARDED_BY(mutex_);

  // The engine's thread's own.
  std::deque<Deadline> deadlines_;  // of requests in the queue, and some that left it
  std::unique_ptr<EngineObserver> observer_;
  bool has_failed_ = false;

  metrics::Registry::Collector collector_;
  std::thread thread_;
};

}  // namespace fathom::engine
