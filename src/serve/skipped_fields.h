#pragma once
// SkippedFields: what requests hold that has no effect on any answer, counted, and the first of each kind logged.
//
//   SkippedFields skipped(registry);
//   model.field_log = &skipped;
//
//   fathom:skipped_fields_total{endpoint="/v1/messages",kind="without_effect",field="metadata.user_id"} 3
//   fathom:skipped_fields_total{endpoint="/v1/messages",kind="unknown",field="other"} 1
//
// Labels are names of the field tables; names that only clients have are in the log alone, the first of them.
// Thread-safe. The registry outlives it.

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "api/tables/field_policy.h"
#include "base/mutex.h"
#include "metrics/registry.h"

namespace fathom::serve {

class SkippedFields : public api::FieldLog {
 public:
  explicit SkippedFields(metrics::Registry& registry);

  void add(const api::SkippedField& skipped) override;

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // endpoint, kind, field

  // Whether this is the first of its kind.
  bool is_first(const api::SkippedField& skipped) FATHOM_REQUIRES(mutex_);
  metrics::Counter& counter(const Key& key) FATHOM_REQUIRES(mutex_);

  metrics::Registry& registry_;
  Mutex mutex_;
  std::map<Key, metrics::Counter*> counters_ FATHOM_GUARDED_BY(mutex_);
  std::set<Key> logged_ FATHOM_GUARDED_BY(mutex_);
};

}  // namespace fathom::serve
