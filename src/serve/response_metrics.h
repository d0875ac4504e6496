#pragma once
// The store of /v1/responses under metric names.
//
//   metrics::Registry::Collector collector = add_response_metrics(registry, store);
//
// The collector is destroyed before the store.

#include "api/responses/response_store.h"
#include "metrics/registry.h"

namespace fathom::serve {

metrics::Registry::Collector add_response_metrics(metrics::Registry& registry,
                                                  const api::ResponseStore& store);

}  // namespace fathom::serve
