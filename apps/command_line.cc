#include "apps/command_line.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>

#include "apps/help.h"

namespace fathom::apps {
namespace {

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

}  // namespace

void begin_command_line(CLI::App& app, const std::string& version) {
  use_help_style(app);
  app.set_version_flag("--version", app.get_name() + " " + version, "Show the version");
  app.require_subcommand(1);
}

int run_command_line(CLI::App& app, const std::vector<Command>& commands, int argc, char** argv) {
  const char* const program = app.get_name().c_str();
  if (argc == 1) {
    std::fputs(app.help().c_str(), stderr);
    return 2;
  }
  if (argv[1][0] != '-' && !has_subcommand(app, argv[1])) {
    std::fprintf(stderr, "%s: no subcommand \"%s\"\nTry: %s --help\n", program, argv[1], program);
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "%s: %s\nTry: %s --help\n", program, error.what(),
                 command_path(app).c_str());
    return 2;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return 2;
}

int run_program(const char* name, int (*run)(int argc, char** argv), int argc, char** argv) {
  // A reader that went away (fathom ... | head) is a failed write, not a signal.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace fathom::apps
