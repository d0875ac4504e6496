#pragma once
// Client: a small HTTP/1.1 client for benches and tests. All requests run on one thread of its
// own, thousands at a time, over kept-alive connections.
//
//   Client client;
//   client.send({.method = "POST", .url = "http://127.0.0.1:30000/v1/completions", .body = json},
//               {.on_body = [&](std::string_view bytes) { parser.feed(bytes); },
//                .on_done = [&](const ClientResponse& response) { ... }});
//   ClientResponse response = client.call({.url = "http://127.0.0.1:30000/health"});   // waits
//
// Thread-safe. Callbacks run on the client's thread, must not block and may send and cancel. on_done comes
// exactly once per request; after the destructor returns none comes. call() may not run in a callback.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace fathom::client {

struct ClientRequest {
  std::string method = "GET";
  std::string url;  // http:// or https://, an address or a name, a port when it is not the scheme's
  // Besides Host, Content-Length and, for a body without one, Content-Type: application/json.
  http::Headers headers = {};
  std::string body = {};
  // From sending to the end of the answer, and between two pieces of it. 0 = none.
  std::chrono::milliseconds timeout{0};
  std::chrono::milliseconds idle_timeout{0};
};

struct ClientResponse {
  int status = 0;         // 0: no answer
  http::Headers headers;  // names in lower case
  std::string body;       // empty when on_body took it
  // Empty: the answer is complete; else why it is not ("timeout", "connection closed", ...).
  std::string error;
  std::string_view header(std::string_view name) const;  // empty if there is none
  bool ok() const { return error.empty() && status >= 200 && status < 300; }
};

struct ClientCallbacks {
  std::function<void(const ClientResponse& head)> on_head = {};  // status and headers
  // As it arrives; without it the body is collected.
  std::function<void(std::string_view bytes)> on_body = {};
  std::function<void(const ClientResponse& response)> on_done = {};
};

struct ClientConfig {
  int max_idle_connections = 1024;
  size_t max_body_bytes = size_t{1} << 30;  // of a collected body
  std::chrono::milliseconds connect_timeout{10'000};
  std::string ca_path = {};  // PEM file of trusted certificates; empty: the system's
  bool verify_tls = true;    // false: any certificate (tests)
};

class Client {
 public:
  using RequestId = uint64_t;

  explicit Client(ClientConfig config = {});
  ~Client();  // cancels what is in flight
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  RequestId send(ClientRequest request, ClientCallbacks callbacks);
  // Closes the request's connection; on_done comes with error "cancelled" unless it already came.
  void cancel(RequestId id);
  ClientResponse call(ClientRequest request);
  // Runs a task on the client's thread after a delay (load generators pace themselves with it).
  void run_after(std::chrono::microseconds delay, std::function<void()> task);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace fathom::client
