#pragma once
// `fathom bench ops` (apps/common/command.h).

#include "apps/common/command.h"

namespace fathom::apps {

Command add_bench_ops(CLI::App& bench);

}  // namespace fathom::apps
