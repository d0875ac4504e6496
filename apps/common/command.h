#pragma once
// A subcommand of a program: its flags in the parser and what to run when it was named. One file per
// subcommand defines its add_...() function, which its folder's header declares; the program's main.cc calls them all.
//
//   Command add_inspect(CLI::App& parent);     // apps/commands.h, inspect.cc
//
// Headers include the parser's App.hpp and not CLI.hpp, with which every file would compile the reader of configuration
// files and the help's formatter again: help.cc and command_line.cc do.

#include <CLI/App.hpp>
#include <functional>

namespace fathom::apps {

struct Command {
  CLI::App* app = nullptr;
  // Runs after the parse and returns the exit status. May throw StartupError.
  std::function<int()> run;
};

// "Examples:" below a subcommand's help, one command per line.
void set_examples(CLI::App& app, std::initializer_list<const char*> lines);

}  // namespace fathom::apps
