// What operators ask for: /flush_cache, /abort_request, /pause_generation, /continue_generation, /start_profile,
// /stop_profile.

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <utility>

#include "api/operators/operator_request.h"
#include "base/json.h"
#include "base/log.h"
#include "base/trace.h"
#include "base/whole_file.h"
#include "serve/server_state.h"

namespace fathom::serve {
namespace {

// A request whose answer has just gone out holds its blocks for a step more, so a flush tries again for a
// moment even when the client asks for no timeout.
constexpr double kFlushGraceSeconds = 0.25, kMaxFlushSeconds = 600;
constexpr std::chrono::milliseconds kFlushInterval{20};
constexpr size_t kMaxBodyBytes = 64 << 10;

// These bodies are read on the I/O thread, which must not be kept busy; they hold a few names.
std::optional<api::ApiError> problem_of_size(const http::ExchangePtr& exchange) {
  if (exchange->request().body.size() <= kMaxBodyBytes) return std::nullopt;
  return api::body_too_large("the body is above 64 KiB");
}

// The query's timeout in seconds, or the grace.
api::Parsed<double> flush_timeout(const http::Request& request) {
  for (const auto& [name, value] : request.query) {
    if (name != "timeout") continue;
    double seconds = 0;
    const std::from_chars_result read =
        std::from_chars(value.data(), value.data() + value.size(), seconds);
    const bool is_number = read.ec == std::errc() && read.ptr == value.data() + value.size();
    if (!is_number || !(seconds >= 0 && seconds <= kMaxFlushSeconds)) {
      return api::invalid_parameter("timeout", "timeout must be a number of seconds from 0 to 600");
    }
    return std::max(seconds, kFlushGraceSeconds);
  }
  return kFlushGraceSeconds;
}

void flush(ServerState& state, const http::ExchangePtr& exchange, double seconds_left) {
  if (const std::optional<api::ApiError> refusal = state.refusal()) {
    return send_later(exchange, api::to_response(*refusal));
  }
  if (state.engine->flush_cache()) {
    return send_later(
        exchange,
        text_response("Cache flushed.\nPlease check backend logs for more details. (When there are "
                      "running or waiting requests, the operation will not be performed.)\n"));
  }
  if (seconds_left <= 0) {
    return send_later(exchange, api::to_response(api::invalid_parameter(
                                    "", "the cache is in use: requests are running or waiting")));
  }
  const double interval = std::chrono::duration<double>(kFlushInterval).count();
  state.post_after(kFlushInterval, [&state, exchange, seconds_left, interval] {
    flush(state, exchange, seconds_left - interval);
  });
}

void flush_cache(ServerState& state, const http::ExchangePtr& exchange) {
  const api::Parsed<double> timeout = flush_timeout(exchange->request());
  if (const api::ApiError* error = std::get_if<api::ApiError>(&timeout)) {
    return exchange->send(api::to_response(*error));
  }
  flush(state, exchange, std::get<double>(timeout));
}

void abort_request(ServerState& state, const http::ExchangePtr& exchange) {
  if (const auto problem = problem_of_size(exchange)) {
    return exchange->send(api::to_response(*problem));
  }
  const api::Parsed<api::AbortRequest> parsed =
      api::parse_abort_request(exchange->request().body, state.config.model);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed)) {
    return exchange->send(api::to_response(*error));
  }
  const auto& request = std::get<api::AbortRequest>(parsed);
  if (request.all) {
    state.generation.abort_all();
  } else {
    state.generation.abort(request.rid);
  }
  exchange->send(text_response(""));
}

engine::PauseMode mode_of(const api::PauseRequest& request) {
  switch (request.mode) {
    case api::PauseRequest::Mode::kAbort:
      break;
    case api::PauseRequest::Mode::kInPlace:
      return engine::PauseMode::kInPlace;
    case api::PauseRequest::Mode::kRetract:
      return engine::PauseMode::kRetract;
  }
  return engine::PauseMode::kAbort;
}

http::Response control_answer(const char* message) {
  return json_response({{"message", message}, {"status", "ok"}});
}

void pause_generation(ServerState& state, const http::ExchangePtr& exchange) {
  if (const std::optional<api::ApiError> refusal = state.refusal()) {
    return exchange->send(api::to_response(*refusal));
  }
  // It waits for the step that runs.
  state.run_on_worker(exchange, [&state, exchange] {
    const api::Parsed<api::PauseRequest> parsed =
        api::parse_pause_request(exchange->request().body, state.config.model);
    if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed)) {
      return send_later(exchange, api::to_response(*error));
    }
    const Status paused = state.engine->pause(mode_of(std::get<api::PauseRequest>(parsed)));
    if (!paused && state.refusal()) {
      return send_later(exchange, api::to_response(api::draining()));
    }
    if (!paused) {
      return send_later(exchange,
                        api::to_response(api::invalid_parameter("", paused.error().message)));
    }
    FATHOM_LOG(kInfo, "server", "paused", {});
    send_later(exchange, control_answer("Generation paused successfully."));
  });
}

void continue_generation(ServerState& state, const http::ExchangePtr& exchange) {
  if (const std::optional<api::ApiError> refusal = state.refusal()) {
    return exchange->send(api::to_response(*refusal));
  }
  if (const auto problem = problem_of_size(exchange)) {
    return exchange->send(api::to_response(*problem));
  }
  if (const auto problem =
          api::check_continue_request(exchange->request().body, state.config.model)) {
    return exchange->send(api::to_response(*problem));
  }
  state.engine->resume();
  FATHOM_LOG(kInfo, "server", "continued", {});
  exchange->send(control_answer("Generation continued successfully."));
}

std::optional<api::ApiError> profile_problem(const ServerState& state,
                                             const http::ExchangePtr& exchange) {
  if (state.config.profile_dir.empty()) {
    return api::invalid_parameter("", "profiling is off; start the server with --profile-dir");
  }
  if (auto problem = problem_of_size(exchange)) return problem;
  return api::check_start_profile_request(exchange->request().body, state.config.model);
}

void start_profile(ServerState& state, const http::ExchangePtr& exchange) {
  if (const auto problem = profile_problem(state, exchange)) {
    return exchange->send(api::to_response(*problem));
  }
  // On a worker, because a device may take long to begin tracing.
  state.run_on_worker(exchange, [exchange] {
    const Result<std::string> missing = trace::start({});
    if (!missing) {
      return send_later(exchange, api::to_response(api::invalid_parameter(
                                      "", "a profile is being recorded already")));
    }
    if (missing->empty()) return send_later(exchange, text_response("Start profiling.\n"));
    FATHOM_LOG(kWarning, "server", "the profile lacks kernels", {{"why", *missing}});
    send_later(exchange,
               text_response("Start profiling.\nThe profile lacks kernels: " + *missing + "\n"));
  });
}

// One that is not there yet.
std::string profile_path(const std::string& folder) {
  char name[64];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(name, sizeof name, "fathom-%Y%m%dT%H%M%SZ", &utc);
  const std::filesystem::path begin = std::filesystem::path(folder) / name;
  std::string path = begin.string() + ".trace.json";
  std::error_code none;
  for (int k = 2; std::filesystem::exists(path, none); ++k) {
    path = begin.string() + '-' + std::to_string(k) + ".trace.json";
  }
  return path;
}

void stop_profile(ServerState& state, const http::ExchangePtr& exchange) {
  if (!trace::recording()) {
    return exchange->send(
        api::to_response(api::invalid_parameter("", "no profile is being recorded")));
  }
  state.run_on_worker(exchange, [&state, exchange] {
    const std::string path = profile_path(state.config.profile_dir);
    if (const std::error_code error = write_whole_file(path, trace::stop())) {
      FATHOM_LOG(kError, "server", "profile not written",
                 {{"path", path}, {"why", error.message()}});
      return send_later(exchange, api::to_response(api::profile_not_written(error.message())));
    }
    FATHOM_LOG(kInfo, "server", "profile written", {{"path", path}});
    send_later(exchange, text_response("Stop profiling. This will take some time.\n"));
  });
}

using Handler = void (*)(ServerState&, const http::ExchangePtr&);

void add_post(http::Router& router, const char* path, ServerState& state, Handler handler) {
  router.add({.method = "POST",
              .path = path,
              .access = http::Access::kAdmin,
              .handler = [&state, handler](const http::ExchangePtr& exchange) {
                handler(state, exchange);
              }});
}

void add(http::Router& router, const char* path, ServerState& state, Handler handler) {
  for (const char* method : {"GET", "POST"}) {
    router.add({.method = method,
                .path = path,
                .access = http::Access::kAdmin,
                .handler = [&state, handler](
                               const http::ExchangePtr& exchange) { handler(state, exchange); },
                // SGLang's tools flush and profile with GET.
                .is_for_tools = std::string_view(method) == "GET"});
  }
}

}  // namespace

void add_admin_routes(http::Router& router, ServerState& state) {
  add(router, "/flush_cache", state, flush_cache);
  add(router, "/start_profile", state, start_profile);
  add(router, "/stop_profile", state, stop_profile);
  add_post(router, "/abort_request", state, abort_request);
  add_post(router, "/pause_generation", state, pause_generation);
  add_post(router, "/continue_generation", state, continue_generation);
}

}  // namespace fathom::serve
