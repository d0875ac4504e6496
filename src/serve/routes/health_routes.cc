// Probes. /livez: the event loops turn. /readyz, /health and /ping: requests are taken and the engine moves and has not
// failed.
// /health_generate: one token really comes out.

#include <limits>
#include <utility>

#include "answer/pieces/draw_id.h"
#include "base/json.h"
#include "serve/server_state.h"

namespace fathom::serve {
namespace {

// With work to do and no step for this long, the engine counts as stuck. Long on purpose: a prefill chunk of
// a large model takes its time on a CPU.
constexpr double kStallSeconds = 120;
constexpr std::chrono::seconds kProbeTimeout{20};
// An engine that is busy and ended a step this recently is healthy: no token is generated to find out.
constexpr double kRecentSeconds = 5;

// Of the phase, once it has gone on long enough to tell; as fast as so far.
constexpr double kEstimateSeconds = 1;

http::Response not_ready(const json::Value& body) {
  http::Response response = json_response(body);
  response.status = 503;
  return response;
}

json::Value loading_state(ServerState& state) {
  const MutexLock lock(state.loading_mutex);
  const double done = state.loading_fraction, seconds = state.loading_watch.seconds();
  json::Value body = {{"status", "loading"},
                      {"phase", state.loading_phase},
                      {"progress", done},
                      {"seconds_left", nullptr}};
  if (done > 0 && seconds >= kEstimateSeconds) body["seconds_left"] = seconds * (1 - done) / done;
  return body;
}

http::Response readiness_response(ServerState& state) {
  const Readiness now = readiness(state);
  return now.takes_requests ? json_response(*now.body) : not_ready(*now.body);
}

void answer_probe(ServerState& state, const http::ExchangePtr& exchange) {
  http::Response response = readiness_response(state);
  if (response.status != 200) state.probe_refusals.add();
  exchange->send(std::move(response));
}

api::GenerationRequest one_token(const ServerState& state) {
  api::GenerationItem item;
  item.prompt = {std::max(state.config.model.tokenizer->bos_id(), 0)};
  item.sampling.max_new_tokens = 1;
  item.sampling.temperature = 0;
  item.sampling.ignore_eos = true;
  item.native.request_id = answer::draw_id("HEALTH_CHECK_");
  api::GenerationRequest request;
  request.form.endpoint = api::Endpoint::kGenerate;
  request.form.id = item.native.request_id;
  request.form.model = state.config.model.name();
  request.priority = std::numeric_limits<int>::max();
  request.items.push_back(std::move(item));
  return request;
}

void probe(ServerState& state, const http::ExchangePtr& exchange) {
  http::Response ready = readiness_response(state);
  if (ready.status != 200) return answer_probe(state, exchange);
  const engine::EngineSnapshot snapshot = state.engine->snapshot();
  // An operator's pause is no fault, and a token would come after it only.
  const bool moves = snapshot.num_running > 0 && snapshot.seconds_since_progress < kRecentSeconds;
  if (moves || snapshot.paused) {
    return exchange->send(std::move(ready));
  }
  api::GenerationRequest request = one_token(state);
  const std::string rid = request.form.id;
  state.generation.start(std::move(request), exchange, Stopwatch());
  // If the token has come by then, this second answer to the exchange does nothing.
  state.post_after(kProbeTimeout, [&state, exchange, rid] {
    send_later(exchange, not_ready({{"status", "no token within 20 seconds"}}));
    state.generation.abort(rid);
  });
}

}  // namespace

Readiness readiness(ServerState& state) {
  if (state.phase != Phase::kLoading && state.engine != nullptr) {
    if (std::string failure = state.engine->snapshot().failure; !failure.empty())
      return {.body = json::Value{{"status", "failed"}, {"why", std::move(failure)}}};
  }
  switch (state.phase.load()) {
    case Phase::kDraining:
      return {.body = json::Value{{"status", "draining"},
                                  {"open_requests", state.generation.num_open()}}};
    case Phase::kLoading:
      return {.body = loading_state(state)};
    case Phase::kReady:
      break;
  }
  const engine::EngineSnapshot snapshot = state.engine->snapshot();
  if (snapshot.has_work && snapshot.seconds_since_progress > kStallSeconds) {
    return {.body = json::Value{{"status", "stalled"},
                                {"seconds_since_progress", snapshot.seconds_since_progress}}};
  }
  return {.takes_requests = true,
          .body = json::Value{{"status", snapshot.paused ? "paused" : "ready"},
                              {"running", snapshot.num_running},
                              {"waiting", snapshot.num_waiting}}};
}

void add_health_routes(http::Router& router, ServerState& state) {
  router.add({.method = "GET",
              .path = "/livez",
              .access = http::Access::kOpen,
              .handler =
                  [](const http::ExchangePtr& exchange) {
                    exchange->send(json_response({{"status", "alive"}}));
                  },
              .is_probe = true});
  const http::Access health =
      state.config.has_open_health ? http::Access::kOpen : http::Access::kInference;
  for (const char* path : {"/readyz", "/health", "/ping"}) {
    router.add(
        {.method = "GET",
         .path = path,
         .access = std::string_view(path) == "/readyz" ? http::Access::kOpen : health,
         .handler = [&state](const http::ExchangePtr& exchange) { answer_probe(state, exchange); },
         .is_probe = true});
  }
  router.add({.method = "GET",
              .path = "/health_generate",
              .access = health,
              .handler = [&state](const http::ExchangePtr& exchange) { probe(state, exchange); }});
}

}  // namespace fathom::serve
