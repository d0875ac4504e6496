// fathom serve: a checkpoint directory in, the OpenAI API out.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "apps/commands.h"
#include "apps/common/commit.h"
#include "apps/common/model_directory.h"
#include "apps/common/text_setup.h"
#include "apps/common/version.h"
#include "apps/engine/engine_setup.h"
#include "apps/engine/node_setup.h"
#include "apps/engine/shutdown_signals.h"
#include "apps/flags/serve_flags.h"
#include "apps/kv_event_publisher.h"
#include "apps/simulation.h"
#include "base/clock.h"
#include "base/entropy.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/startup_error.h"
#include "cuda/inventory.h"
#include "metrics/gpu_metrics.h"
#include "serve/api_server.h"
#include "serve/span_exporter.h"

namespace fathom::apps {
namespace {

// Files that the program has open besides connections, generously.
constexpr rlim_t kOtherFiles = 256;
// How long the last answers may take to leave once every request has ended.
constexpr std::chrono::milliseconds kFlushTime{2000};
// How long the end waits for a reader of the log that has stalled.
constexpr std::chrono::milliseconds kLogFlushTime{500};
// How soon a second signal is seen while draining.
constexpr std::chrono::milliseconds kSignalPoll{20};
constexpr int kSimulatedChunk = 2048;
// Gaps between tokens that readers do not mind yet. On a CPU a chunk that takes less is so small that prompts suffer.
constexpr double kCpuStepMs = 100, kGpuStepMs = 50;
constexpr int64_t kBodyMemoryShare = 4;

// What `runner` runs, and what the server says about it.
struct Backend {
  ReadyModel model;  // empty in a simulation
  std::unique_ptr<Simulation> simulation;
  int64_t weight_bytes = 0;

  runner::Runner& runner() { return simulation ? simulation->runner() : model.runner(); }
  std::string device() const {
    return simulation ? "a simulation" : std::string(model.backend->device);
  }
};

std::vector<std::string> model_names(const ServeFlags& flags) {
  if (!flags.service.served_model_names.empty()) return flags.service.served_model_names;
  return {model_name_of(flags.engine.model.model_path)};
}

api::SamplingDefaults sampling_defaults(const ServeFlags& flags) {
  const std::filesystem::path path =
      std::filesystem::path(flags.engine.model.model_path) / "generation_config.json";
  if (flags.service.sampling_defaults != "model" || !std::filesystem::exists(path)) return {};
  Result<api::SamplingDefaults> defaults =
      api::sampling_defaults_from_model(read_text_file(path.string()));
  if (!defaults) throw StartupError(path.string() + ": " + defaults.error().message);
  return *defaults;
}

api::ServedModel served_model(const ServeFlags& flags, const config::ModelConfig& config) {
  TextSetup text = load_text(flags.engine.model.model_path, flags.service.chat_format);
  api::ServedModel model;
  model.names = model_names(flags);
  model.model_path = flags.engine.model.model_path;
  model.chat_format = text.chat_format;
  model.chat_format_problem = text.chat_format_problem;
  model.tokenizer = std::make_shared<const text::Tokenizer>(std::move(text.tokenizer));
  model.vocab_size = config.vocab_size;
  model.eos_token_ids = config.eos_token_ids;
  model.longest_token_bytes = api::longest_token_bytes(*model.tokenizer);
  model.sampling_defaults = sampling_defaults(flags);
  model.thinks_by_default = flags.service.thinking;
  model.stop_in_reasoning = flags.service.stop_in_reasoning;
  model.constrain_tool_calls = flags.service.constrain_tool_calls;
  model.json_without_white_space = flags.service.json_without_white_space;
  model.takes_any_name = flags.service.any_model_name;
  if (flags.service.unknown_fields == "refuse") model.unknown_fields = api::UnknownFields::kRefuse;
  if (flags.service.unknown_fields == "ignore") model.unknown_fields = api::UnknownFields::kIgnore;
  return model;
}

serve::ApiConfig api_config(const ServeFlags& flags, const config::ModelConfig& config,
                            const http::KeyStore& keys) {
  serve::ApiConfig api{.model = served_model(flags, config),
                       .model_type = config.model_type,
                       .architecture = config.architecture_name,
                       .num_workers = flags.service.num_workers,
                       .max_queued_jobs = flags.scheduling.max_queued_requests,
                       .max_body_memory_bytes = flags.limits.max_body_memory.value(),
                       .response_store = {.max_responses = flags.service.max_stored_responses,
                                          .max_bytes = flags.service.max_stored_bytes},
                       .log_requests = flags.log_requests,
                       .has_open_health = flags.access.open_health,
                       .has_open_metrics = flags.access.open_metrics,
                       .kv_events = kv_events_json(flags),
                       .compiled_kernels = [] { return json::Box(compiled_kernels()); },
                       .otlp_traces_url = flags.otlp_traces_endpoint.empty()
                                              ? ""
                                              : serve::traces_url(flags.otlp_traces_endpoint),
                       .version = version(),
                       .profile_dir = flags.service.profile_dir,
                       .settings = settings_json(flags)};
  json::Value& settings = *api.settings;
  settings["version"] = version();
  settings["commit"] = built_from();
  settings["runs_on"] =
      flags.is_simulation() ? "simulation" : std::string(choose_backend(flags.engine).device);
  settings["num_api_keys"] = keys.size();
  if (api.model.chat_format) {
    settings["chat_format"] = text::chat_format_name(*api.model.chat_format);
  } else {
    FATHOM_LOG(kWarning, "apps", "no chat format, /v1/chat/completions is refused",
               {{"why", api.model.chat_format_problem}});
  }
  return api;
}

// Each connection takes a file: the soft limit of many systems is 1024. Returns how many connections the limit leaves
// room for: without a file not even a probe could be accepted.
int raise_file_limit(int max_connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return max_connections;
  const rlim_t others = static_cast<rlim_t>(http::Limits{}.num_probe_connections) + kOtherFiles;
  const rlim_t wanted = static_cast<rlim_t>(max_connections) + others;
  if (limit.rlim_cur >= wanted) return max_connections;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  if (limit.rlim_cur >= wanted) return max_connections;
  const int possible = limit.rlim_cur > others ? static_cast<int>(limit.rlim_cur - others) : 1;
  // Nobody who leaves the flag alone has asked for so many.
  const bool is_default = max_connections == LimitFlags{}.max_connections;
  const LogLevel level = is_default ? LogLevel::kInfo : LogLevel::kWarning;
  write_log(
      level, "apps", "the limit on open files is below --max-connections",
      {{"open_files", limit.rlim_cur}, {"asked", max_connections}, {"max_connections", possible}});
  return possible;
}

// A line of 1,600 characters: for programs, and for people who look for something.
void log_settings(const ServeFlags& flags, const serve::ApiConfig& api) {
  const LogLevel level = flags.log_format == "json" ? LogLevel::kInfo : LogLevel::kDebug;
  std::vector<LogField> fields{{"model_path", api.model.model_path},
                               {"served_model_name", json::dump(json::Value(api.model.names))}};
  for (const auto& [name, value] : api.settings->items()) {
    fields.emplace_back(name, value.is_string() ? value.get<std::string>() : json::dump(value));
  }
  for (LogField& field : access_settings(flags)) fields.push_back(std::move(field));
  write_log(level, "apps", "settings", std::span<const LogField>(fields));
}

Backend make_backend(const ServeFlags& flags, const config::ModelConfig& config,
                     serve::ApiServer& api) {
  Backend backend;
  if (flags.is_simulation()) {
    backend.simulation = std::make_unique<Simulation>(flags, config);
    return backend;
  }
  backend.model = make_ready_model(flags.engine, [&api](const std::string& phase, double done) {
    api.set_loading(phase, done);
  });
  backend.weight_bytes = backend.model.ranks->weight_bytes();
  return backend;
}

engine::ServingConfig serving_config(const ServeFlags& flags, const config::ModelConfig& config,
                                     metrics::Registry& registry) {
  engine::ServingConfig serving;
  serving.step = {.chunked_prefill_size = *flags.engine.memory.chunked_prefill_size,
                  .max_step_seconds = *flags.scheduling.max_step_ms / 1e3,
                  .max_running_requests = flags.engine.memory.max_running_requests,
                  .schedule_policy = flags.scheduling.schedule_policy == "lpm"
                                         ? sched::SchedulePolicy::kLpm
                                         : sched::SchedulePolicy::kFcfs,
                  .radix_cache = !flags.scheduling.disable_radix_cache,
                  .overlap = !flags.scheduling.disable_overlap_schedule,
                  .speculation = speculation_config(flags.engine.speculation),
                  .eos_token_ids = config.eos_token_ids,
                  .random_seed = entropy_bits()};
  serving.max_queued_requests = flags.scheduling.max_queued_requests;
  serving.max_queue_seconds = flags.scheduling.max_queue_seconds;
  serving.num_mask_workers = flags.scheduling.num_mask_workers;
  serving.registry = &registry;
  return serving;
}

serve::EngineFacts engine_facts(Backend& backend, const engine::ServingEngine& engine) {
  const runner::RunnerInfo& info = backend.runner().info();
  const runner::KvGroupInfo& group = info.kv_groups.front();
  return {.max_context_tokens = static_cast<int>(info.max_context_tokens),
          .num_lanes = info.num_lanes,
          .max_total_tokens = int64_t{info.num_lanes} * group.num_blocks * group.block_tokens,
          .max_running_requests = engine.max_running_requests(),
          .weight_bytes = backend.weight_bytes,
          .kv_cache_bytes = info.num_lanes * group.num_blocks * group.block_bytes};
}

void tell_simulated_acceptance(const ServeFlags& flags, metrics::Registry& registry) {
  const SpeculationFlags& speculation = flags.engine.speculation;
  const bool is_simulated =
      speculation.simulate_accept_length || (speculation.enabled() && flags.is_simulation());
  registry
      .gauge({.name = "fathom:spec_accept_simulated",
              .help = "1 = whether drafts are accepted is simulated, whatever the model says."})
      .set(is_simulated ? 1 : 0);
}

// Of which program the other figures are.
void tell_build(metrics::Registry& registry) {
  const std::string cuda = cuda::built_with();
  registry
      .gauge({.name = "fathom:build_info",
              .help = "1; what was built, as labels.",
              .labels = {{"version", version()},
                         {"commit", built_from()},
                         {"cuda", cuda.empty() ? "none" : cuda}}})
      .set(1);
}

// Without a GPU, or where the driver's library is missing, there is nothing to tell.
metrics::Registry::Collector tell_gpus(const Backend& backend, metrics::Registry& registry) {
  if (backend.simulation || !backend.model.backend->device_memory) return {};
  Result<std::unique_ptr<metrics::Nvml>> nvml = metrics::Nvml::open();
  if (nvml)
    return metrics::add_gpu_metrics(registry, std::move(*nvml),
                                    cuda::bus_ids(backend.model.ranks->size()));
  FATHOM_LOG(kInfo, "apps", "no metrics of GPUs", {{"why", nvml.error().message}});
  return {};
}

void reload_keys(const ServeFlags& flags, http::Server& http) {
  try {
    http::KeyStore keys = read_keys(flags.access);
    FATHOM_LOG(kInfo, "apps", "keys read again", {{"num_api_keys", keys.size()}});
    http.replace_keys(std::move(keys));
  } catch (const StartupError& error) {
    FATHOM_LOG(kError, "apps", "keys not read again, the old ones stay", {{"why", error.what()}});
  }
}

void reload_certificate(const ServeFlags& flags, http::Server& http) {
  if (!flags.tls()) return;
  if (const Status read = http.reload_tls(); !read) {
    FATHOM_LOG(kError, "apps", "TLS certificate not read again, the old one stays",
               {{"why", read.error().message}});
  } else {
    FATHOM_LOG(kInfo, "apps", "TLS certificate read again",
               {{"ssl_certfile", flags.address.ssl_certfile}});
  }
}

// Admitted requests finish within the time, unless a second signal comes; what is left then ends with an
// error. False when the signal came.
bool drain(const ServeFlags& flags, const ShutdownSignals& signals, serve::ApiServer& api,
           http::Server& http) {
  FATHOM_LOG(kInfo, "apps", "draining", {{"open_requests", api.num_open_requests()}});
  const Stopwatch watch;
  api.begin_drain();
  http.begin_drain();
  bool done = http.wait_idle(kSignalPoll);
  while (!done && !signals.is_urgent() && watch.seconds() < flags.service.drain_timeout_seconds) {
    done = http.wait_idle(kSignalPoll);
  }
  const int num_failed = done ? 0 : api.num_open_requests();
  if (!done) {
    api.fail_open_requests();
    http.wait_idle(kFlushTime);
  }
  FATHOM_LOG(kInfo, "apps", "drained", {{"seconds", watch.seconds()}, {"failed", num_failed}});
  return done || !signals.is_urgent();
}

// The exit status.
int serve_until_signal(const ServeFlags& flags, ShutdownSignals& signals, serve::ApiServer& api,
                       http::Server& http) {
  const memory::MustSucceed scope;  // this thread, too, is everybody's
  signals.serving_begins();
  std::printf("Fathom is ready: %s\n", base_url(flags, http.port()).c_str());
  std::fflush(stdout);
  while (signals.wait() == ShutdownSignals::Kind::kReload) {
    reload_keys(flags, http);
    reload_certificate(flags, http);
  }
  return drain(flags, signals, api, http) ? 0 : 1;
}

// From here on the settings that a backend or the system decides are numbers, and are shown as such.
ServeFlags resolved(ServeFlags flags) {
  const NodePlace place = node_place(flags.engine.nodes, process_environment());
  if (!flags.is_simulation()) check_nodes(flags.engine.nodes, place, flags.engine.ranks.tp_size);
  flags.engine.nodes.num_nodes = place.num_nodes;
  flags.engine.nodes.node_rank = place.node_rank;
  flags.limits.max_connections = raise_file_limit(flags.limits.max_connections);
  std::optional<int64_t>& body_memory = flags.limits.max_body_memory;
  body_memory = body_memory.value_or(memory::limit_bytes() / kBodyMemoryShare);
  std::optional<int>& chunk = flags.engine.memory.chunked_prefill_size;
  std::optional<double>& step_ms = flags.scheduling.max_step_ms;
  if (flags.is_simulation()) {
    check_no_nodes(flags.engine.nodes, "--engine sim");
    chunk = chunk.value_or(kSimulatedChunk);
    // Its steps take as long whatever they compute.
    step_ms = step_ms.value_or(0);
  } else {
    const ops::Backend& backend = choose_backend(flags.engine);
    chunk = chunked_prefill_size(flags.engine, backend);
    step_ms = step_ms.value_or(backend.device_memory ? kGpuStepMs : kCpuStepMs);
    flags.engine.device.cuda_graph_bs = graph_batch_sizes(flags.engine, backend);
  }
  return flags;
}

// What was logged is written before the program ends, unless whoever reads the log stalls.
struct LogFlusher {
  ~LogFlusher() { flush_log(kLogFlushTime); }
};

// For a person at a terminal, in place of the log's lines.
void show_banner(const ServeFlags& flags, const serve::EngineFacts& facts,
                 const std::string& device, int port) {
  const std::string model = model_names(flags).front();
  const std::string url = base_url(flags, port);
  std::fprintf(stderr,
               "%s: %s on %s, %lld tokens of cache\n"
               "Open %s to chat; the OpenAI API is %s/v1; Ctrl-C ends it. More: --log-level info\n",
               version_text("fathom").c_str(), model.c_str(), device.c_str(),
               static_cast<long long>(facts.max_total_tokens), url.c_str(), url.c_str());
}

int run(const ServeFlags& flags_given) {
  ServeFlags asked = flags_given;
  asked.engine.log.is_json = asked.log_format == "json";
  asked.engine.model.model_path =
      std::filesystem::absolute(asked.engine.model.model_path).lexically_normal().string();
  memory::configure_heap();
  set_log_format(asked.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  apply_log_flags(asked.engine.log);
  // Before anything starts a thread, which asking for a GPU does: a signal must find none that takes it.
  ShutdownSignals signals;
  start_background_log();
  const LogFlusher flusher;
  const ServeFlags flags = resolved(asked);
  // A signal to end is for node 0, with which the others end.
  if (is_follower(flags.engine)) return follow(flags.engine, [&] { signals.serving_begins(); });
  const Stopwatch total;
  http::KeyStore keys = read_keys(flags.access);
  check_address(flags, keys);
  const config::ModelConfig config = load_config(flags.engine.model);
  check_ranks(flags.engine.ranks, config);
  serve::ApiConfig configured = api_config(flags, config, keys);
  log_settings(flags, configured);
  serve::ApiServer api(std::move(configured));
  http::Router router;
  api.register_routes(router);
  http::ServerConfig http_settings = http_config(flags, std::move(keys));
  if (flags.log_requests) http_settings.on_access = serve::log_access;
  http::Server http(std::move(http_settings), std::move(router));
  api.set_transport(http);
  http.start();
  const std::unique_ptr<kv_events::Publisher> publisher =
      make_kv_event_publisher(flags, api.registry());
  FATHOM_LOG(kInfo, "apps", "listening",
             {{"url", base_url(flags, http.port())}, {"seconds", total.seconds()}});
  Backend backend = make_backend(flags, config, api);
  const double loaded_seconds = total.seconds();
  int status = 0;
  {
    engine::ServingConfig serving = serving_config(flags, config, api.registry());
    serving.step.block_listener = publisher.get();
    serving.on_failure = [&signals](const std::string&) { signals.shut_down(); };
    engine::ServingEngine engine(backend.runner(), serving, api.update_sink());
    tell_simulated_acceptance(flags, api.registry());
    tell_build(api.registry());
    const metrics::Registry::Collector gpus = tell_gpus(backend, api.registry());
    engine.metrics().add_startup(
        {.total_seconds = total.seconds(), .load_weights_seconds = loaded_seconds});
    memory::arm(memory::default_reserve_bytes());
    serve::EngineFacts facts = engine_facts(backend, engine);
    facts.startup_seconds = total.seconds();
    api.set_ready(engine, facts);
    FATHOM_LOG(kInfo, "apps", "serving", {{"startup_s", total.seconds()}});
    if (flags.engine.log.is_quiet()) {
      show_banner(flags, facts, backend.device(), http.port());
      set_log_level(LogLevel::kInfo);  // from here on, requests
    }
    status = serve_until_signal(flags, signals, api, http);
    http.stop();
    api.detach_engine();
  }
  // Ranks that wait for one that stands still are not to be joined.
  if (const std::string why = backend.runner().failure(); !why.empty()) {
    if (backend.model.cluster) backend.model.cluster->leave(why);
    end_here(kFailedStatus);
  }
  return status;
}

// What the transport says is of sockets; which flag there is, is known here.
int run_or_advise(const ServeFlags& flags) {
  try {
    return run(flags);
  } catch (const StartupError& error) {
    const std::string why = error.what();
    if (why.find("Address already in use") == why.npos) throw;
    throw StartupError(why + "; end the program that has the port, or choose another: --port");
  }
}

}  // namespace

Command add_serve(CLI::App& parent) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* app =
      parent.add_subcommand("serve", "Serve a model over HTTP: the OpenAI API and SGLang's own");
  add_serve_flags(*app, *flags);
  set_examples(*app, {"fathom serve --model-path models/demo",
                      "fathom serve --model-path /models/DeepSeek-V2-Lite --host 0.0.0.0 \\",
                      "    --api-key-file /etc/fathom/keys --served-model-name deepseek-v2-lite",
                      "fathom serve --model-path models/demo --engine sim --sim-step-us 10000"});
  return {.app = app, .run = [flags] { return run_or_advise(*flags); }};
}

}  // namespace fathom::apps
