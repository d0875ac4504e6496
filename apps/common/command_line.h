#pragma once
// What every program here does with its command line: parse it, run the one subcommand that was named, and turn what
// went wrong into one line on standard error. Exit status 2 for a command line that makes no sense, 1 for anything that
// failed later.
//
//   int run(int argc, char** argv) {
//     CLI::App app{"Fathom runs ...", "fathom"};
//     begin_command_line(app);     // before subcommands are added: they inherit its style
//     const std::vector<Command> commands = {add_serve(app)};
//     return run_command_line(app, commands, argc, argv);
//   }
//   int main(int argc, char** argv) { return run_program("fathom", run, argc, argv); }

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "apps/common/command.h"

namespace fathom::apps {

// The style of the help, --version with `more` as a second line, and that a subcommand must be named.
void begin_command_line(CLI::App& app, const std::string& more = "");

// --config FILE, which run_command_line() adds to the commands that do not have it; `path` keeps its value.
CLI::Option* add_config_flag(CLI::App& app, std::string* path = nullptr);

// The exit status. Throws what the command throws. Flags may come from the environment and from --config, and under
// other servers' names (apps/common/arguments.h).
int run_command_line(CLI::App& app, const std::vector<Command>& commands, int argc, char** argv);

// What main() does: `run`, with an exception as the program's one line and status 1.
int run_program(const char* name, int (*run)(int argc, char** argv), int argc, char** argv);

}  // namespace fathom::apps
