// What is served and how: /v1/models, /model_info, /server_info, /load, /version, /metrics.

#include <algorithm>
#include <charconv>
#include <ctime>
#include <iterator>
#include <utility>

#include "api/conversation_fields.h"
#include "base/json.h"
#include "serve/server_state.h"

namespace fathom::serve {
namespace {

constexpr double kGigabyte = 1e9;

json::Value version_of(const ServerState& state) {
  return state.config.settings->value("version", json::Value(nullptr));
}

// "2026-11-25T04:24:00Z"
std::string utc_time(int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

json::Value model_card(const ServerState& state, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", state.created},
          {"owned_by", "fathom"},
          {"root", name},
          {"parent", nullptr},
          {"max_model_len", state.config.model.max_context_tokens}};
}

// As Anthropic's API says it.
json::Value anthropic_card(const ServerState& state, const std::string& name) {
  const int context = state.config.model.max_context_tokens;
  return {{"type", "model"},          {"id", name},
          {"display_name", name},     {"created_at", utc_time(state.created)},
          {"lifecycle", "active"},    {"max_input_tokens", context - 1},
          {"max_tokens", context - 1}};
}

bool is_anthropics(const http::ExchangePtr& exchange) {
  return exchange->request().form == http::ClientForm::kAnthropic;
}

// One page of all: there are as many models as names on the command line.
json::Value anthropic_list(const ServerState& state) {
  const std::vector<std::string>& names = state.config.model.names;
  json::Value data = json::Value::array();
  for (const std::string& name : names) data.push_back(anthropic_card(state, name));
  return {{"data", std::move(data)},
          {"has_more", false},
          {"first_id", names.front()},
          {"last_id", names.back()}};
}

void list_models(const ServerState& state, const http::ExchangePtr& exchange) {
  if (is_anthropics(exchange)) return exchange->send(json_response(anthropic_list(state)));
  json::Value data = json::Value::array();
  for (const std::string& name : state.config.model.names) data.push_back(model_card(state, name));
  exchange->send(json_response({{"object", "list"}, {"data", std::move(data)}}));
}

void show_model(const ServerState& state, const http::ExchangePtr& exchange) {
  const std::string& name = exchange->request().path_parameter;
  for (const std::string& known : state.config.model.names) {
    if (known != name) continue;
    return exchange->send(json_response(is_anthropics(exchange) ? anthropic_card(state, name)
                                                                : model_card(state, name)));
  }
  exchange->send(api::to_response(api::model_not_found(name), exchange->request()));
}

void model_info(const ServerState& state, const http::ExchangePtr& exchange) {
  const std::string& path = state.config.model.model_path;
  exchange->send(json_response({{"model_path", path},
                                {"tokenizer_path", path},
                                {"is_generation", true},
                                {"preferred_sampling_params", nullptr},
                                {"weight_version", "default"},
                                {"has_image_understanding", false},
                                {"has_audio_understanding", false},
                                {"model_type", state.config.model_type},
                                {"architectures", {state.config.architecture}}}));
}

// Adds nothing without speculation: clients take it for on when avg_spec_accept_length is there.
void add_speculation(json::Value& state, const engine::SpeculationSnapshot& snapshot) {
  if (snapshot.max_drafts == 0) return;
  if (snapshot.num_verify_slices > 0) {
    state["avg_spec_accept_length"] = snapshot.average_accept_length();
  }
  state["spec_num_drafts"] = snapshot.num_drafts;
  state["spec_verify_ct"] = snapshot.num_verify_slices;
  state["spec_num_verified_drafts"] = snapshot.num_drafts_verified;
  state["spec_num_accepted_drafts"] = snapshot.num_drafts_accepted;
}

// What SGLang's benchmark clients read of a server's state.
json::Value internal_state(const ServerState& state) {
  const EngineFacts& facts = state.facts;
  const engine::EngineSnapshot snapshot = state.engine->snapshot();
  json::Value value = {{"dp_size", facts.num_lanes},
                       {"last_gen_throughput", snapshot.generation_tokens_per_second},
                       {"effective_max_running_requests_per_dp",
                        (facts.max_running_requests + facts.num_lanes - 1) / facts.num_lanes},
                       {"memory_usage",
                        {{"weight", static_cast<double>(facts.weight_bytes) / kGigabyte},
                         {"kvcache", static_cast<double>(facts.kv_cache_bytes) / kGigabyte},
                         {"token_capacity", facts.max_total_tokens},
                         {"graph", 0.0}}},
                       {"is_paused", snapshot.paused},
                       {"num_running_reqs", snapshot.num_running},
                       {"num_waiting_reqs", snapshot.num_waiting},
                       {"num_steps", snapshot.num_steps},
                       {"num_retractions", snapshot.num_retractions}};
  add_speculation(value, snapshot.speculation);
  return value;
}

// As a person writes it: 0.7, where the nearest float is 0.699999988.
double as_written(float value) {
  char text[32];
  const char* end = std::to_chars(std::begin(text), std::end(text), value).ptr;
  double written = 0;
  std::from_chars(std::begin(text), end, written);
  return written;
}

// What a chat gets where it says nothing.
json::Value chat_defaults(const ServerState& state) {
  const api::SamplingDefaults& sampling = state.config.model.sampling_defaults;
  return {{"temperature", as_written(sampling.temperature)},
          {"top_p", as_written(sampling.top_p)},
          {"top_k", sampling.top_k},
          {"min_p", as_written(sampling.min_p)},
          {"repetition_penalty", as_written(sampling.repetition_penalty)},
          {"thinking", api::thinking_by_default(state.config.model)}};
}

// As SGLang says it to routers that subscribe.
json::Value kv_events(const ServerState& state) {
  json::Value events = *state.config.kv_events;
  if (events.is_null()) return events;
  events["block_size"] = state.engine->snapshot().block_tokens;
  events["dp_size"] = state.facts.num_lanes;
  return events;
}

void server_info(const ServerState& state, const http::ExchangePtr& exchange) {
  json::Value info = *state.config.settings;
  info["model_path"] = state.config.model.model_path;
  info["tokenizer_path"] = state.config.model.model_path;
  info["served_model_name"] = state.config.model.name();
  // Where the settings name none there is one rank.
  for (const char* size : {"tp_size", "dp_size", "ep_size", "pp_size"})
    if (!info.contains(size)) info[size] = 1;
  info["page_size"] = state.engine->snapshot().block_tokens;
  info["status"] = "ready";
  info["max_total_num_tokens"] = state.facts.max_total_tokens;
  info["max_req_input_len"] = state.facts.max_context_tokens - 1;
  info["chat_defaults"] = chat_defaults(state);
  info["startup_time"] = state.facts.startup_seconds;
  info["kv_events"] = kv_events(state);
  info["compiled_kernels"] =
      state.config.compiled_kernels ? *state.config.compiled_kernels() : json::Value::array();
  info["internal_states"] = json::Value::array({internal_state(state)});
  exchange->send(json_response(info));
}

// As vLLM says it.
void server_load(const ServerState& state, const http::ExchangePtr& exchange) {
  const engine::EngineSnapshot snapshot = state.engine->snapshot();
  exchange->send(json_response({{"server_load", snapshot.num_running + snapshot.num_waiting}}));
}

double ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(whole, 1));
}

// As SGLang says it, in two versions of its API: one entry for each rank of data parallelism. There is one queue for
// all, which stands with the first.
void rank_loads(const ServerState& state, const http::ExchangePtr& exchange) {
  const engine::EngineSnapshot snapshot = state.engine->snapshot();
  json::Value loads = json::Value::array();
  for (const engine::LaneSnapshot& lane : snapshot.lanes) {
    const int num_waiting = loads.empty() ? snapshot.num_waiting : 0;
    loads.push_back({{"dp_rank", loads.size()},
                     {"num_reqs", lane.num_running + num_waiting},
                     {"num_waiting_reqs", num_waiting},
                     {"num_tokens", lane.num_used_blocks() * snapshot.block_tokens}});
  }
  exchange->send(json_response(loads));
}

json::Value lane_loads(const ServerState& state, const engine::EngineSnapshot& snapshot) {
  const int num_lanes = state.facts.num_lanes;
  json::Value loads = json::Value::array();
  for (const engine::LaneSnapshot& lane : snapshot.lanes) {
    const int num_waiting = loads.empty() ? snapshot.num_waiting : 0;
    const int64_t num_used = lane.num_used_blocks() * snapshot.block_tokens;
    const int64_t num_tokens = state.facts.max_total_tokens / num_lanes;
    loads.push_back(
        {{"dp_rank", loads.size()},
         {"num_running_reqs", lane.num_running},
         {"num_waiting_reqs", num_waiting},
         {"num_total_reqs", lane.num_running + num_waiting},
         {"num_used_tokens", num_used},
         {"max_total_num_tokens", num_tokens},
         {"max_running_requests", (state.facts.max_running_requests + num_lanes - 1) / num_lanes},
         {"token_usage", ratio(num_used, num_tokens)}});
  }
  // Neither is told apart by lanes.
  if (num_lanes > 1) return loads;
  loads[0]["gen_throughput"] = snapshot.generation_tokens_per_second;
  loads[0]["cache_hit_rate"] = snapshot.cache_hit_rate;
  return loads;
}

void all_loads(const ServerState& state, const http::ExchangePtr& exchange) {
  const engine::EngineSnapshot snapshot = state.engine->snapshot();
  const int64_t num_used = snapshot.num_used_blocks() * snapshot.block_tokens;
  exchange->send(
      json_response({{"timestamp", page::unix_seconds()},
                     {"version", version_of(state)},
                     {"dp_rank_count", state.facts.num_lanes},
                     {"loads", lane_loads(state, snapshot)},
                     {"aggregate",
                      {{"total_running_reqs", snapshot.num_running},
                       {"total_waiting_reqs", snapshot.num_waiting},
                       {"total_reqs", snapshot.num_running + snapshot.num_waiting},
                       {"avg_token_usage", ratio(num_used, state.facts.max_total_tokens)},
                       {"avg_throughput", snapshot.generation_tokens_per_second}}}}));
}

void show_version(ServerState& state, const http::ExchangePtr& exchange) {
  exchange->send(json_response({{"version", version_of(state)}}));
}

void show_metrics(ServerState& state, const http::ExchangePtr& exchange) {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = state.registry.expose();
  exchange->send(std::move(response));
}

// Only once the model is there; also while draining.
http::Route loaded_route(const char* path,
                         void (*answer)(const ServerState&, const http::ExchangePtr&),
                         ServerState& state) {
  return {.method = "GET",
          .path = path,
          .access = http::Access::kInference,
          .handler = [&state, answer](const http::ExchangePtr& exchange) {
            if (state.phase.load() == Phase::kLoading || state.engine == nullptr) {
              return exchange->send(api::to_response(api::loading(), exchange->request()));
            }
            answer(state, exchange);
          }};
}

http::Route plain_route(const char* path, http::Access access,
                        void (*answer)(ServerState&, const http::ExchangePtr&),
                        ServerState& state) {
  return {
      .method = "GET",
      .path = path,
      .access = access,
      .handler = [&state, answer](const http::ExchangePtr& exchange) { answer(state, exchange); }};
}

http::Route of_both_apis(http::Route route) {
  route.is_of_both_apis = true;
  return route;
}

}  // namespace

void add_info_routes(http::Router& router, ServerState& state) {
  for (const char* path : {"/v1/models", "/models"})  // the second is DeepSeek's
    router.add(of_both_apis(loaded_route(path, list_models, state)));
  for (const char* path : {"/v1/models/{id}", "/models/{id}"})
    router.add(of_both_apis(loaded_route(path, show_model, state)));
  router.add(loaded_route("/load", server_load, state));
  router.add(loaded_route("/get_load", rank_loads, state));
  router.add(loaded_route("/v1/loads", all_loads, state));
  router.add(loaded_route("/model_info", model_info, state));
  router.add(loaded_route("/get_model_info", model_info, state));
  router.add(loaded_route("/server_info", server_info, state));
  router.add(loaded_route("/get_server_info", server_info, state));
  const http::Access metrics =
      state.config.has_open_metrics ? http::Access::kOpen : http::Access::kInference;
  router.add(plain_route("/metrics", metrics, show_metrics, state));
  router.add(plain_route("/version", http::Access::kInference, show_version, state));
}

}  // namespace fathom::serve
