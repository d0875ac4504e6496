#pragma once
// A command line as people write it, made into the one that the parser reads: the names of other servers' flags,
// underscores for dashes, the model's directory without --model-path, a file of flags and the environment.
//
//   PreparedArguments prepared = prepare_arguments(app, {"serve", "--model", "DIR", "--tp", "2"}, environ);
//   prepared.words      // serve --model-path DIR --tp-size 2
//   prepared.notes      // lines for people: what was taken in another sense or has no effect
//
// The command line wins over the environment (FATHOM_ and the flag's name in capitals), and that over --config FILE.
// Throws CommandLineError for what makes no sense, StartupError for a file that cannot be read. No state.

#include <CLI/App.hpp>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace fathom::apps {

// Exit status 2: one sentence that names the flag and what there is instead.
class CommandLineError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct PreparedArguments {
  std::vector<std::string> words;  // without the program's name
  std::vector<std::string> notes;
  // Where the value of a flag comes from that is not on the command line: "--port" -> "FATHOM_PORT", "fathom.yaml:3".
  std::map<std::string, std::string> sources;
};

// `environment` is as environ: NAME=VALUE, null at its end.
PreparedArguments prepare_arguments(const CLI::App& program, std::vector<std::string> words,
                                    const char* const* environment);

// The variable of the environment that says what the flag would: "--tp-size" -> "FATHOM_TP_SIZE".
std::string variable_of(const std::string& flag);

// Null where it has none of that name.
const CLI::App* find_subcommand(const CLI::App& app, const std::string& name);

// The flag of `app` that `name` ("--max-runing-requests") was most likely meant to be; empty: none is near.
std::string nearest_flag(const CLI::App& app, const std::string& name);

}  // namespace fathom::apps
