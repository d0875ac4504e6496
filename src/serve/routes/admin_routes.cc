// What operators ask for: /flush_cache, /abort_request, /pause_generation, /continue_generation, /start_profile,
// /stop_profile.

#include <algorithm>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "api/pause_request.h"
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
constexpr int64_t kMaxBodyBytes = 64 << 10;
constexpr size_t kMaxShownBytes = 64;

api::Parsed<json::Value> parse_object(const std::string& body,
                                      std::span<const std::string_view> known) {
  if (body.empty()) return json::Value::object();
  // Parsed on the I/O thread, which must not be kept busy; these bodies hold a few names.
  Result<json::Value> value = json::parse(body, {.max_bytes = kMaxBodyBytes});
  if (!value && value.error().code == ErrorCode::kTooLong)
    return api::body_too_large("the body is " + value.error().message);
  if (!value) return api::invalid_parameter("", "the body is not JSON: " + value.error().message);
  if (!value->is_object()) return api::invalid_parameter("", "the body must be a JSON object");
  for (const auto& [name, member] : value->items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return api::invalid_parameter(name.substr(0, kMaxShownBytes),
                                  "this route has no field " + json::shown_text(name));
  }
  return std::move(*value);
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

constexpr std::string_view kAbortFields[] = {"rid", "abort_all", "abort_message"};

void abort_request(ServerState& state, const http::ExchangePtr& exchange) {
  const api::Parsed<json::Value> parsed = parse_object(exchange->request().body, kAbortFields);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed)) {
    return exchange->send(api::to_response(*error));
  }
  const auto& body = std::get<json::Value>(parsed);
  const json::Value all = body.value("abort_all", json::Value(false));
  const json::Value rid = body.value("rid", json::Value(nullptr));
  if (!all.is_boolean()) {
    return exchange->send(
        api::to_response(api::invalid_parameter("abort_all", "abort_all must be true or false")));
  }
  if (all.get<bool>()) {
    state.generation.abort_all();
  } else if (rid.is_string() && !rid.get<std::string>().empty()) {
    state.generation.abort(rid.get<std::string>());
  } else {
    return exchange->send(
        api::to_response(api::invalid_parameter("rid", "rid must be a text that is not empty")));
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
  if (exchange->request().body.size() > static_cast<size_t>(kMaxBodyBytes)) {
    return exchange->send(api::to_response(api::body_too_large("the body is above 64 KiB")));
  }
  if (const auto problem =
          api::check_continue_request(exchange->request().body, state.config.model)) {
    return exchange->send(api::to_response(*problem));
  }
  state.engine->resume();
  FATHOM_LOG(kInfo, "server", "continued", {});
  exchange->send(control_answer("Generation continued successfully."));
}

// What a profile holds, how long it takes and where it is written are the operator's to say (--profile-dir), not a
// request's; null, false and an empty list ask for nothing.
constexpr std::string_view kProfileFields[] = {
    "activities",       "output_dir",     "start_step",    "num_steps",
    "profile_id",       "profile_prefix", "with_stack",    "record_shapes",
    "profile_by_stage", "profile_stages", "merge_profiles"};

bool asks_for_nothing(const json::Value& value) {
  return value.is_null() || value == json::Value(false) || (value.is_array() && value.empty());
}

// The host's and the device's work are in a profile, so a list of both is what it holds.
bool is_what_is_recorded(const std::string& name, const json::Value& value) {
  if (name != "activities" || !value.is_array()) return false;
  return std::ranges::all_of(value, [](const json::Value& one) {
    return one == json::Value("CPU") || one == json::Value("GPU");
  });
}

std::optional<api::ApiError> profile_problem(const ServerState& state, const json::Value& body) {
  if (state.config.profile_dir.empty()) {
    return api::invalid_parameter("", "profiling is off; start the server with --profile-dir");
  }
  for (const auto& [name, value] : body.items()) {
    if (asks_for_nothing(value) || is_what_is_recorded(name, value)) continue;
    return api::invalid_parameter(name,
                                  name +
                                      " cannot be set by a request; recording begins now, ends "
                                      "with /stop_profile and is written to --profile-dir");
  }
  return std::nullopt;
}

void start_profile(ServerState& state, const http::ExchangePtr& exchange) {
  const api::Parsed<json::Value> parsed = parse_object(exchange->request().body, kProfileFields);
  if (const api::ApiError* error = std::get_if<api::ApiError>(&parsed)) {
    return exchange->send(api::to_response(*error));
  }
  if (const auto problem = profile_problem(state, std::get<json::Value>(parsed))) {
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
