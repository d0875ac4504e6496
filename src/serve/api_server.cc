#include "serve/api_server.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <new>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread_cpu.h"
#include "metrics/process_metrics.h"
#include "page/page_routes.h"
#include "serve/http_metrics.h"
#include "serve/response_metrics.h"
#include "serve/server_state.h"
#include "text/piece_owner.h"

namespace fathom::serve {
namespace {

double milliseconds(double seconds) { return seconds < 0 ? -1 : seconds * 1e3; }

// The access line of an answer: numbers and names, never text of prompts or answers.
void log_answer(const answer::AnswerRecord& record) {
  // Probes come every few seconds: one that succeeded is logged at debug level only.
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

// From this size on (some 60,000 tokens of text) a body goes to the workers for long bodies; a worker is done with a
// shorter one in milliseconds.
constexpr size_t kLongBodyBytes = 256 << 10;
constexpr int kWorkersPerLongBodyWorker = 4;
constexpr int kWorkersPerGrammarWorker = 4;
// The nice value of those workers: beside a busy thread on the same core they get about a third of its time.
constexpr int kLongBodyNice = 5;
constexpr double kGiveBackCpuSeconds = 0.05;  // of compiling
constexpr std::chrono::milliseconds kGiveBackDelay{
    3000};  // by then a client has taken a large answer
// After a body of this size freed memory is returned to the system.
constexpr size_t kGiveBackBytes = 4 << 20;

answer::GenerationService::Config generation_config(ServerState& state) {
  const ApiConfig& config = state.config;
  answer::GenerationService::Config generation{
      .tokenizer = config.model.tokenizer,
      .vocab_size = config.model.vocab_size,
      .eos_token_ids = config.model.eos_token_ids,
      .run_compiling =
          [&state](const http::ExchangePtr& exchange, std::function<void()> job) {
            state.run_compiling(exchange, std::move(job));
          },
      .run_rendering =
          [&state](std::function<void()> job, const std::string& key_name) {
            return state.long_body_workers.post(std::move(job), key_name);
          },
      .after_much =
          [&state] {
            state.post_after(kGiveBackDelay, [&state] {
              // A full queue has jobs that give back too.
              std::ignore = state.long_body_workers.post([] { memory::give_back(); });
            });
          }};
  if (config.max_body_memory_bytes > 0)
    generation.max_grammar_bytes = generation.max_answer_bytes = config.max_body_memory_bytes;
  if (!config.otlp_traces_url.empty()) {
    state.spans.emplace(
        SpanExporter::Config{.url = config.otlp_traces_url,
                             .source = {.model = config.model.name(), .version = config.version}},
        state.span_counters);
  }
  generation.on_answer = [&used = state.key_tokens, &spans = state.spans,
                          is_logged = config.log_requests](const auto& record) {
    used.add(record);
    if (spans) spans->add(record);
    if (is_logged) log_answer(record);
  };
  return generation;
}

// Runs the job; if it throws, answers with an error.
void run_guarded(const http::ExchangePtr& exchange, const std::function<void()>& job) {
  bool lacks_memory = false;
  try {
    return job();
  } catch (const std::bad_alloc&) {
    lacks_memory = true;
  } catch (const std::length_error&) {
    lacks_memory = true;  // a container was asked for more elements than it can ever hold
  } catch (const std::exception& error) {
    FATHOM_LOG(kError, "server", "a request failed", {{"why", error.what()}});
  }
  memory::give_back();  // what failed may have been anything
  const memory::MustSucceed scope;
  send_later(exchange, api::to_response(lacks_memory ? api::out_of_memory() : api::internal_error(),
                                        exchange->request()));
}

metrics::Labels labels(const ApiConfig& config) {
  return {{"model_name", config.model.name()}, {"engine_type", "unified"}};
}

page::StepSnapshots read_steps(const engine::StepHistograms& steps) {
  return {.step = steps.step_seconds.snapshot(),
          .forward = steps.forward_seconds.snapshot(),
          .sampling = steps.sampling_seconds.snapshot(),
          .mask_wait = steps.mask_wait_seconds.snapshot(),
          .plan = steps.plan_seconds.snapshot(),
          .commit = steps.commit_seconds.snapshot(),
          .hand_over = steps.hand_over_seconds.snapshot()};
}

page::StatsReading read_stats(engine::ServingEngine& engine) {
  const engine::RequestHistograms& requests = engine.metrics().requests;
  return {.unix_seconds = page::unix_seconds(),
          .engine = engine.snapshot(),
          .first_token_seconds = requests.time_to_first_token_seconds.snapshot(),
          .inter_token_seconds = requests.inter_token_latency_seconds.snapshot(),
          .steps = read_steps(engine.metrics().steps)};
}

// Adds a sample to the history at `due` and each second from then on, until the transport stops.
void sample_from(ServerState& state, std::chrono::steady_clock::time_point due) {
  const auto delay = std::max(due - std::chrono::steady_clock::now(), {});
  state.post_after(std::chrono::ceil<std::chrono::milliseconds>(delay), [&state, due] {
    memory::refill();
    state.history.add(read_stats(*state.engine));
    // After a suspended second the schedule starts anew instead of catching up.
    sample_from(state, std::max(due + std::chrono::seconds(1), std::chrono::steady_clock::now()));
  });
}

}  // namespace

ServerState::ServerState(ApiConfig api_config)
    : config(std::move(api_config)),
      created(static_cast<int64_t>(std::time(nullptr))),
      responses(config.response_store),
      registry(labels(config)),
      skipped_fields(registry),
      key_tokens(registry),
      probe_refusals(registry.counter(
          {.name = "fathom:probe_refusals_total", .help = "Probes that were answered 503."})),
      span_counters(registry),
      history({.model = config.model.name()}),
      generation(generation_config(*this)),
      workers({.name = "parser",
               .num_threads = config.num_workers,
               .max_queued_jobs = config.max_queued_jobs}),
      long_body_workers({.name = "long body parser",
                         .num_threads = std::max(1, config.num_workers / kWorkersPerLongBodyWorker),
                         .max_queued_jobs = config.max_queued_jobs,
                         .nice = kLongBodyNice}),
      grammar_workers({.name = "grammar compiler",
                       .num_threads = std::max(1, config.num_workers / kWorkersPerGrammarWorker),
                       .max_queued_jobs = config.max_queued_jobs,
                       .max_queued_jobs_per_owner = std::max(1, config.max_queued_jobs / 4),
                       .nice = kLongBodyNice}) {
  config.model.field_log = &skipped_fields;
}

std::optional<api::ApiError> ServerState::refusal() const {
  switch (phase.load()) {
    case Phase::kLoading:
      return api::loading();
    case Phase::kDraining:
      return api::draining();
    case Phase::kReady:
      break;
  }
  return std::nullopt;
}

void ServerState::run_on_worker(const http::ExchangePtr& exchange, std::function<void()> job) {
  const size_t num_bytes = exchange->request().body.size();
  auto guarded = [exchange, job = std::move(job)] {
    const text::PieceOwner scope(exchange->request().key_name);
    run_guarded(exchange, job);
  };
  const bool is_long = num_bytes >= kLongBodyBytes;
  WorkerPool& pool = is_long ? long_body_workers : workers;
  if (!pool.post(std::move(guarded), exchange->request().key_name))
    send_later(exchange, api::to_response(api::overloaded(), exchange->request()));
}

void ServerState::run_compiling(const http::ExchangePtr& exchange, std::function<void()> job) {
  auto guarded = [this, exchange, job = std::move(job)] {
    if (has_ended) return;  // nobody waits for it
    const double start_seconds = thread_cpu_seconds();
    run_guarded(exchange, job);
    // A long one leaves tens of megabytes free, in a heap that nobody else uses.
    if (thread_cpu_seconds() - start_seconds > kGiveBackCpuSeconds) memory::give_back();
  };
  if (!grammar_workers.post(std::move(guarded), exchange->request().key_name))
    send_later(exchange, api::to_response(api::overloaded(), exchange->request()));
}

void drop_body(const http::ExchangePtr& exchange) {
  if (exchange->take_body().size() >= kGiveBackBytes) memory::give_back();
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
  add_response_routes(router, *state_);
  add_info_routes(router, *state_);
  add_admin_routes(router, *state_);
  page::add_page_routes(router, state_->config.model.name(), state_->history,
                        [state = state_.get()] { return *readiness(*state).body; });
  add_doc_routes(router, *state_);  // last: it describes the routes that are there
}

void ApiServer::set_transport(http::Server& http) {
  state_->generation.set_transport(http.num_threads(), [&http](int thread_idx, auto task) {
    http.post(thread_idx, std::move(task));
  });
  state_->post_after = [&http](std::chrono::milliseconds delay, std::function<void()> task) {
    http.post_after(delay, std::move(task));
  };
  state_->collector = add_http_metrics(state_->registry, http.counters(), state_->generation,
                                       state_->config.max_body_memory_bytes);
  state_->process_collector = metrics::add_process_metrics(state_->registry);
  state_->response_collector = add_response_metrics(state_->registry, state_->responses);
}

void ApiServer::set_loading(const std::string& phase, double fraction) {
  const MutexLock lock(state_->loading_mutex);
  if (phase != state_->loading_phase) state_->loading_watch = Stopwatch();
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
  sample_from(*state_, std::chrono::steady_clock::now());
  Phase loading = Phase::kLoading;
  state_->phase.compare_exchange_strong(loading, Phase::kReady);
}

void ApiServer::begin_drain() {
  if (state_->phase.exchange(Phase::kDraining) == Phase::kReady) state_->engine->begin_drain();
}

int ApiServer::num_open_requests() const { return state_->generation.num_open(); }
void ApiServer::fail_open_requests() { state_->generation.fail_open(api::draining()); }

void ApiServer::detach_engine() {
  state_->phase = Phase::kDraining;
  state_->has_ended = true;
  state_->collector = {};
  state_->generation.set_engine(nullptr);
}

}  // namespace fathom::serve
