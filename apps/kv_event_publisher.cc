#include "apps/kv_event_publisher.h"

#include <optional>

#include "base/startup_error.h"
#include "kv_events/config.h"

namespace fathom::apps {
namespace {

std::optional<kv_events::PublisherConfig> kv_events_config(const ServeFlags& flags) {
  if (flags.kv_events_config.empty()) return std::nullopt;
  Result<std::optional<kv_events::PublisherConfig>> config =
      kv_events::parse_config(flags.kv_events_config);
  if (!config) throw StartupError("--kv-events-config: " + config.error().message);
  if (*config && flags.scheduling.disable_radix_cache)
    throw StartupError(
        "--kv-events-config and --disable-radix-cache: without a prefix cache there are no events");
  return *config;
}

}  // namespace

std::unique_ptr<kv_events::Publisher> make_kv_event_publisher(const ServeFlags& flags,
                                                              metrics::Registry& registry) {
  const std::optional<kv_events::PublisherConfig> config = kv_events_config(flags);
  if (!config) return nullptr;
  return std::make_unique<kv_events::Publisher>(*config, flags.engine.ranks.num_lanes(), registry);
}

json::Value kv_events_json(const ServeFlags& flags) {
  const std::optional<kv_events::PublisherConfig> config = kv_events_config(flags);
  if (!config) return nullptr;
  json::Value events = {{"publisher", "zmq"}, {"topic", config->topic}};
  const std::optional<kv_events::TcpEndpoint> tcp = kv_events::parse_tcp(config->endpoint);
  if (tcp) {
    events["endpoint_host"] = tcp->host;
    events["endpoint_port_base"] = tcp->port;
  } else {
    events["endpoint"] = config->endpoint;
  }
  return events;
}

}  // namespace fathom::apps
