#include "apps/flags/serve_flags.h"

#include <chrono>
#include <cstdlib>

#include "apps/common/command_line.h"
#include "base/startup_error.h"
#include "serve/api_server.h"
#include "text/chat_format.h"

namespace fathom::apps {
namespace {

void take_one_value_each(CLI::Option& option, AddressFlags&) { option.allow_extra_args(false); }

const FlagTable<AddressFlags>& address_flags() {
  static const FlagTable<AddressFlags> table(
      "Address",
      {{"--host",
        &AddressFlags::host,
        "Address to listen on; others than loopback need a key",
        {.type = "ADDRESS"}},
       {"--port",
        &AddressFlags::port,
        "Port to listen on; 0 lets the system choose",
        {.type = "PORT", .check = CLI::Range(0, 65535)}},
       {"--num-io-threads",
        &AddressFlags::num_io_threads,
        "Threads that serve connections",
        {.type = "N", .check = CLI::Range(1, 64)}},
       {"--ssl-certfile",
        &AddressFlags::ssl_certfile,
        "PEM certificate chain: serve HTTPS; read again on SIGHUP",
        {.type = "FILE",
         .shown = Shown::kInLog,
         .key = "tls",
         .setting = [](const AddressFlags& flags) { return !flags.ssl_certfile.empty(); }}},
       {"--ssl-keyfile",
        &AddressFlags::ssl_keyfile,
        "Its PEM private key",
        {.type = "FILE", .shown = Shown::kInLog}},
       {"--allowed-host",
        &AddressFlags::allowed_hosts,
        "Name or address besides loopback's and --host that clients may call this server "
        "by, or *; repeatable. Asked of every request where there is no API key",
        {.type = "HOST", .parse_rules = take_one_value_each}},
       {"--cors-origin",
        &AddressFlags::cors_origins,
        "Origin that browsers may call the API from, or *; repeatable",
        {.type = "ORIGIN",
         .default_text = "the server's own",
         .parse_rules = take_one_value_each}}});
  return table;
}

const FlagTable<AccessFlags>& access_flags() {
  static const FlagTable<AccessFlags> table(
      "Access",
      {{"--api-key",
        &AccessFlags::api_keys,
        "KEY or NAME:KEY that clients must send; repeatable. Better: --api-key-file or the "
        "environment variable FATHOM_API_KEY, which `ps` does not show",
        {.type = "KEY", .shown = Shown::kCountInLog}},
       {"--api-key-file",
        &AccessFlags::api_key_file,
        "File with one KEY or NAME:KEY per line; read again on SIGHUP",
        {.type = "FILE", .shown = Shown::kInLog}},
       {"--admin-api-key",
        &AccessFlags::admin_api_keys,
        "Key for /flush_cache, /abort_request, /pause_generation, /continue_generation and the "
        "profiler; also FATHOM_ADMIN_API_KEY. Without one a server's only key may, and of several "
        "none",
        {.type = "KEY", .shown = Shown::kCountInLog}},
       {"--admin-api-key-file",
        &AccessFlags::admin_api_key_file,
        "File with such keys, one KEY or NAME:KEY per line; read again on SIGHUP",
        {.type = "FILE", .shown = Shown::kInLog}},
       {"--insecure", &AccessFlags::insecure,
        "Listen on other addresses than loopback without any key"},
       {"--open-health", &AccessFlags::open_health,
        "Answer /health, /health_generate and /ping without a key, as /livez and /readyz are"},
       {"--open-metrics", &AccessFlags::open_metrics, "Answer /metrics without a key"}});
  return table;
}

const FlagTable<SchedulingFlags>& scheduling_flags() {
  static const FlagTable<SchedulingFlags> table(
      "Scheduling",
      {{"--schedule-policy",
        &SchedulingFlags::schedule_policy,
        "lpm admits the request with the longest cached prefix first, fcfs the oldest",
        {.type = "lpm|fcfs", .check = CLI::IsMember({"lpm", "fcfs"})}},
       {"--disable-radix-cache", &SchedulingFlags::disable_radix_cache,
        "Compute every prompt from its first token"},
       overlap_row<SchedulingFlags>(),
       {"--max-step-ms",
        &SchedulingFlags::max_step_ms,
        "How long a step may take in which answers are being written: prompts are computed "
        "in chunks that fit, by what steps took before. 0 is no bound",
        {.type = "MILLISECONDS",
         .check = CLI::Range(0.0, 600'000.0),
         .default_text = "100 on a CPU, 50 on a GPU, 0 in a simulation"}},
       {"--max-queued-requests",
        &SchedulingFlags::max_queued_requests,
        "Requests that may wait; more are refused with 429",
        {.type = "N", .check = CLI::Range(1, 1 << 20)}},
       {"--max-queue-seconds",
        &SchedulingFlags::max_queue_seconds,
        "A request that waits longer is given up",
        {.type = "SECONDS", .check = CLI::Range(0.1, 86400.0)}},
       {"--num-mask-workers",
        &SchedulingFlags::num_mask_workers,
        "Threads that compute the masks of constrained requests",
        {.type = "N", .check = CLI::Range(1, 64)}}});
  return table;
}

const FlagTable<ServiceFlags>& service_flags() {
  static const FlagTable<ServiceFlags> table(
      "Service",
      {{"--served-model-name",
        &ServiceFlags::served_model_names,
        "Name that clients ask for; repeatable, the first is shown",
        {.type = "NAME",
         .default_text = "the directory's name",
         .shown = Shown::kElsewhere,
         .told_by = "the server, which tells of its model"}},
       {"--chat-format",
        &ServiceFlags::chat_format,
        "auto chooses by the checkpoint; else one of " + text::chat_format_names(),
        {.type = "NAME"}},
       {"--sampling-defaults",
        &ServiceFlags::sampling_defaults,
        "What the OpenAI endpoints use where a request says nothing: the API's documented "
        "values, or those of generation_config.json",
        {.type = "openai|model", .check = CLI::IsMember({"openai", "model"})}},
       {"--thinking", &ServiceFlags::thinking,
        "Formats that can switch reasoning (v3.1, v3.2) have it on by default"},
       {"--stop-in-reasoning", &ServiceFlags::stop_in_reasoning,
        "Stop strings and tokens of chats end reasoning too; they wait for its end otherwise"},
       {"--any-model-name", &ServiceFlags::any_model_name,
        "Answer whatever model a request names; otherwise another one than those served is a "
        "404"},
       {"--constrain-tool-calls", &ServiceFlags::constrain_tool_calls,
        "Hold the arguments of every tool call to the tool's schema"},
       {"--constrained-json-disable-any-whitespace", &ServiceFlags::json_without_white_space,
        "Nothing stands between the tokens of JSON that a format asks for, unless the "
        "request says what may"},
       {"--unknown-fields",
        &ServiceFlags::unknown_fields,
        "Fields of bodies that no API has: refuse is a 400 that names the nearest one, ignore "
        "skips them; by-endpoint skips them in /v1/messages and /v1/responses only",
        {.check = CLI::IsMember({"by-endpoint", "refuse", "ignore"})}},
       {"--drain-timeout",
        &ServiceFlags::drain_timeout_seconds,
        "After SIGTERM, how long admitted requests may take to finish",
        {.type = "SECONDS", .check = CLI::Range(0.0, 86400.0)}},
       {"--num-workers",
        &ServiceFlags::num_workers,
        "Threads that read, tokenise and compile requests",
        {.type = "N", .check = CLI::Range(1, 64)}},
       {"--max-stored-responses",
        &ServiceFlags::max_stored_responses,
        "Answers of /v1/responses that are kept for requests that go on with them; 0 keeps none",
        {.type = "N", .check = CLI::Range(0, 1 << 20)}},
       {"--max-stored-bytes",
        &ServiceFlags::max_stored_bytes,
        "What they may take of memory together; the one used least recently goes first",
        {.type = "BYTES", .check = CLI::Range(int64_t{1} << 16, int64_t{1} << 40)}},
       {"--profile-dir",
        &ServiceFlags::profile_dir,
        "Directory for the traces of /start_profile and /stop_profile",
        {.type = "DIR",
         .check = CLI::ExistingDirectory,
         .default_text = "profiling is off",
         .shown = Shown::kInLog,
         .key = "profiling",
         .setting = [](const ServiceFlags& flags) { return !flags.profile_dir.empty(); }}}});
  return table;
}

const FlagTable<LimitFlags>& limit_flags() {
  const FlagForm<LimitFlags> seconds = {.type = "SECONDS", .check = CLI::Range(0.01, 86400.0)};
  static const FlagTable<LimitFlags> table(
      "Limits",
      {{"--max-body-bytes",
        &LimitFlags::max_body_bytes,
        "Largest request body",
        {.type = "BYTES", .check = CLI::Range(int64_t{1} << 10, int64_t{1} << 30)}},
       {"--max-body-memory",
        &LimitFlags::max_body_memory,
        "Memory for all request bodies in work and what is made of them; a body counts "
        "eight times its size",
        {.type = "BYTES",
         .check = CLI::Range(int64_t{1} << 20, int64_t{1} << 50),
         .default_text = "a quarter of the memory"}},
       {"--max-connections",
        &LimitFlags::max_connections,
        "Connections open at the same time. Beyond it idle ones give way; when there is none, "
        "probes are still answered and others refused",
        {.type = "N", .check = CLI::Range(1, 1 << 20)}},
       {"--max-connections-per-address",
        &LimitFlags::max_connections_per_address,
        "Of these from one IPv4 address or one IPv6 /64 network; 0 is no limit. A proxy is "
        "one address",
        {.type = "N", .check = CLI::Range(0, 1 << 20)}},
       {"--header-timeout", &LimitFlags::header_timeout_seconds, "To receive a request's headers",
        seconds},
       {"--body-timeout", &LimitFlags::body_timeout_seconds, "Between two pieces of a body",
        seconds},
       {"--request-body-timeout", &LimitFlags::request_body_timeout_seconds,
        "To receive a whole body, besides a second for every 32 KiB of it that have come", seconds},
       {"--keep-alive-timeout", &LimitFlags::keep_alive_seconds, "For which a connection may idle",
        seconds},
       {"--write-timeout", &LimitFlags::write_stall_seconds,
        "After which a client that takes nothing is cut off", seconds},
       {"--stream-comment-interval", &LimitFlags::stream_comment_seconds,
        "A silent stream gets a comment line this often", seconds}});
  return table;
}

const FlagTable<SimulationFlags>& simulation_flags() {
  static const FlagTable<SimulationFlags> table(
      "Simulation",
      {{"--engine",
        &SimulationFlags::engine,
        "sim runs without weights: tokens are hashes of what came before. For load tests "
        "of everything around the model; needs config.json and the tokenizer",
        {.type = "model|sim", .check = CLI::IsMember({"model", "sim"})}},
       {"--sim-step-us",
        &SimulationFlags::step_us,
        "How long a simulated step takes",
        {.type = "MICROSECONDS", .check = CLI::Range(0, 10'000'000)}}});
  return table;
}

// Every command has it; add_config_flag() says its help and its group.
const FlagTable<ServeFlags>& config_flag() {
  const FlagMember<ServeFlags> config_file(
      [](CLI::App& app, const std::string&, ServeFlags& flags, const std::string&) {
        return add_config_flag(app, &flags.config_file);
      },
      [](const ServeFlags& flags) { return json::Value(flags.config_file); });
  static const FlagTable<ServeFlags> table(
      "Settings", {{"--config", config_file, "", {.shown = Shown::kInLog}}});
  return table;
}

const FlagTable<ServeFlags>& request_log_flags() {
  static const FlagTable<ServeFlags> table(
      "Logging",
      {{"--log-format",
        &ServeFlags::log_format,
        "Log lines as key=value text or JSON objects",
        {.type = "text|json", .check = CLI::IsMember({"text", "json"})}},
       {"--log-requests,!--no-log-requests", &ServeFlags::log_requests,
        "A line for each request, without any text of it; what needs no model and went well "
        "is logged at level debug"},
       {"--otlp-traces-endpoint",
        &ServeFlags::otlp_traces_endpoint,
        "Send a span for each request to this OpenTelemetry collector: OTLP over HTTP, "
        "such as http://127.0.0.1:4318/v1/traces",
        {.type = "URL"}}});
  return table;
}

const FlagTable<ServeFlags>& kv_events_flag() {
  static const FlagTable<ServeFlags> table(
      "Scheduling",
      {{"--kv-events-config",
        &ServeFlags::kv_events_config,
        "Publish which prefixes are cached, for routers, by ZeroMQ as vLLM and SGLang do, such as "
        R"({"publisher": "zmq", "endpoint": "tcp://*:5557"})",
        {.type = "JSON"}}});
  return table;
}

// All tables of `serve`, each with the part of the flags that it fills, in the order of the help.
template <class Flags, class Visit>
void for_each_table(Flags& flags, const Visit& visit) {
  visit(address_flags(), flags.address);
  visit(access_flags(), flags.access);
  visit(model_flags(), flags.engine.model);
  visit(deterministic_flag(), flags.engine.model);
  visit(service_flags(), flags.service);
  visit(memory_flags(), flags.engine.memory);
  visit(scheduling_flags(), flags.scheduling);
  visit(speculation_flags(), flags.engine.speculation);
  visit(limit_flags(), flags.limits);
  visit(device_flags(), flags.engine.device);
  visit(rank_flags(), flags.engine.ranks);
  visit(peer_flags(), flags.engine.ranks.peers);
  visit(rank_wait_flag(), flags.engine.ranks);
  visit(node_flags(), flags.engine.nodes);
  visit(simulation_flags(), flags.simulation);
  visit(log_flags(), flags.engine.log);
  visit(config_flag(), flags);
  visit(request_log_flags(), flags);
  visit(kv_events_flag(), flags);
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
  for_each_table(flags, [&app](const auto& table, auto& part) { table.add_to(app, part); });
  app.get_option("--ssl-certfile")->needs("--ssl-keyfile");
  app.get_option("--ssl-keyfile")->needs("--ssl-certfile");
}

std::vector<FlagFact> serve_flag_facts() {
  std::vector<FlagFact> facts;
  const ServeFlags flags;
  for_each_table(flags, [&facts](const auto& table, const auto&) {
    for (const auto& row : table.rows())
      facts.push_back({row.long_name(), row.key(), row.form.shown,
                       row.form.told_by == nullptr ? "" : row.form.told_by});
  });
  return facts;
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
  if (!flags.admin_api_key_file.empty()) {
    throw_on_error(keys.add_file(flags.admin_api_key_file, http::KeyRole::kAdmin));
  }
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
  json::Value settings;
  for_each_table(flags, [&](const auto& table, const auto& part) { table.show(part, settings); });
  return settings;
}

std::vector<LogField> access_settings(const ServeFlags& flags) {
  std::vector<LogField> fields;
  for_each_table(flags, [&](const auto& table, const auto& part) { table.log(part, fields); });
  return fields;
}

std::string base_url(const ServeFlags& flags, int port) {
  const bool is_v6 = flags.address.host.find(':') != std::string::npos;
  return std::string(flags.tls() ? "https://" : "http://") + (is_v6 ? "[" : "") +
         flags.address.host + (is_v6 ? "]" : "") + ":" + std::to_string(port);
}

}  // namespace fathom::apps
