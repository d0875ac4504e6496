#pragma once
// --kv-events-config: what it means for the flags beside it, and the publisher that it asks for.
//
//   const std::unique_ptr<kv_events::Publisher> publisher = make_kv_event_publisher(flags, registry);   // null: off
//   serving.step.block_listener = publisher.get();
//
// Throws StartupError: the flag, its value and the rule.

#include <memory>

#include "apps/flags/serve_flags.h"
#include "base/json_fwd.h"
#include "kv_events/publisher.h"
#include "metrics/registry.h"

namespace fathom::apps {

std::unique_ptr<kv_events::Publisher> make_kv_event_publisher(const ServeFlags& flags,
                                                              metrics::Registry& registry);
// Where it publishes, for /server_info, in SGLang's words; null: it is off.
json::Value kv_events_json(const ServeFlags& flags);

}  // namespace fathom::apps
