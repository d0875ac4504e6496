#pragma once
// The backend that flags ask for: a device's table of operators, or one made of it with fewer or plainer ones.
//
//   const ops::Backend& backend = choose_backend(flags);
//
// Tables live as long as the program. Thread-safe but for the kernels of a GPU, which are chosen for the whole process:
// before there are streams, and by the same flags.

#include <vector>

#include "apps/flags/flags.h"
#include "base/json.h"
#include "ops/backend.h"

namespace fathom::apps {

// Throws where --device cuda cannot be had; with auto the log of the device says why it is not.
const ops::Backend& choose_backend(const EngineFlags& flags);
// The one list of devices: all that --device and --cpu-backend can choose here.
std::vector<const ops::Backend*> usable_backends();
// Of a device of that list, the table that runs with --deterministic, --attention-backend and --disable-fusion as they
// are.
const ops::Backend& table_of(const ops::Backend& device, const EngineFlags& flags);

// Those that --jit compiles, or took from its cache: [{"name", "state"}].
json::Value compiled_kernels();

// For the end of the program: returns when nothing runs beside it any more, which a start that failed may have begun.
void end_background_work();

}  // namespace fathom::apps
