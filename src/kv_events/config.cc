#include "kv_events/config.h"

#include <charconv>

#include "base/json.h"
#include "config/json_reader.h"

namespace fathom::kv_events {
namespace {

constexpr std::string_view kTcp = "tcp://", kIpc = "ipc://";
constexpr int kMaxPort = 65535, kMaxCount = 10'000'000;

bool is_endpoint(std::string_view endpoint) {
  if (endpoint.substr(0, kIpc.size()) == kIpc) return endpoint.size() > kIpc.size();
  return parse_tcp(endpoint).has_value();
}

bool is_on(config::JsonReader& reader) {
  const bool says_publisher = reader.find("publisher") != nullptr;
  const bool says_enabled = reader.find("enable_kv_cache_events") != nullptr;
  reader.require(says_publisher || says_enabled, "publisher", "\"zmq\" or \"null\"");
  const bool is_zmq = reader.choice("publisher", {"zmq", "null"}, 0) == 0;
  return reader.boolean("enable_kv_cache_events", true) && is_zmq;
}

PublisherConfig read_publisher(config::JsonReader& reader) {
  PublisherConfig config;
  const auto count = [&](std::string_view key, int fallback) {
    return reader.integer(key, {.min = 1, .max = kMaxCount, .fallback = fallback});
  };
  config.endpoint = reader.text("endpoint", config.endpoint);
  config.replay_endpoint = reader.text("replay_endpoint", config.replay_endpoint);
  config.topic = reader.text("topic", config.topic);
  config.buffer_steps = count("buffer_steps", config.buffer_steps);
  config.hwm = count("hwm", config.hwm);
  config.max_queue_size = count("max_queue_size", config.max_queue_size);
  constexpr std::string_view kRule = "tcp://HOST:PORT or ipc://PATH";
  reader.require(is_endpoint(config.endpoint), "endpoint", kRule);
  reader.require(config.replay_endpoint.empty() || is_endpoint(config.replay_endpoint),
                 "replay_endpoint", kRule);
  reader.require(config.replay_endpoint != config.endpoint, "replay_endpoint",
                 "another than the endpoint");
  return config;
}

}  // namespace

Result<std::optional<PublisherConfig>> parse_config(std::string_view text) {
  const Result<json::Value> object = json::parse(text);
  if (!object) return object.error();
  if (!object->is_object())
    return invalid_argument(json::shown(*object) + " must be an object, such as " +
                            R"({"publisher": "zmq", "endpoint": "tcp://*:5557"})");
  config::JsonReader reader(*object);
  const bool on = is_on(reader);
  PublisherConfig config = read_publisher(reader);
  if (!reader.ok()) return reader.error();
  if (const std::vector<std::string> unread = reader.unread_keys(); !unread.empty())
    return invalid_argument(
        json::shown_text(unread.front()) +
        " is none of publisher, enable_kv_cache_events, endpoint, replay_endpoint, topic, "
        "buffer_steps, hwm, max_queue_size");
  return on ? std::optional(std::move(config)) : std::nullopt;
}

bool is_bound(std::string_view endpoint) {
  if (endpoint.substr(0, kIpc.size()) == kIpc) return true;
  for (const std::string_view any : {"*", "::", "0.0.0.0"})
    if (endpoint.find(any, kTcp.size()) != endpoint.npos) return true;
  return false;
}

std::optional<TcpEndpoint> parse_tcp(std::string_view endpoint) {
  if (endpoint.substr(0, kTcp.size()) != kTcp) return std::nullopt;
  endpoint.remove_prefix(kTcp.size());
  const size_t colon = endpoint.rfind(':');
  if (colon == endpoint.npos || colon == 0) return std::nullopt;
  const std::string_view digits = endpoint.substr(colon + 1);
  int port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size() || port < 1 || port > kMaxPort)
    return std::nullopt;
  return TcpEndpoint{std::string(endpoint.substr(0, colon)), port};
}

Result<std::string> endpoint_of_lane(const std::string& endpoint, int lane) {
  if (lane == 0) return endpoint;
  const std::optional<TcpEndpoint> first = parse_tcp(endpoint);
  if (!first)
    return invalid_argument(json::shown_text(endpoint) + " has no port for rank " +
                            std::to_string(lane) + ": several ranks of data need tcp://HOST:PORT");
  const int port = first->port + lane;
  if (port > kMaxPort)
    return invalid_argument(json::shown_text(endpoint) + " and rank " + std::to_string(lane) +
                            " make a port above " + std::to_string(kMaxPort));
  return std::string(kTcp) + first->host + ":" + std::to_string(port);
}

}  // namespace fathom::kv_events
