#pragma once
// The subcommands of `fathom-bench` (apps/common/command.h).

#include "apps/common/command.h"

namespace fathom::apps {

Command add_bench_serving(CLI::App& parent);
Command add_bench_gsm8k(CLI::App& parent);

}  // namespace fathom::apps
