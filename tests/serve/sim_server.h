#pragma once
// A whole server for tests: the API over a real socket and the engine on the simulation backend, with the
// demo model's tokenizer. Tokens are hashes of what came before, so greedy answers can be compared exactly.
//
//   SimServer server({.step_delay = std::chrono::milliseconds(5)});
//   client::ClientResponse response = server.post("/generate", {{"text", "Hello"}});

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "client/client.h"
#include "engine/serving_engine.h"
#include "http/server.h"
#include "runner/ranks/ranked_runner.h"
#include "runner/sim/collectives.h"
#include "runner/sim/sim_runner.h"
#include "serve/api_server.h"
#include "tests/api/demo_served_model.h"

namespace fathom::serve::tests {

// How many ranks simulate the model. Several of a lane compute the same, lanes have requests of their own.
struct SimRanks {
  int num_lanes = 1, ranks_of_lane = 1;
};
// FATHOM_TEST_LANES and FATHOM_TEST_RANKS_OF_LANE: every test of a server on so many (tools/ranks_serving.sh).
inline SimRanks ranks_of_environment() {
  const auto number = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? 1 : std::atoi(value);
  };
  return {.num_lanes = number("FATHOM_TEST_LANES"),
          .ranks_of_lane = number("FATHOM_TEST_RANKS_OF_LANE")};
}

struct SimServerOptions {
  int num_blocks = 256, max_slots = 16, max_queued_requests = 64;
  int max_context_tokens = 0;  // 0: what the blocks hold
  std::chrono::microseconds step_delay{0};
  std::string profile_dir = {};
  std::string otlp_traces_url = {};
  http::Timeouts timeouts = {};
  bool radix_cache = true, overlap = true;
  runner::SimDrafterConfig drafter = {};  // with one the engine speculates
  bool ready = true;                      // false: the engine is not there yet
  SimRanks ranks = ranks_of_environment();
  std::function<void()> on_failure = {};
  // None: by endpoint, as a server has it unless it is told otherwise.
  std::optional<api::UnknownFields> unknown_fields = api::UnknownFields::kRefuse;
  std::optional<text::ChatFormat> chat_format = {};  // in place of the model's
  api::ServedModel model = api::tests::demo_served_model();
  // Names of inference keys. Each key is sk-NAME-0123456789; with any there is an admin key of the name root.
  std::vector<std::string> keys = {};
};

class SimServer {
 public:
  explicit SimServer(const SimServerOptions& options = {})
      : api_({.model = model_of(options),
              .model_type = "deepseek_v3",
              .architecture = "DeepseekV3ForCausalLM",
              .log_requests = false,
              .otlp_traces_url = options.otlp_traces_url,
              .version = "1",
              .profile_dir = options.profile_dir,
              .settings = json::Value{{"chunked_prefill_size", 2048}}}),
        runner_(make_runner(options)) {
    http::Router router;
    api_.register_routes(router);
    http::ServerConfig config;
    config.timeouts = options.timeouts;
    config.allowed_hosts = {"a"};  // what requests in raw bytes say
    for (const std::string& name : options.keys) {
      EXPECT_TRUE(config.keys.add(name + ":sk-" + name + "-0123456789", http::KeyRole::kInference));
    }
    if (!options.keys.empty()) {
      EXPECT_TRUE(config.keys.add("root:sk-root-0123456789", http::KeyRole::kAdmin));
    }
    http_.emplace(std::move(config), std::move(router));
    api_.set_transport(*http_);
    http_->start();
    options_ = options;
    if (options.ready) make_ready();
  }
  ~SimServer() {
    http_->stop();
    api_.detach_engine();
  }

  void make_ready() {
    engine::ServingConfig config;
    config.max_queued_requests = options_.max_queued_requests;
    config.step.radix_cache = options_.radix_cache;
    config.step.overlap = options_.overlap;
    config.step.speculation.enabled = options_.drafter.shape.num_steps > 0;
    config.integrity_interval_seconds = 0;
    config.step.eos_token_ids = options_.model.eos_token_ids;
    config.registry = &api_.registry();
    config.on_failure = [this](const std::string&) {
      if (options_.on_failure) options_.on_failure();
    };
    engine_.emplace(*runner_, config, api_.update_sink());
    api_.set_ready(*engine_,
                   {.max_context_tokens = static_cast<int>(runner_->info().max_context_tokens),
                    .num_lanes = runner_->info().num_lanes,
                    .max_total_tokens = 256 * 64,
                    .max_running_requests = engine_->max_running_requests()});
  }

  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(http_->port()) + path;
  }
  client::ClientResponse get(const std::string& path) { return client_.call({.url = url(path)}); }
  client::ClientResponse post(const std::string& path, const json::Value& body) {
    return client_.call({.method = "POST", .url = url(path), .body = json::dump(body)});
  }
  // As the holder of a key, by its name.
  client::ClientResponse call_as(const std::string& name, const std::string& method,
                                 const std::string& path, const json::Value& body = {}) {
    return client_.call(request_as(name, method, path, body));
  }
  client::ClientRequest request_as(const std::string& name, const std::string& method,
                                   const std::string& path, const json::Value& body = {}) const {
    return {.method = method,
            .url = url(path),
            .headers = {{"Authorization", "Bearer sk-" + name + "-0123456789"}},
            .body = body.is_null() ? "" : json::dump(body)};
  }
  json::Value post_json(const std::string& path, const json::Value& body) {
    const client::ClientResponse response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body << response.error;
    return json::parse(response.body).value();
  }
  json::Value get_json(const std::string& path) {
    const client::ClientResponse response = get(path);
    EXPECT_EQ(response.status, 200) << response.body << response.error;
    return json::parse(response.body).value();
  }
  // The data of the events of a stream, [DONE] included as a text.
  std::vector<json::Value> post_stream(const std::string& path, json::Value body) {
    body["stream"] = true;
    const client::ClientResponse response = post(path, body);
    EXPECT_EQ(response.status, 200) << response.body << response.error;
    return events_of(response.body);
  }
  static std::vector<json::Value> events_of(const std::string& bytes) {
    std::vector<json::Value> events;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t end = bytes.find("\n\n", begin);
      EXPECT_NE(end, std::string::npos) << "an event that does not end";
      if (end == std::string::npos) break;
      const std::string line = bytes.substr(begin, end - begin);
      begin = end + 2;
      if (line.starts_with(':')) continue;
      EXPECT_TRUE(line.starts_with("data: ")) << line;
      const std::string data = line.substr(6);
      events.push_back(data == "[DONE]" ? json::Value(data) : json::parse(data).value());
    }
    return events;
  }

  // Waits, generously, for something that the engine or the transport will bring about.
  template <class Condition>
  bool eventually(Condition condition) {
    const Stopwatch watch;
    while (watch.seconds() < 60) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  double metric(const std::string& name) {
    const std::string text = get("/metrics").body;
    const size_t at = text.find("\n" + name + "{");
    if (at == std::string::npos) return -1;
    return std::stod(text.substr(text.find('}', at) + 2));
  }
  bool is_idle() {
    const engine::EngineSnapshot snapshot = engine_->snapshot();
    return !snapshot.has_work && snapshot.num_used_blocks() == 0 &&
           metric("fathom:ghost_requests") == 0;
  }

  ApiServer& api() { return api_; }
  http::Server& http() { return *http_; }
  client::Client& client() { return client_; }
  engine::ServingEngine& engine() { return *engine_; }

 private:
  std::unique_ptr<runner::Runner> make_runner(const SimServerOptions& options) {
    std::vector<std::unique_ptr<runner::Runner>> ranks;
    const int num_lanes = options.ranks.num_lanes, ranks_of_lane = options.ranks.ranks_of_lane;
    for (int place = 0; num_lanes > 1 && place < ranks_of_lane; ++place)
      collectives_.emplace_back(num_lanes);
    for (int rank = 0; rank < num_lanes * ranks_of_lane; ++rank) {
      const auto place = static_cast<size_t>(rank % ranks_of_lane);
      ranks.push_back(std::make_unique<runner::SimRunner>(runner::SimConfig{
          .vocab_size = options.model.vocab_size,
          .num_blocks = options.num_blocks,
          .max_context_tokens =
              options.max_context_tokens > 0 ? options.max_context_tokens : 1 << 20,
          .max_slots = (options.max_slots + num_lanes - 1) / num_lanes,
          .drafter = options.drafter,
          .step_delay = options.step_delay,
          .collectives = num_lanes > 1 ? &collectives_[place] : nullptr,
          .lane = rank / ranks_of_lane}));
    }
    if (ranks.size() == 1) return std::move(ranks[0]);
    return std::make_unique<runner::RankedRunner>(std::move(ranks), num_lanes);
  }
  static api::ServedModel model_of(const SimServerOptions& options) {
    api::ServedModel model = options.model;
    model.unknown_fields = options.unknown_fields;
    if (options.chat_format) model.chat_format = options.chat_format;
    return model;
  }

  ApiServer api_;
  std::deque<runner::SimCollectives> collectives_;  // [place in a lane], of several lanes
  std::unique_ptr<runner::Runner> runner_;
  std::optional<http::Server> http_;
  std::optional<engine::ServingEngine> engine_;
  SimServerOptions options_;
  client::Client client_;
};

}  // namespace fathom::serve::tests
