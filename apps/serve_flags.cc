#include "apps/serve_flags.h"

#include <chrono>
#include <cstdlib>

#include "apps/command_line.h"
#include "base/startup_error.h"
#include "serve/api_server.h"
#include "text/chat_format.h"

namespace fathom::apps {
namespace {

void add_address_flags(CLI::App& app, AddressFlags& flags) {
  const std::string group = "Address";
  app.add_option("--host", flags.host, "Address to listen on; others than loopback need a key")
      ->type_name("ADDRESS")
      ->group(group);
  app.add_option("--port", flags.port, "Port to listen on; 0 lets the system choose")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT")
      ->group(group);
  app.add_option("--num-io-threads", flags.num_io_threads, "Threads that serve connections")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->group(group);
  CLI::Option* certificate =
      app.add_option("--ssl-certfile", flags.ssl_certfile,
                     "PEM certificate chain: serve HTTPS; read again on SIGHUP")
          ->type_name("FILE")
          ->group(group);
  CLI::Option* key = app.add_option("--ssl-keyfile", flags.ssl_keyfile, "Its PEM private key")
                         ->type_name("FILE")
                         ->group(group);
  certificate->needs(key);
  key->needs(certificate);
  app.add_option("--allowed-host", flags.allowed_hosts,
                 "Name or address besides loopback's and --host that clients may call this server "
                 "by, or *; repeatable. Asked of every request where there is no API key")
      ->allow_extra_args(false)
      ->type_name("HOST")
      ->group(group);
  app.add_option("--cors-origin", flags.cors_origins,
                 "Origin that browsers may call the API from, or *; repeatable")
      ->allow_extra_args(false)
      ->type_name("ORIGIN")
      ->default_str("the server's own")
      ->group(group);
}

void add_access_flags(CLI::App& app, AccessFlags& flags) {
  const std::string group = "Access";
  app.add_option(
         "--api-key", flags.api_keys,
         "KEY or NAME:KEY that clients must send; repeatable. Better: --api-key-file or the "
         "environment variable FATHOM_API_KEY, which `ps` does not show")
      ->type_name("KEY")
      ->group(group);
  app.add_option("--api-key-file", flags.api_key_file,
                 "File with one KEY or NAME:KEY per line; read again on SIGHUP")
      ->type_name("FILE")
      ->group(group);
  app.add_option(
         "--admin-api-key", flags.admin_api_keys,
         "Key for /flush_cache, /abort_request, /pause_generation, /continue_generation and the "
         "profiler; also FATHOM_ADMIN_API_KEY. Without one any key may")
      ->type_name("KEY")
      ->group(group);
  app.add_flag("--insecure", flags.insecure,
               "Listen on other addresses than loopback without any key")
      ->group(group);
  app.add_flag(
         "--open-health", flags.open_health,
         "Answer /health, /health_generate and /ping without a key, as /livez and /readyz are")
      ->group(group);
  app.add_flag("--open-metrics", flags.open_metrics, "Answer /metrics without a key")->group(group);
}

void add_scheduling_flags(CLI::App& app, SchedulingFlags& flags) {
  const std::string group = "Scheduling";
  app.add_option("--schedule-policy", flags.schedule_policy,
                 "lpm admits the request with the longest cached prefix first, fcfs the oldest")
      ->check(CLI::IsMember({"lpm", "fcfs"}))
      ->type_name("lpm|fcfs")
      ->group(group);
  app.add_flag("--disable-radix-cache", flags.disable_radix_cache,
               "Compute every prompt from its first token")
      ->group(group);
  add_overlap_flag(app, group, flags.disable_overlap_schedule);
  app.add_option(
         "--max-step-ms", flags.max_step_ms,
         "How long a step may take in which answers are being written: prompts are computed "
         "in chunks that fit, by what steps took before. 0 is no bound")
      ->check(CLI::Range(0.0, 600'000.0))
      ->type_name("MILLISECONDS")
      ->default_str("100 on a CPU, 50 on a GPU, 0 in a simulation")
      ->group(group);
  app.add_option("--max-queued-requests", flags.max_queued_requests,
                 "Requests that may wait; more are refused with 429")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  app.add_option("--max-queue-seconds", flags.max_queue_seconds,
                 "A request that waits longer is given up")
      ->check(CLI::Range(0.1, 86400.0))
      ->type_name("SECONDS")
      ->group(group);
  app.add_option("--num-mask-workers", flags.num_mask_workers,
                 "Threads that compute the masks of constrained requests")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->group(group);
}

void add_service_flags(CLI::App& app, ServiceFlags& flags) {
  const std::string group = "Service";
  app.add_option("--served-model-name", flags.served_model_names,
                 "Name that clients ask for; repeatable, the first is shown")
      ->type_name("NAME")
      ->default_str("the directory's name")
      ->group(group);
  app.add_option("--chat-format", flags.chat_format,
                 "auto chooses by the checkpoint; else one of " + text::chat_format_names())
      ->type_name("NAME")
      ->group(group);
  app.add_option("--sampling-defaults", flags.sampling_defaults,
                 "What the OpenAI endpoints use where a request says nothing: the API's documented "
                 "values, or those of generation_config.json")
      ->check(CLI::IsMember({"openai", "model"}))
      ->type_name("openai|model")
      ->group(group);
  app.add_flag("--thinking", flags.thinking,
               "Formats that can switch reasoning (v3.1) have it on by default")
      ->group(group);
  app.add_flag(
         "--stop-in-reasoning", flags.stop_in_reasoning,
         "Stop strings and tokens of chats end reasoning too; they wait for its end otherwise")
      ->group(group);
  app.add_flag(
         "--any-model-name", flags.any_model_name,
         "Answer whatever model a request names; otherwise another one than those served is a "
         "404")
      ->group(group);
  app.add_flag("--constrain-tool-calls", flags.constrain_tool_calls,
               "Hold the arguments of every tool call to the tool's schema")
      ->group(group);
  app.add_flag("--constrained-json-disable-any-whitespace", flags.json_without_white_space,
               "Nothing stands between the tokens of JSON that a format asks for, unless the "
               "request says what may")
      ->group(group);
  app.add_option(
         "--unknown-fields", flags.unknown_fields,
         "Fields of bodies that no API has: refuse is a 400 that names the nearest one, ignore "
         "skips them; by-endpoint skips them in /v1/messages and /v1/responses only")
      ->check(CLI::IsMember({"by-endpoint", "refuse", "ignore"}))
      ->group(group);
  app.add_option("--drain-timeout", flags.drain_timeout_seconds,
                 "After SIGTERM, how long admitted requests may take to finish")
      ->check(CLI::Range(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group(group);
  app.add_option("--num-workers", flags.num_workers,
                 "Threads that read, tokenise and compile requests")
      ->check(CLI::Range(1, 64))
      ->type_name("N")
      ->group(group);
  app.add_option(
         "--max-stored-responses", flags.max_stored_responses,
         "Answers of /v1/responses that are kept for requests that go on with them; 0 keeps none")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N")
      ->group(group);
  app.add_option("--max-stored-bytes", flags.max_stored_bytes,
                 "What they may take of memory together; the one used least recently goes first")
      ->check(CLI::Range(int64_t{1} << 16, int64_t{1} << 40))
      ->type_name("BYTES")
      ->group(group);
  app.add_option("--profile-dir", flags.profile_dir,
                 "Directory for the traces of /start_profile and /stop_profile")
      ->check(CLI::ExistingDirectory)
      ->type_name("DIR")
      ->default_str("profiling is off")
      ->group(group);
}

void add_limit_flags(CLI::App& app, LimitFlags& flags) {
  const std::string group = "Limits";
  app.add_option("--max-body-bytes", flags.max_body_bytes, "Largest request body")
      ->check(CLI::Range(int64_t{1} << 10, int64_t{1} << 30))
      ->type_name("BYTES")
      ->group(group);
  app.add_option("--max-body-memory", flags.max_body_memory,
                 "Memory for all request bodies in work and what is made of them; a body counts "
                 "eight times its size")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 50))
      ->type_name("BYTES")
      ->default_str("a quarter of the memory")
      ->group(group);
  app.add_option(
         "--max-connections", flags.max_connections,
         "Connections open at the same time. Beyond it idle ones give way; when there is none, "
         "probes are still answered and others refused")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  app.add_option(
         "--max-connections-per-address", flags.max_connections_per_address,
         "Of these from one IPv4 address or one IPv6 /64 network; 0 is no limit. A proxy is "
         "one address")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N")
      ->group(group);
  const auto seconds = [&](const char* name, double& value, const char* help) {
    app.add_option(name, value, help)
        ->check(CLI::Range(0.01, 86400.0))
        ->type_name("SECONDS")
        ->group(group);
  };
  seconds("--header-timeout", flags.header_timeout_seconds, "To receive a request's headers");
  seconds("--body-timeout", flags.body_timeout_seconds, "Between two pieces of a body");
  seconds("--request-body-timeout", flags.request_body_timeout_seconds,
          "To receive a whole body, besides a second for every 32 KiB of it that have come");
  seconds("--keep-alive-timeout", flags.keep_alive_seconds, "For which a connection may idle");
  seconds("--write-timeout", flags.write_stall_seconds,
          "After which a client that takes nothing is cut off");
  seconds("--stream-comment-interval", flags.stream_comment_seconds,
          "A silent stream gets a comment line this often");
}

void add_simulation_flags(CLI::App& app, SimulationFlags& flags) {
  const std::string group = "Simulation";
  app.add_option("--engine", flags.engine,
                 "sim runs without weights: tokens are hashes of what came before. For load tests "
                 "of everything around the model; needs config.json and the tokenizer")
      ->check(CLI::IsMember({"model", "sim"}))
      ->type_name("model|sim")
      ->group(group);
  app.add_option("--sim-step-us", flags.step_us, "How long a simulated step takes")
      ->check(CLI::Range(0, 10'000'000))
      ->type_name("MICROSECONDS")
      ->group(group);
}

void add_key_of_environment(http::KeyStore& keys, const char* name, http::KeyRole role) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return;
  const Status added = keys.add(value, role);
  if (!added) throw StartupError(std::string(name) + ": " + added.error().message);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

}  // namespace

void add_serve_flags(CLI::App& app, ServeFlags& flags) {
  add_address_flags(app, flags.address);
  add_access_flags(app, flags.access);
  add_model_flags(app, flags.engine.model);
  add_deterministic_flag(app, flags.engine.model);
  add_service_flags(app, flags.service);
  add_memory_flags(app, flags.engine.memory);
  add_scheduling_flags(app, flags.scheduling);
  add_speculation_flags(app, flags.engine.speculation);
  add_limit_flags(app, flags.limits);
  add_device_flags(app, flags.engine.device);
  add_rank_flags(app, flags.engine.ranks);
  add_rank_wait_flag(app, flags.engine.ranks);
  add_node_flags(app, flags.engine.nodes);
  add_simulation_flags(app, flags.simulation);
  add_log_flags(app, flags.engine.log);
  add_config_flag(app, &flags.config_file);
  app.add_option("--log-format", flags.log_format, "Log lines as key=value text or JSON objects")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("text|json")
      ->group("Logging");
  app.add_flag("--log-requests,!--no-log-requests", flags.log_requests,
               "A line for each request, without any text of it; what needs no model and went well "
               "is logged at level debug")
      ->group("Logging");
  app.add_option("--otlp-traces-endpoint", flags.otlp_traces_endpoint,
                 "Send a span for each request to this OpenTelemetry collector: OTLP over HTTP, "
                 "such as http://127.0.0.1:4318/v1/traces")
      ->type_name("URL")
      ->group("Logging");
  app.add_option(
         "--kv-events-config", flags.kv_events_config,
         "Publish which prefixes are cached, for routers, by ZeroMQ as vLLM and SGLang do, such as "
         R"({"publisher": "zmq", "endpoint": "tcp://*:5557"})")
      ->type_name("JSON")
      ->group("Scheduling");
}

http::KeyStore read_keys(const AccessFlags& flags) {
  http::KeyStore keys;
  for (const std::string& key : flags.api_keys) {
    throw_on_error(keys.add(key, http::KeyRole::kInference));
  }
  add_key_of_environment(keys, "FATHOM_API_KEY", http::KeyRole::kInference);
  if (!flags.api_key_file.empty()) {
    throw_on_error(keys.add_file(flags.api_key_file, http::KeyRole::kInference));
  }
  for (const std::string& key : flags.admin_api_keys) {
    throw_on_error(keys.add(key, http::KeyRole::kAdmin));
  }
  add_key_of_environment(keys, "FATHOM_ADMIN_API_KEY", http::KeyRole::kAdmin);
  return keys;
}

void check_address(const ServeFlags& flags, const http::KeyStore& keys) {
  // An admin key alone guards only what is the administrator's.
  const bool asks_for_key = keys.has_role(http::KeyRole::kInference);
  if (is_loopback(flags.address.host) || asks_for_key || flags.access.insecure) return;
  throw StartupError("--host " + flags.address.host +
                     " lets other machines in and no API key is set; set --api-key-file (or "
                     "--api-key, FATHOM_API_KEY), or say --insecure");
}

http::ServerConfig http_config(const ServeFlags& flags, http::KeyStore keys) {
  http::ServerConfig config;
  config.host = flags.address.host;
  config.port = flags.address.port;
  config.num_threads = flags.address.num_io_threads;
  config.limits.max_body_bytes = flags.limits.max_body_bytes;
  config.limits.max_bodies_bytes = flags.limits.max_body_memory.value() / serve::kBodyMemoryPerByte;
  config.limits.max_connections = flags.limits.max_connections;
  config.limits.max_connections_per_address = flags.limits.max_connections_per_address;
  config.timeouts.header = milliseconds(flags.limits.header_timeout_seconds);
  config.timeouts.body_idle = milliseconds(flags.limits.body_timeout_seconds);
  config.timeouts.body = milliseconds(flags.limits.request_body_timeout_seconds);
  config.timeouts.keep_alive = milliseconds(flags.limits.keep_alive_seconds);
  config.timeouts.write_stall = milliseconds(flags.limits.write_stall_seconds);
  config.timeouts.stream_comment = milliseconds(flags.limits.stream_comment_seconds);
  config.tls_certificate_path = flags.address.ssl_certfile;
  config.tls_key_path = flags.address.ssl_keyfile;
  config.allowed_hosts = flags.address.allowed_hosts;
  config.cors_origins = flags.address.cors_origins;
  config.keys = std::move(keys);
  return config;
}

json::Value settings_json(const ServeFlags& flags) {
  const ModelFlags& model = flags.engine.model;
  const MemoryFlags& memory = flags.engine.memory;
  const auto or_automatic = [](const auto& value) {
    return value ? json::Value(*value) : json::Value("auto");
  };
  json::Value settings = {
      {"host", flags.address.host},
      {"port", flags.address.port},
      {"num_io_threads", flags.address.num_io_threads},
      {"tls", flags.tls()},
      {"allowed_host", flags.address.allowed_hosts},
      {"cors_origin", flags.address.cors_origins},
      {"insecure", flags.access.insecure},
      {"open_health", flags.access.open_health},
      {"open_metrics", flags.access.open_metrics},
      {"load_format", model.load_format},
      {"num_layers", or_automatic(model.num_layers)},
      {"context_length", or_automatic(model.context_length)},
      {"random_seed", model.random_seed},
      {"dtype", model.dtype},
      {"kv_cache_dtype", model.kv_cache_dtype},
      {"absorbed_dtype", model.absorbed_dtype},
      {"dequantize", model.dequantize},
      {"deterministic", model.deterministic},
      {"chat_format", flags.service.chat_format},
      {"sampling_defaults", flags.service.sampling_defaults},
      {"thinking", flags.service.thinking},
      {"stop_in_reasoning", flags.service.stop_in_reasoning},
      {"constrain_tool_calls", flags.service.constrain_tool_calls},
      {"constrained_json_disable_any_whitespace", flags.service.json_without_white_space},
      {"any_model_name", flags.service.any_model_name},
      {"unknown_fields", flags.service.unknown_fields},
      {"drain_timeout", flags.service.drain_timeout_seconds},
      {"num_workers", flags.service.num_workers},
      {"max_stored_responses", flags.service.max_stored_responses},
      {"max_stored_bytes", flags.service.max_stored_bytes},
      {"profiling", !flags.service.profile_dir.empty()},
      {"chunked_prefill_size", or_automatic(memory.chunked_prefill_size)},
      {"max_running_requests", memory.max_running_requests},
      {"mem_fraction_static", or_automatic(memory.mem_fraction_static)},
      {"max_total_tokens", or_automatic(memory.max_total_tokens)},
      {"schedule_policy", flags.scheduling.schedule_policy},
      {"disable_radix_cache", flags.scheduling.disable_radix_cache},
      {"disable_overlap_schedule", flags.scheduling.disable_overlap_schedule},
      {"max_step_ms", or_automatic(flags.scheduling.max_step_ms)},
      {"max_queued_requests", flags.scheduling.max_queued_requests},
      {"max_queue_seconds", flags.scheduling.max_queue_seconds},
      {"num_mask_workers", flags.scheduling.num_mask_workers},
      {"max_body_bytes", flags.limits.max_body_bytes},
      {"max_body_memory", or_automatic(flags.limits.max_body_memory)},
      {"max_connections", flags.limits.max_connections},
      {"max_connections_per_address", flags.limits.max_connections_per_address},
      {"header_timeout", flags.limits.header_timeout_seconds},
      {"body_timeout", flags.limits.body_timeout_seconds},
      {"request_body_timeout", flags.limits.request_body_timeout_seconds},
      {"keep_alive_timeout", flags.limits.keep_alive_seconds},
      {"write_timeout", flags.limits.write_stall_seconds},
      {"stream_comment_interval", flags.limits.stream_comment_seconds},
      {"device", flags.engine.device.device},
      {"cpu_backend", flags.engine.device.cpu_backend},
      {"cpu_threads", flags.engine.device.cpu_threads},
      {"disable_cuda_graph", flags.engine.device.disable_cuda_graph},
      {"cuda_graph_max_bs", or_automatic(flags.engine.device.cuda_graph_max_bs)},
      {"cuda_graph_bs", flags.engine.device.cuda_graph_bs},
      {"gemm_backend", flags.engine.device.gemm_backend},
      {"attention_backend", flags.engine.device.attention_backend},
      {"disable_fusion", flags.engine.device.disable_fusion},
      {"engine", flags.simulation.engine},
      {"sim_step_us", flags.simulation.step_us},
      {"log_level", flags.engine.log.log_level},
      {"log_format", flags.log_format},
      {"log_requests", flags.log_requests},
      {"otlp_traces_endpoint", flags.otlp_traces_endpoint},
      {"kv_events_config", flags.kv_events_config}};
  settings.update(rank_settings(flags.engine.ranks));
  settings.update(node_settings(flags.engine.nodes));
  settings.update(speculation_settings(flags.engine.speculation));
  return settings;
}

std::vector<LogField> access_settings(const ServeFlags& flags) {
  return {{"ssl_certfile", flags.address.ssl_certfile},
          {"ssl_keyfile", flags.address.ssl_keyfile},
          {"api_key", flags.access.api_keys.size()},
          {"admin_api_key", flags.access.admin_api_keys.size()},
          {"api_key_file", flags.access.api_key_file},
          {"cluster_key_file", flags.engine.nodes.cluster_key_file},
          {"config", flags.config_file},
          {"profile_dir", flags.service.profile_dir}};
}

std::string base_url(const ServeFlags& flags, int port) {
  const bool is_v6 = flags.address.host.find(':') != std::string::npos;
  return std::string(flags.tls() ? "https://" : "http://") + (is_v6 ? "[" : "") +
         flags.address.host + (is_v6 ? "]" : "") + ":" + std::to_string(port);
}

}  // namespace fathom::apps
