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
// Every accepted request gets exactly one update with `end`. The runner and the sink outlive the engine.
// All functions are thread-safe.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "core/request.h"
#include "engine/step_loop.h"
#include "engine/updates.h"
#include "runner/runner.h"

namespace fathom::engine {

struct ServingConfig {
  StepLoopConfig step{};           // scheduler, overlap, eos ids
  int max_queued_requests = 256;   // waiting ones; more are refused with kResourceEmpty
  double max_queue_seconds = 600;  // a request that waits longer ends with kFailed
  int num_mask_workers = 2;
};

// One consistent look at the engine, for /server_info, /stats and /metrics.
struct EngineSnapshot {
  int num_running = 0, num_waiting = 0;
  int64_t num_blocks = 0, num_free_blocks = 0, num_cached_blocks = 0,
          num_fenced_blocks = 0;  // KV group 0
  int block_tokens = 64;
  int64_t num_steps = 0, num_prompt_tokens = 0, num_cached_tokens = 0, num_output_tokens = 0;
  int64_t num_retractions = 0;
  double seconds_since_progress = 0;  // while there is work: since a step last ended; 0 when idle
  bool has_work = false;
};

class ServingEngine {
 public:
  ServingEngine(runner::Runner& runner, ServingConfig config, UpdateSink& sink);
  // Ends what still runs (kCancelled, without updates) and joins the thread.
  ~ServingEngine();

  // Errors: kInvalidArgument, kTooLong: the request; kResourceEmpty: the queue is full; kCancelled: draining.
  Result<core::RequestId> submit(core::Request request, uint32_t client_tag);
  // The request ends with kStop (a stop string matched) or kCancelled before the next step is planned. Its
  // slot and blocks are free within two steps. Unknown ids are ignored.
  void stop(core::RequestId id);
  void cancel(core::RequestId id);
  void cancel_all();

  // Forgets the prefix cache. Error kResourceEmpty when requests are running or waiting.
  Status flush_cache();

  // From now on submit() refuses. Returns at once; has_work() turns false when the last request ended.
  void begin_drain();

  EngineSnapshot snapshot() const;
};

}  // namespace fathom::engine
