#pragma once
// What all nodes of a service must have in common, as facts that are compared at the start (nodes/agreement.h):
// program, model, checkpoint, devices and flags.
//
//   json::Value facts = node_facts(flags, backend);
//
// Reads parts of the checkpoint's files. Throws StartupError.

#include <string>

#include "apps/flags/flags.h"
#include "base/json_fwd.h"
#include "ops/backend.h"

namespace fathom::apps {

json::Value node_facts(const EngineFlags& flags, const ops::Backend& backend);

// Of names, sizes and headers of the files with weights, and pieces of their data: other weights have another one,
// unless they differ in few places alone.
std::string checkpoint_fingerprint(const std::string& directory);

}  // namespace fathom::apps
