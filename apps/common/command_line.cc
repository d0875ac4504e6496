#include "apps/common/command_line.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>

#include "apps/common/arguments.h"
#include "apps/common/help.h"
#include "apps/common/version.h"
#include "base/edit_distance.h"

namespace fathom::apps {
namespace {

// The program and the subcommands that were named, for "try ... --help".
std::string command_path(const CLI::App& program, const std::vector<std::string>& words) {
  std::string path = program.get_name();
  const CLI::App* app = &program;
  for (const std::string& word : words) {
    const CLI::App* const sub = find_subcommand(*app, word);
    if (sub == nullptr) break;
    path += " " + word;
    app = sub;
  }
  return path;
}

// Empty: none is near.
std::string nearest_subcommand(const CLI::App& app, const std::string& name) {
  std::string best;
  int fewest = static_cast<int>(name.size()) / 3 + 1;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    const int edits = edit_distance(name, sub->get_name(), fewest - 1);
    if (edits >= fewest) continue;
    fewest = edits;
    best = sub->get_name();
  }
  return best;
}

// Every command takes a file of flags. What the parser itself would read of it, it would read in a form of its own.
void add_config_flags(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (command.app->get_option_no_throw("--config") != nullptr) continue;
    add_config_flag(*command.app);
  }
}

// The parser takes the last word first.
void parse(CLI::App& app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());
  app.parse(std::move(words));
}

// What a person may do about it.
std::string advice(const CLI::ParseError& error, const PreparedArguments& prepared) {
  const std::string text = error.what();
  if (text.starts_with("--model-path is required"))
    return ": a checkpoint's directory; the demo model's is --model-path demo";
  for (const auto& [flag, source] : prepared.sources)
    if (text.find(flag) != text.npos) return " (set by " + source + ")";
  return "";
}

// A disk without room. A reader that went away has what it wanted (fathom ... | head).
bool is_output_lost() {
  struct stat status {};
  const bool is_read = ::fstat(STDOUT_FILENO, &status) == 0 &&
                       (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  return failed && !is_read;
}

int refuse(const CLI::App& app, const std::vector<std::string>& words, const std::string& why) {
  std::fprintf(stderr, "%s: %s\nTry: %s --help\n", app.get_name().c_str(), why.c_str(),
               command_path(app, words).c_str());
  return 2;
}

}  // namespace

CLI::Option* add_config_flag(CLI::App& app, std::string* path) {
  const std::string text =
      "YAML file of flags: their names without the dashes in front. The command line wins, then "
      "the environment (FATHOM_PORT for --port)";
  return (path == nullptr ? app.add_option("--config", text)
                          : app.add_option("--config", *path, text))
      ->configurable(false)
      ->type_name("FILE")
      ->group("Settings");
}

void begin_command_line(CLI::App& app, const std::string& more) {
  use_help_style(app);
  const std::string text = version_text(app.get_name()) + (more.empty() ? "" : "\n" + more);
  app.set_version_flag("--version", text, "Show the version");
  app.require_subcommand(1);
}

int run_command_line(CLI::App& app, const std::vector<Command>& commands, int argc, char** argv) {
  const char* const program = app.get_name().c_str();
  if (argc == 1) {
    std::fputs(app.help().c_str(), stderr);
    return 2;
  }
  if (argv[1][0] != '-' && find_subcommand(app, argv[1]) == nullptr) {
    const std::string near = nearest_subcommand(app, argv[1]);
    std::fprintf(stderr, "%s: no subcommand \"%s\"%s\nTry: %s --help\n", program, argv[1],
                 near.empty() ? "" : ("; the nearest is " + near).c_str(), program);
    return 2;
  }
  add_config_flags(commands);
  const std::vector<std::string> words(argv + 1, argv + argc);
  PreparedArguments prepared;
  try {
    prepared = prepare_arguments(app, words, environ);
    parse(app, prepared.words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return refuse(app, words, error.what() + advice(error, prepared));
  } catch (const CommandLineError& error) {
    return refuse(app, words, error.what());
  }
  for (const std::string& note : prepared.notes)
    std::fprintf(stderr, "%s: %s\n", program, note.c_str());
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const int status = command.run();
    // What a server prints is one line, which it can do without.
    if (status != 0 || command.app->get_name() == "serve" || !is_output_lost()) return status;
    std::fprintf(stderr, "%s: standard output could not be written to its end\n", program);
    return 1;
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
