#pragma once
// ApiServer: the API above the transport and the engine. It registers every route, owns the requests that
// are being answered, and is there before the engine is, so that /livez and /readyz answer while the
// weights load.
//
//   ApiServer api({.model = model, .settings = settings});
//   http::Router router;
//   api.register_routes(router);
//   http::Server http(http_config, std::move(router));
//   api.set_transport(http);
//   http.start();                                        // /livez answers from here on
//   ... load the weights, api.set_loading("weights", 0.4) ...
//   engine::ServingEngine engine(runner, {.registry = &api.registry(), ...}, api.update_sink());
//   api.set_ready(engine, facts);
//   ... a signal: api.begin_drain(); http.wait_idle(timeout); api.fail_open_requests() ...
//   http.stop();  api.detach_engine();
//
// Public functions are thread-safe. Outlives the transport and the engine.

#include <functional>
#include <memory>
#include <string>

#include "api/responses/response_store.h"
#include "api/served_model.h"
#include "base/json_fwd.h"
#include "engine/serving_engine.h"
#include "http/router.h"
#include "http/server.h"
#include "metrics/registry.h"

namespace fathom::serve {

// Bytes of memory that a byte of a body may cost: the body itself, the values of its JSON (kMaxValueBytesPerByte in
// api/request_fields.h), its texts and its tokens. http::Limits::max_bodies_bytes times this bounds what all bodies in
// work take together.
inline constexpr int64_t kBodyMemoryPerByte = 8;

struct ApiConfig {
  api::ServedModel model;                // max_context_tokens is set by set_ready()
  std::string model_type, architecture;  // of config.json
  int num_workers = 2;
  int max_queued_jobs = 1024;  // requests waiting for a worker; more are refused with 429
  // For metrics, as the transport's limit enforces it, and of grammars. 0: none is known.
  int64_t max_body_memory_bytes = 0;
  api::ResponseStore::Limits response_store = {};  // no responses: nothing is kept
  bool log_requests = true;  // an access line for each request: on_answer and log_access()
  // Without a key even where there are keys: /health, /health_generate and /ping; /metrics.
  bool has_open_health = false, has_open_metrics = false;
  // Where KV events are published, for /server_info; null = nowhere.
  json::Box kv_events{};
  // Kernels compiled at run time and their states, for /server_info; null = none can be.
  std::function<json::Box()> compiled_kernels = {};
  std::string otlp_traces_url;  // where spans go (serve/span_exporter.h); empty = nowhere
  std::string version;          // of the program, in spans
  std::string profile_dir;      // where /stop_profile writes; empty = profiling is refused
  json::Box settings = json::Box::object();  // every effective setting, flat, no secrets
};

// What is known once the memory plan is made.
struct EngineFacts {
  int max_context_tokens = 0;    // longest sequence, prompt and answer
  int num_lanes = 1;             // groups of ranks with requests of their own
  int64_t max_total_tokens = 0;  // rows of the KV pools of all lanes
  int max_running_requests = 0;
  int64_t weight_bytes = 0, kv_cache_bytes = 0;
  double startup_seconds = 0;  // until requests were taken
};

struct ServerState;

// The access line of an exchange that the API does not log itself: at level info when it was refused or its
// client went, at level debug when all was well (pages, probes, metrics). For http::ServerConfig::on_access.
void log_access(const http::AccessRecord& record);

class ApiServer {
 public:
  explicit ApiServer(ApiConfig config);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // Called once, before the transport exists.
  void register_routes(http::Router& router);
  // Called once, before the transport starts; it stays until stop() was called on it.
  void set_transport(http::Server& http);

  // What /readyz says until set_ready(): the phase and how far it is, 0 to 1.
  void set_loading(const std::string& phase, double fraction);
  metrics::Registry& registry();
  // The sink to build the engine with.
  engine::UpdateSink& update_sink();
  // From here on requests are taken.
  void set_ready(engine::ServingEngine& engine, const EngineFacts& facts);

  // Readiness turns 503 and new requests are refused; admitted ones go on.
  void begin_drain();
  // Accepted requests whose answer is not complete yet.
  int num_open_requests() const;
  // Every open request ends with an error: a 503, or an error event in a stream.
  void fail_open_requests();
  // Nothing uses the engine after this. Called when the transport has stopped.
  void detach_engine();

 private:
  std::unique_ptr<ServerState> state_;
};

}  // namespace fathom::serve
