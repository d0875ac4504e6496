// fathom: the command line. Parses, runs one subcommand, and turns what went wrong into one line on standard
// error: exit status 2 for a command line that makes no sense, 1 for anything that failed later.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "apps/command.h"
#include "apps/help.h"
#include "cuda/backend.h"

namespace fathom::apps {
namespace {

struct Program {
  CLI::App app{"Fathom runs the DeepSeek family of language models from a Hugging Face checkpoint.",
               "fathom"};
  std::vector<Command> commands;

  Program() {
    use_help_style(app);
    app.set_version_flag("--version", std::string("fathom ") + FATHOM_VERSION, "Show the version");
    app.require_subcommand(1);
    commands.push_back(add_serve(app));
    commands.push_back(add_generate(app));
    CLI::App* eval = app.add_subcommand("eval", "Measure a model's accuracy");
    eval->require_subcommand(1);
    commands.push_back(add_eval_gsm8k(*eval));
    CLI::App* bench = app.add_subcommand("bench", "Measure speed");
    bench->require_subcommand(1);
    commands.push_back(add_bench_one_batch(*bench));
    commands.push_back(add_bench_serving(*bench));
    commands.push_back(add_bench_gsm8k(*bench));
    commands.push_back(add_bench_ops(*bench));
    commands.push_back(add_inspect(app));
    commands.push_back(add_tokenize(app));
    set_examples(app, {"fathom serve --model-path models/demo",
                       "fathom generate --model-path models/demo --chat --prompt \"Hello!\"",
                       "fathom inspect --model-path models/demo", "fathom generate --help"});
  }
};

// The innermost subcommand that was named, for "try ... --help".
std::string command_path(const CLI::App& app) {
  for (const CLI::App* sub : app.get_subcommands()) {
    if (sub->parsed()) return app.get_name() + " " + command_path(*sub);
  }
  return app.get_name();
}

bool has_subcommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == name) return true;
  }
  return false;
}

int run(int argc, char** argv) {
  Program program;
  if (argc == 1) {
    std::fputs(program.app.help().c_str(), stderr);
    return 2;
  }
  if (argv[1][0] != '-' && !has_subcommand(program.app, argv[1])) {
    std::fprintf(stderr, "fathom: no subcommand \"%s\"\nTry: fathom --help\n", argv[1]);
    return 2;
  }
  try {
    program.app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.app.exit(error);
    std::fprintf(stderr, "fathom: %s\nTry: %s --help\n", error.what(),
                 command_path(program.app).c_str());
    return 2;
  }
  for (const Command& command : program.commands) {
    if (command.app->parsed()) return command.run();
  }
  return 2;
}

}  // namespace
}  // namespace fathom::apps

int main(int argc, char** argv) {
  // A reader that went away (fathom ... | head) is a failed write, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  int status = 1;
  try {
    status = fathom::apps::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fathom: %s\n", error.what());
  }
  // A start that failed may have begun to open it.
  fathom::cuda::wait_for_cublaslt();
  return status;
}
