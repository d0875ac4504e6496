#pragma once
// The subcommands of `fathom bench` that measure the engine (apps/common/command.h).

#include "apps/common/command.h"

namespace fathom::apps {

Command add_bench_one_batch(CLI::App& bench);
Command add_bench_engine(CLI::App& bench);
Command add_bench_all_reduce(CLI::App& bench);
Command add_bench_ablation(CLI::App& bench);

}  // namespace fathom::apps
