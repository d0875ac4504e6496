#pragma once
// What --kv-events-config says, in the words of vLLM and SGLang: whether and where a server publishes which blocks its
// prefix cache has.
//
//   Result<std::optional<PublisherConfig>> config = parse_config(R"({"publisher": "zmq"})");   // none: it is off
//   Result<std::string> endpoint = endpoint_of_lane("tcp://*:5557", 2);                         // tcp://*:5559
//
// Plain data and pure functions.

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom::kv_events {

struct PublisherConfig {
  std::string endpoint = "tcp://*:5557";
  std::string replay_endpoint{};  // empty = nothing is sent again
  std::string topic{};
  int buffer_steps = 10'000;     // batches of each lane that can be sent again
  int hwm = 100'000;             // batches that wait for a subscriber before it loses some
  int max_queue_size = 100'000;  // events of each lane that wait for the publisher's thread
};

// Errors name the field and the rule. Every field has a default but for what says that it is on: "publisher" ("zmq" or
// "null", SGLang's) or "enable_kv_cache_events" (vLLM's), both if both are there.
Result<std::optional<PublisherConfig>> parse_config(std::string_view text);

// Whether the server waits there to be connected to: any endpoint with a wildcard, and those of ipc. It connects to
// others, where a subscriber waits. As vLLM decides it.
bool is_bound(std::string_view endpoint);

struct TcpEndpoint {
  std::string host;
  int port = 0;
};
// Of "tcp://HOST:PORT"; none = it is another.
std::optional<TcpEndpoint> parse_tcp(std::string_view endpoint);

// Each lane has a port of its own, from that of lane 0 on. An error where there is none.
Result<std::string> endpoint_of_lane(const std::string& endpoint, int lane);

}  // namespace fathom::kv_events
