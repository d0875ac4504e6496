#pragma once
// The flags of `fathom serve`, by group, and what follows from them for each part of the server.
//
//   ServeFlags flags;
//   add_serve_flags(*subcommand, flags);
//   ... parse ...
//   check_address(flags);                              // refuses an open door without a key
//   http::ServerConfig config = http_config(flags);
//
// The struct must outlive the parse. Throws StartupError.

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/flags/flags.h"
#include "base/json_fwd.h"
#include "base/log.h"
#include "engine/serving_engine.h"
#include "http/key_store.h"
#include "http/server.h"

namespace fathom::apps {

struct AddressFlags {
  std::string host = "127.0.0.1";
  int port = 30000;
  int num_io_threads = 2;
  std::string ssl_certfile, ssl_keyfile;
  std::vector<std::string> allowed_hosts, cors_origins;
};

struct AccessFlags {
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::vector<std::string> admin_api_keys;
  std::string admin_api_key_file;
  bool insecure = false;
  bool open_health = false, open_metrics = false;
};

struct SchedulingFlags {
  std::string schedule_policy = "lpm";
  bool disable_radix_cache = false, disable_overlap_schedule = false;
  std::optional<double> max_step_ms;  // none = what suits the device; 0 = no bound
  int max_queued_requests = 4096;
  double max_queue_seconds = 600;
  int num_mask_workers = 2;
};

struct ServiceFlags {
  std::vector<std::string> served_model_names;
  std::string chat_format = "auto";
  std::string sampling_defaults = "openai";
  bool thinking = false;
  bool stop_in_reasoning = false;
  bool constrain_tool_calls = false;
  bool json_without_white_space = false;
  bool any_model_name = false;
  std::string unknown_fields = "by-endpoint";
  double drain_timeout_seconds = 60;
  int num_workers = 2;
  int max_stored_responses = 1000;
  int64_t max_stored_bytes = int64_t{64} << 20;
  std::string profile_dir;
};

struct LimitFlags {
  int64_t max_body_bytes = 64 << 20;
  std::optional<int64_t> max_body_memory;  // of all bodies in work; none: by the machine's memory
  int max_connections = 20'000;
  int max_connections_per_address = 0;
  double header_timeout_seconds = 10, body_timeout_seconds = 30, request_body_timeout_seconds = 60,
         keep_alive_seconds = 75, write_stall_seconds = 30, stream_comment_seconds = 15;
};

struct SimulationFlags {
  std::string engine = "model";  // model, sim
  int step_us = 0;
};

struct ServeFlags {
  EngineFlags engine;
  AddressFlags address;
  AccessFlags access;
  SchedulingFlags scheduling;
  ServiceFlags service;
  LimitFlags limits;
  SimulationFlags simulation;
  std::string config_file;  // where other flags came from
  std::string log_format = "text";
  bool log_requests = true;
  std::string otlp_traces_endpoint;
  std::string kv_events_config;  // JSON

  bool is_simulation() const { return simulation.engine == "sim"; }
  bool tls() const { return !address.ssl_certfile.empty(); }
};

void add_serve_flags(CLI::App& app, ServeFlags& flags);

// A flag's row without its part of the flags.
struct FlagFact {
  std::string flag, key;  // "--num-layers", "num_layers"
  Shown shown = Shown::kToClients;
  std::string told_by;  // of Shown::kElsewhere
};
// Of every flag, in the order in which the parser has them.
std::vector<FlagFact> serve_flag_facts();

// Keys from the flags, FATHOM_API_KEY and FATHOM_ADMIN_API_KEY, and the files.
http::KeyStore read_keys(const AccessFlags& flags);
// Another address than loopback needs a key or --insecure.
void check_address(const ServeFlags& flags, const http::KeyStore& keys);
http::ServerConfig http_config(const ServeFlags& flags, http::KeyStore keys);
// Every setting under the name of its flag, but for what access_settings() has. Clients may see it.
json::Value settings_json(const ServeFlags& flags);
// What only the log shows: files of the host, and how many keys came by flag, never a key.
std::vector<LogField> access_settings(const ServeFlags& flags);
// "http://127.0.0.1:30000"
std::string base_url(const ServeFlags& flags, int port);

}  // namespace fathom::apps
