#pragma once
// The directory that a person meant by --model-path, and the name of the model in it.
//
//   find_model_directory("--model-path", "hub/models--acme--demo")   ->  "hub/models--acme--demo/snapshots/0123..."
//   model_name_of("hub/models--acme--demo/snapshots/0123...")        ->  "acme/demo"
//
// The word demo, where there is no such directory, is the model that came with the program.
// An entry of the Hugging Face cache stands for the snapshot that its refs/main names, or its only one. What cannot be
// a checkpoint (a repository's name, a file, the cache itself, GGUF) is a StartupError that says what to give instead;
// of a directory that may be one the rest is checked by who reads it. Thread-safe (no state).

#include <CLI/App.hpp>
#include <string>

namespace fathom::apps {

// `flag` is for messages.
std::string find_model_directory(const std::string& flag, const std::string& given);

// The demo model that came with this program: of its installation, or of the tree that it was built in. Empty where it
// is in neither.
std::string demo_directory();

// Puts find_model_directory() between a flag and its variable.
CLI::Validator checkpoint_directory(const std::string& flag);

// Of an entry of the Hugging Face cache the repository's name, else the directory's.
std::string model_name_of(const std::string& directory);

}  // namespace fathom::apps
