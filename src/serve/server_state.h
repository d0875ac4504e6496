#pragma once
// ServerState: what the handlers of all routes share. Internal to the server; ApiServer owns it.
//
//   void add_health_routes(http::Router& router, ServerState& state);
//
// `phase` guards what becomes known late: `engine`, `facts` and model.max_context_tokens are written before
// it turns kReady and read only by those who saw that.

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "answer/generation_service.h"
#include "api/responses/response_store.h"
#include "api/tables/api_error.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/worker_pool.h"
#include "page/stats_history.h"
#include "serve/api_server.h"
#include "serve/key_tokens.h"
#include "serve/skipped_fields.h"
#include "serve/span_exporter.h"

namespace fathom::serve {

enum class Phase { kLoading, kReady, kDraining };

struct ServerState {
  explicit ServerState(ApiConfig api_config);

  // Why requests are refused now; empty when they are taken.
  std::optional<api::ApiError> refusal() const;
  // Runs a job on a worker, in turns with those of other keys, or answers 429. A job that throws is answered here: 503
  // when there was no memory.
  void run_on_worker(const http::ExchangePtr& exchange, std::function<void()> job);
  // The same for a job that compiles a grammar. Those have a worker of their own: whoever asks for no grammar never
  // waits for one, and keys take turns.
  void run_compiling(const http::ExchangePtr& exchange, std::function<void()> job);

  ApiConfig config;
  const int64_t created;  // unix seconds
  std::atomic<Phase> phase{Phase::kLoading};
  std::atomic<bool> has_ended{false};  // the transport has stopped
  engine::ServingEngine* engine = nullptr;
  EngineFacts facts;

  Mutex loading_mutex;
  std::string loading_phase FATHOM_GUARDED_BY(loading_mutex) = "starting";
  double loading_fraction FATHOM_GUARDED_BY(loading_mutex) = 0;
  Stopwatch loading_watch FATHOM_GUARDED_BY(loading_mutex);  // since the phase began

  api::ResponseStore responses;  // of /v1/responses
  metrics::Registry registry;
  SkippedFields skipped_fields;
  KeyTokens key_tokens;
  // Probes answered 503: an alert on failures of the server leaves them out.
  metrics::Counter& probe_refusals;
  SpanCounters span_counters;
  std::optional<SpanExporter> spans;  // where they go somewhere
  page::StatsHistory history;
  answer::GenerationService generation;
  metrics::Registry::Collector collector, response_collector, process_collector;
  // Runs a task on an I/O thread once the time is over; dropped when the transport stops. Set with the transport.
  std::function<void(std::chrono::milliseconds delay, std::function<void()> task)> post_after;
  // Declared last, so that they end before what their jobs use. Long bodies have workers of their own, with a lower
  // priority, so that a short body never waits behind a long one.
  WorkerPool workers, long_body_workers, grammar_workers;
};

// For a job that has read its body, before it answers or starts anything: a long stream must not keep the body, and
// what reading a long one took goes back to the system. Not later: what a thread makes lies in a heap of its own, which
// is locked while it gives back, and the thread that frees an answer would wait for that, and all its connections too.
void drop_body(const http::ExchangePtr& exchange);
// Answers on the exchange's own thread, from wherever the caller is.
void send_later(const http::ExchangePtr& exchange, http::Response response);
http::Response text_response(std::string text);
http::Response json_response(const json::Value& value);

// What /readyz says, and whether requests are taken.
struct Readiness {
  bool takes_requests = false;
  json::Box body{};  // {"status": "ready", ...}
};
Readiness readiness(ServerState& state);

void add_health_routes(http::Router& router, ServerState& state);
void add_generation_routes(http::Router& router, ServerState& state);
void add_response_routes(http::Router& router, ServerState& state);
void add_info_routes(http::Router& router, ServerState& state);
void add_admin_routes(http::Router& router, ServerState& state);
// After all the others: it describes them.
void add_doc_routes(http::Router& router, ServerState& state);

}  // namespace fathom::serve
