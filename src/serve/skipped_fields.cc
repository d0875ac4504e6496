#include "serve/skipped_fields.h"

#include "api/tables/endpoint_fields.h"
#include "base/log.h"

namespace fathom::serve {
namespace {

using Kind = api::SkippedField::Kind;

// A client could send a new name with every request.
constexpr size_t kMaxLogged = 128;

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kWithoutEffect:
      return "without_effect";
    case Kind::kUnknown:
      return "unknown";
    case Kind::kLowered:
      return "lowered";
    case Kind::kTool:
      break;
  }
  return "tool";
}

const char* event_name(Kind kind) {
  switch (kind) {
    case Kind::kWithoutEffect:
      return "a field has no effect";
    case Kind::kUnknown:
      return "a field that no API has was skipped";
    case Kind::kLowered:
      return "an upper bound was lowered to what the context has left";
    case Kind::kTool:
      break;
  }
  return "a tool was left out of the prompt";
}

}  // namespace

SkippedFields::SkippedFields(metrics::Registry& registry) : registry_(registry) {
  for (const api::EndpointFields& endpoint : api::endpoints_with_fields()) {
    counter({std::string(endpoint.path), kind_name(Kind::kUnknown), "other"});
  }
}

void SkippedFields::add(const api::SkippedField& skipped) {
  const bool is_of_tables = skipped.kind == Kind::kWithoutEffect || skipped.kind == Kind::kLowered;
  const Key counted(skipped.endpoint, kind_name(skipped.kind),
                    is_of_tables ? skipped.name : std::string("other"));
  bool is_logged = false;
  {
    const MutexLock lock(mutex_);
    counter(counted).add();
    is_logged = is_first(skipped);
  }
  if (!is_logged) return;
  write_log(LogLevel::kInfo, "server", event_name(skipped.kind),
            {{"endpoint", skipped.endpoint},
             {skipped.kind == Kind::kTool ? "type" : "field", skipped.name},
             {"why", skipped.why.empty() ? "later ones are counted only" : skipped.why}});
}

bool SkippedFields::is_first(const api::SkippedField& skipped) {
  if (logged_.size() == kMaxLogged) return false;
  return logged_.emplace(skipped.endpoint, kind_name(skipped.kind), skipped.name).second;
}

metrics::Counter& SkippedFields::counter(const Key& key) {
  metrics::Counter*& found = counters_[key];
  if (found == nullptr) {
    const auto& [endpoint, kind, field] = key;
    found = &registry_.counter(
        {.name = "fathom:skipped_fields_total",
         .help = "Requests with a field, a name or a tool that no answer depends on.",
         .labels = {{"endpoint", endpoint}, {"kind", kind}, {"field", field}}});
  }
  return *found;
}

}  // namespace fathom::serve
