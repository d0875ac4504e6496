#pragma once
// How help texts look: groups of flags, each with what it takes and its default in words.
//
//   use_help_style(app);        // before subcommands are added: they inherit it

#include <CLI/App.hpp>

namespace fathom::apps {

void use_help_style(CLI::App& app);

}  // namespace fathom::apps
