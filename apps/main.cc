// fathom: the engine and its server. Parses, and runs one subcommand (apps/common/command_line.h).

#include <CLI/App.hpp>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench/commands.h"
#include "apps/bench_ops/command.h"
#include "apps/commands.h"
#include "apps/common/command_line.h"
#include "apps/engine/backend_choice.h"
#include "apps/tune/commands.h"
#include "cuda/inventory.h"

namespace fathom::apps {
namespace {

// What fathom had until it became a program of its own. True when such a command was named.
bool names_outside_bench(int argc, char** argv) {
  if (argc < 3 || std::string_view(argv[1]) != "bench") return false;
  const std::string_view name = argv[2];
  if (name != "serving" && name != "gsm8k") return false;
  std::fprintf(stderr,
               "fathom: bench %s measures a running server and is a command of fathom-bench\n"
               "Try: fathom-bench %s --help\n",
               argv[2], argv[2]);
  return true;
}

int run(int argc, char** argv) {
  if (names_outside_bench(argc, argv)) return 2;
  CLI::App app{"Fathom runs the DeepSeek family of language models from a Hugging Face checkpoint.",
               "fathom"};
  const std::string cuda = cuda::built_with();
  begin_command_line(app, cuda.empty() ? "without CUDA: it was built without nvcc" : cuda);
  std::vector<Command> commands;
  commands.push_back(add_serve(app));
  commands.push_back(add_generate(app));
  CLI::App* eval = app.add_subcommand("eval", "Measure a model's accuracy");
  eval->require_subcommand(1);
  commands.push_back(add_eval_gsm8k(*eval));
  CLI::App* bench =
      app.add_subcommand("bench", "Measure the engine's speed (a server's: fathom-bench)");
  bench->require_subcommand(1);
  commands.push_back(add_bench_one_batch(*bench));
  commands.push_back(add_bench_engine(*bench));
  commands.push_back(add_bench_ops(*bench));
  commands.push_back(add_bench_all_reduce(*bench));
  commands.push_back(add_bench_ablation(*bench));
  CLI::App* tune = app.add_subcommand("tune", "Find the fastest kernels for a model's shapes");
  tune->require_subcommand(1);
  commands.push_back(add_tune_gemm(*tune));
  commands.push_back(add_tune_moe(*tune));
  commands.push_back(add_inspect(app));
  commands.push_back(add_tokenize(app));
  commands.push_back(add_doctor(app));
  set_examples(app, {"fathom serve --model-path models/demo",
                     "fathom generate --model-path models/demo --chat --prompt \"Hello!\"",
                     "fathom inspect --model-path models/demo", "fathom generate --help"});
  return run_command_line(app, commands, argc, argv);
}

}  // namespace
}  // namespace fathom::apps

int main(int argc, char** argv) {
  const int status = fathom::apps::run_program("fathom", fathom::apps::run, argc, argv);
  fathom::apps::end_background_work();
  return status;
}
