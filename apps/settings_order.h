#pragma once
// The order in which settings are shown: that of old, which is not the help's.
//
//   return in_known_order(settings);
//
// No state.

#include <vector>

#include "base/json.h"
#include "base/log.h"

namespace fathom::apps {

// An object's settings; those that are newer than the order come last, as they stand.
json::Value in_known_order(const json::Value& settings);
void put_in_known_order(std::vector<LogField>& fields);

}  // namespace fathom::apps
