#pragma once
// The subcommands of `fathom` but for its benches (apps/common/command.h).

#include "apps/common/command.h"

namespace fathom::apps {

Command add_serve(CLI::App& parent);
Command add_generate(CLI::App& parent);
Command add_eval_gsm8k(CLI::App& eval);
Command add_inspect(CLI::App& parent);
Command add_tokenize(CLI::App& parent);
Command add_doctor(CLI::App& parent);

}  // namespace fathom::apps
