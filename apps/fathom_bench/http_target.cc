#include "apps/fathom_bench/http_target.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "apps/common/live_line.h"
#include "apps/fathom_bench/wire.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/startup_error.h"
#include "client/url.h"

namespace fathom::apps {
namespace {

constexpr std::chrono::seconds kCallTimeout{60};
constexpr std::chrono::milliseconds kPollInterval{200};

std::string what_went_wrong(const client::ClientResponse& response) {
  if (!response.error.empty()) return response.error;
  return "HTTP " + std::to_string(response.status) + ": " + error_message(response.body);
}

}  // namespace

void add_http_target_flags(CLI::App& app, HttpTargetFlags& flags) {
  const std::string group = "Server";
  CLI::Option* base_url =
      app.add_option("--base-url", flags.base_url, "Where the server is, instead of host and port")
          ->type_name("URL")
          ->group(group);
  CLI::Option* host = app.add_option("--host", flags.host, "Address of the server")
                          ->type_name("ADDRESS")
                          ->group(group);
  CLI::Option* port = app.add_option("--port", flags.port, "Port of the server")
                          ->check(CLI::Range(1, 65535))
                          ->type_name("PORT")
                          ->group(group);
  base_url->excludes(host)->excludes(port);
  app.add_option("--api-key", flags.api_key,
                 "Key to send; better in the environment variable FATHOM_API_KEY, which `ps` "
                 "does not show")
      ->type_name("KEY")
      ->group(group);
}

HttpTarget::HttpTarget(client::Client& client, const HttpTargetFlags& flags) : client_(client) {
  base_url_ = flags.base_url;
  while (base_url_.ends_with('/')) base_url_.pop_back();
  if (base_url_.empty()) {
    const bool is_v6 = flags.host.find(':') != std::string::npos;
    base_url_ = "http://" + (is_v6 ? "[" + flags.host + "]" : flags.host) + ":" +
                std::to_string(flags.port);
  }
  // It would be waited for in vain.
  if (const Result<client::Url> parsed = client::parse_url(base_url_); !parsed)
    throw StartupError((flags.base_url.empty() ? "--host: " : "--base-url: ") +
                       parsed.error().message);
  const char* environment_key = std::getenv("FATHOM_API_KEY");
  std::string key = flags.api_key;
  if (key.empty() && environment_key != nullptr) key = environment_key;
  if (!key.empty()) headers_.emplace_back("Authorization", "Bearer " + key);
}

client::ClientResponse HttpTarget::call(const std::string& method, const std::string& path) {
  return client_.call(
      {.method = method, .url = url(path), .headers = headers_, .timeout = kCallTimeout});
}

void HttpTarget::wait_until_ready(double seconds) {
  const Stopwatch watch;
  std::optional<LiveLine> line;
  while (true) {
    const client::ClientResponse response = call("GET", "/v1/models");
    if (response.ok()) return;
    const bool may_come = !response.error.empty() || response.status == 503;
    if (!may_come || watch.seconds() >= seconds) {
      const bool is_refused = response.error.find("refused") != std::string::npos;
      throw StartupError(
          url("/v1/models") + ": " + what_went_wrong(response) +
          (is_refused ? "; start a server (fathom serve), or name it: --base-url URL" : ""));
    }
    if (!line) {
      std::fprintf(stderr, "Waiting up to %.0f s for %s: %s\n", seconds, base_url_.c_str(),
                   what_went_wrong(response).c_str());
      line.emplace(
          [this](double so_far) { return so_far_text("waiting for " + base_url_, so_far); });
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

void HttpTarget::describe() {
  const client::ClientResponse response = call("GET", "/server_info");
  const Result<json::Value> info = json::parse(response.body);
  const auto said = [&](const char* key) -> std::string {
    if (!info || !info->is_object()) return "unknown";
    const auto found = info->find(key);
    return found != info->end() && found->is_string() ? found->get<std::string>() : "unknown";
  };
  std::fprintf(stderr, "Server %s: model %s, version %s (commit %s), on %s\n", base_url_.c_str(),
               said("served_model_name").c_str(), said("version").c_str(), said("commit").c_str(),
               said("runs_on").c_str());
}

json::Value HttpTarget::get(const std::string& path) {
  const client::ClientResponse response = call("GET", path);
  if (!response.ok()) throw StartupError(url(path) + ": " + what_went_wrong(response));
  Result<json::Value> value = json::parse(response.body);
  if (!value) throw StartupError(url(path) + ": " + value.error().message);
  return std::move(*value);
}

void HttpTarget::flush_cache() {
  const client::ClientResponse response = call("POST", "/flush_cache");
  if (!response.ok()) throw StartupError(url("/flush_cache") + ": " + what_went_wrong(response));
}

}  // namespace fathom::apps
