// fathom-bench: measures a running server from outside, over HTTP (apps/common/command_line.h). It has no engine.

#include <CLI/App.hpp>
#include <vector>

#include "apps/common/command_line.h"
#include "apps/fathom_bench/commands.h"

namespace fathom::apps {
namespace {

int run(int argc, char** argv) {
  CLI::App app{"Measures a running server over HTTP: Fathom's, or another one with the same API.",
               "fathom-bench"};
  begin_command_line(app);
  const std::vector<Command> commands = {add_bench_serving(app), add_bench_gsm8k(app)};
  set_examples(app,
               {"fathom-bench serving --num-prompts 256 --max-concurrency 32",
                "fathom-bench gsm8k --data models/demo/eval.json", "fathom-bench serving --help"});
  return run_command_line(app, commands, argc, argv);
}

}  // namespace
}  // namespace fathom::apps

int main(int argc, char** argv) {
  return fathom::apps::run_program("fathom-bench", fathom::apps::run, argc, argv);
}
