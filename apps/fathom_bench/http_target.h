#pragma once
// The server that a bench talks to: where it is, with which key, and the control calls around a run.
//
//   HttpTarget target(client, flags);
//   target.wait_until_ready(60);
//   json::Value info = target.get("/model_info");
//
// Failures are StartupErrors that name the call and the answer. Refers to the client. Not synchronised.

#include <CLI/App.hpp>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "client/client.h"

namespace fathom::apps {

struct HttpTargetFlags {
  std::string base_url, host = "127.0.0.1", api_key;
  int port = 30000;
};
void add_http_target_flags(CLI::App& app, HttpTargetFlags& flags);

class HttpTarget {
 public:
  HttpTarget(client::Client& client, const HttpTargetFlags& flags);

  std::string url(std::string_view path) const { return base_url_ + std::string(path); }
  const http::Headers& headers() const { return headers_; }

  // Asks for /v1/models until it answers, and says that it waits. A refusal ends the wait at once.
  void wait_until_ready(double seconds);
  // One line on standard error: where the server is, its model, version and device, as far as it says.
  void describe();
  json::Value get(const std::string& path);
  // Fails when the server does, for example because requests are running.
  void flush_cache();

 private:
  client::ClientResponse call(const std::string& method, const std::string& path);

  client::Client& client_;
  std::string base_url_;
  http::Headers headers_;
};

}  // namespace fathom::apps
