#include "server/api_server.h"

#include <ctime>
#include <utility>

#include "base/log.h"
#include "server/http_metrics.h"
#include "server/page/page_routes.h"
#include "server/server_state.h"

namespace fathom::server {
namespace {

double milliseconds(double seconds) { return seconds < 0 ? -1 : seconds * 1e3; }

// The access line of an answer: numbers and names, never text of prompts or answers.
void log_answer(const AnswerRecord& record) {
  // A probe that went well is no event.
  const bool is_probe = record.endpoint == "/health_generate" && record.status < 400;
  const LogLevel level = is_probe ? LogLevel::kDebug : LogLevel::kInfo;
  if (level < log_level()) return;
  write_log(level, "server", "request",
            {{"id", record.request_id},
             {"key_name", record.key_name},
             {"model", record.model},
             {"endpoint", record.endpoint},
             {"stream", record.stream},
             {"choices", record.num_choices},
             {"prompt_tokens", record.counts.prompt_tokens},
             {"cached_tokens", record.counts.cached_tokens},
             {"completion_tokens", record.counts.completion_tokens},
             {"reasoning_tokens", record.counts.reasoning_tokens},
             {"queue_ms", milliseconds(record.queue_seconds)},
             {"ttft_ms", milliseconds(record.first_token_seconds)},
             {"itl_p50_ms", milliseconds(record.gap_p50_seconds)},
             {"total_ms", milliseconds(record.total_seconds)},
             {"finish", record.finish},
             {"status", record.status},
             {"client_gone", record.client_gone},
             {"retractions", record.counts.retractions}});
}

GenerationService::Config generation_config(const ApiConfig& config) {
  GenerationService::Config generation{.tokenizer = config.model.tokenizer,
                                       .vocab_size = config.model.vocab_size,
                                       .eos_token_ids = config.model.eos_token_ids,
                                       .chat_format = config.model.chat_format};
  if (config.log_requests) generation.on_answer = log_answer;
  return generation;
}

metrics::Labels labels(const ApiConfig& config) {
  return {{"model_name", config.model.name()}, {"engine_type", "unified"}};
}

}  // namespace

ServerState::ServerState(ApiConfig api_config)
    : config(std::move(api_config)),
      created(static_cast<int64_t>(std::time(nullptr))),
      registry(labels(config)),
      history({.model = config.model.name()}),
      generation(generation_config(config)),
      workers({.name = "parser",
               .num_threads = config.num_workers,
               .max_queued_jobs = config.max_queued_jobs}) {}

std::optional<ApiError> ServerState::refusal() const {
  switch (phase.load()) {
    case Phase::kLoading:
      return loading();
    case Phase::kDraining:
      return draining();
    case Phase::kReady:
      break;
  }
  return std::nullopt;
}

void ServerState::run_on_worker(const http::ExchangePtr& exchange, std::function<void()> job) {
  if (!workers.post(std::move(job))) send_later(exchange, to_response(overloaded()));
}

void send_later(const http::ExchangePtr& exchange, http::Response response) {
  exchange->post([exchange, response = std::move(response)]() mutable {
    exchange->send(std::move(response));
  });
}

http::Response text_response(std::string text) {
  http::Response response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::move(text);
  return response;
}

http::Response json_response(const json::Value& value) {
  http::Response response;
  response.body = json::dump(value);
  return response;
}

void log_access(const http::AccessRecord& record) {
  if (record.has_own_line) return;
  const bool is_refused = record.status >= 400 || record.client_gone;
  const LogLevel level = is_refused ? LogLevel::kInfo : LogLevel::kDebug;
  if (level < log_level()) return;
  write_log(level, "server", "request",
            {{"id", record.request_id},
             {"key_name", record.key_name},
             {"method", record.method},
             {"endpoint", record.route_path},
             {"status", record.status},
             {"total_ms", record.milliseconds},
             {"request_bytes", record.request_body_bytes},
             {"response_bytes", record.response_bytes},
             {"client_gone", record.client_gone}});
}

ApiServer::ApiServer(ApiConfig config) : state_(std::make_unique<ServerState>(std::move(config))) {}
ApiServer::~ApiServer() { detach_engine(); }

void ApiServer::register_routes(http::Router& router) {
  add_health_routes(router, *state_);
  add_generation_routes(router, *state_);
  add_info_routes(router, *state_);
  add_admin_routes(router, *state_);
  add_page_routes(router, state_->config.model.name(), state_->history);
}

void ApiServer::set_transport(http::Server& http) {
  state_->generation.set_transport(http.num_threads(), [&http](int thread_idx, auto task) {
    http.post(thread_idx, std::move(task));
  });
  state_->collector = add_http_metrics(state_->registry, http.counters(), state_->generation);
}

void ApiServer::set_loading(const std::string& phase, double fraction) {
  const std::lock_guard lock(state_->loading_mutex);
  state_->loading_phase = phase;
  state_->loading_fraction = fraction;
}

metrics::Registry& ApiServer::registry() { return state_->registry; }
engine::UpdateSink& ApiServer::update_sink() { return state_->generation; }

void ApiServer::set_ready(engine::ServingEngine& engine, const EngineFacts& facts) {
  state_->engine = &engine;
  state_->facts = facts;
  state_->config.model.max_context_tokens = facts.max_context_tokens;
  state_->generation.set_engine(&engine);
  state_->stats_timer.emplace(state_->history, [&engine] {
    const engine::RequestHistograms& requests = engine.metrics().requests;
    return StatsReading{.unix_seconds = unix_seconds(),
                        .engine = engine.snapshot(),
                        .first_token_seconds = requests.time_to_first_token_seconds.snapshot(),
                        .inter_token_seconds = requests.inter_token_latency_seconds.snapshot()};
  });
  Phase loading = Phase::kLoading;
  state_->phase.compare_exchange_strong(loading, Phase::kReady);
}

void ApiServer::begin_drain() {
  if (state_->phase.exchange(Phase::kDraining) == Phase::kReady) state_->engine->begin_drain();
}

int ApiServer::num_open_requests() const { return state_->generation.num_open(); }
void ApiServer::fail_open_requests() { state_->generation.fail_open(draining()); }

void ApiServer::detach_engine() {
  state_->phase = Phase::kDraining;
  state_->stats_timer.reset();
  state_->collector = {};
  state_->timer.stop();
  state_->generation.set_engine(nullptr);
}

}  // namespace fathom::server
