#pragma once
// The subcommands of `fathom tune` (apps/common/command.h).

#include "apps/common/command.h"

namespace fathom::apps {

Command add_tune_gemm(CLI::App& tune);
Command add_tune_moe(CLI::App& tune);

}  // namespace fathom::apps
