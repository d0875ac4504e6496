#pragma once
// ApiServer: the API above the transport and the engine. It registers every route, owns the requests that
// are being answered, and is there before the engine is, so that /livez and /readyz answer while the
// weights load.
//
//   ApiServer api({.model = model, .settings = settings});
//   http::Router router;
//   api.register_routes(router);
//   http::Server http(http_config, router);              // listening from here on
//   api.set_transport(...);
//   ... load the weights, api.set_loading("weights", 0.4) ...
//   engine::ServingEngine engine(runner, config, api.update_sink());
//   api.set_ready(engine, facts);
//   ... a signal: api.begin_drain(); wait for num_open_requests() == 0; api.fail_open_requests() ...
//
// Order of destruction: http server, engine, api. Thread-safe.

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "engine/serving_engine.h"
#include "http/router.h"
#include "server/served_model.h"

namespace fathom::server {

struct ApiConfig {
  ServedModel model;
  bool constrain_tool_calls = false;
  int num_workers = 2;
  int max_queued_jobs = 1024;  // requests waiting for a worker; more are refused with 429
  std::string profile_dir;     // where /stop_profile writes; empty = profiling is refused
  json::Value settings = json::Value::object();  // every effective setting, flat, no secrets
};

class ApiServer {
 public:
  explicit ApiServer(ApiConfig config);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // Called once, before the transport starts.
  void register_routes(http::Router& router);
  // How to run a task on one of the transport's I/O threads. Called once, before set_ready().
  using PostToThread = std::function<void(int thread_idx, std::function<void()> task)>;
  void set_transport(int num_io_threads, PostToThread post);

  // What /readyz says until set_ready(): the phase and how far it is, 0 to 1.
  void set_loading(const std::string& phase, double fraction);
  // The sink to build the engine with.
  engine::UpdateSink& update_sink();
  void set_ready(engine::ServingEngine& engine, const EngineFacts& facts);

  // Readiness turns 503 and new requests are refused; admitted ones go on.
  void begin_drain();
  // Accepted requests whose answer is not complete yet.
  int num_open_requests() const;
  // Every open request ends with an error: a 503, or an error event in a stream.
  void fail_open_requests();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::server
