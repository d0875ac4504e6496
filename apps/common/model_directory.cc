#include "apps/common/model_directory.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/startup_error.h"
#include "base/whole_file.h"

namespace fathom::apps {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntryPrefix = "models--";
constexpr size_t kMaxShown = 3;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Sorted; empty where the directory cannot be listed.
std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  for (const fs::directory_iterator end; !error && entries != end; entries.increment(error)) {
    names.push_back(entries->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "acme--demo" of the name of an entry to "acme/demo".
std::string repository_of(std::string_view entry) {
  std::string name(entry.substr(kEntryPrefix.size()));
  for (size_t at = name.find("--"); at != name.npos; at = name.find("--", at)) {
    name.replace(at, 2, "/");
  }
  return name;
}

bool looks_like_repository(std::string_view text) {
  constexpr std::string_view kAllowed =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/";
  return text.find_first_not_of(kAllowed) == text.npos &&
         std::count(text.begin(), text.end(), '/') == 1 && text.front() != '/' &&
         text.front() != '.' && text.back() != '/';
}

fs::path cache_folder() {
  if (const char* const folder = std::getenv("HF_HUB_CACHE")) return folder;
  if (const char* const home = std::getenv("HF_HOME")) return fs::path(home) / "hub";
  const char* const home = std::getenv("HOME");
  return fs::path(home == nullptr ? "" : home) / ".cache/huggingface/hub";
}

std::string advice_without_directory(const std::string& given) {
  if (is_there(given)) {
    return given.ends_with(".gguf") ? ": it is a GGUF file, which is not read; give the directory "
                                      "of a Hugging Face checkpoint"
                                    : ": give the directory that holds the checkpoint's files";
  }
  if (!looks_like_repository(given)) return "";
  std::string entry = given;
  entry.replace(entry.find('/'), 1, "--");
  const fs::path cached = cache_folder() / (std::string(kEntryPrefix) + entry);
  if (is_folder(cached)) return "; the Hugging Face cache has it: give " + cached.string();
  return "; download it first: hf download " + given + " --local-dir DIR";
}

std::string listed(const fs::path& folder, const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxShown); ++i) {
    text += (i == 0 ? "" : ", ") + (folder / names[i]).string();
  }
  return names.size() > kMaxShown ? text + ", ..." : text;
}

// The commit that the entry's refs/main names; empty where there is none.
std::string main_commit(const fs::path& entry) {
  constexpr int64_t kMaxBytes = 4096;
  const Result<std::string> text = read_whole_file((entry / "refs/main").string(), kMaxBytes);
  return text ? text->substr(0, text->find_first_of(" \r\n")) : "";
}

std::string snapshot_of(const std::string& flag, const fs::path& entry) {
  const fs::path folder = entry / "snapshots";
  const std::vector<std::string> names = names_in(folder);
  const std::string commit = main_commit(entry);
  if (!commit.empty() && std::binary_search(names.begin(), names.end(), commit)) {
    return (folder / commit).string();
  }
  if (names.size() == 1) return (folder / names.front()).string();
  const std::string what = flag + " " + entry.string() + " is an entry of the Hugging Face cache ";
  if (names.empty()) throw StartupError(what + "without a snapshot: the download has not finished");
  throw StartupError(what + "with " + std::to_string(names.size()) +
                     " snapshots, give one of them: " + listed(folder, names));
}

// Of a directory without any file of a checkpoint.
void refuse_what_is_none(const std::string& flag, const fs::path& directory) {
  std::vector<std::string> entries;
  bool has_gguf = false;
  for (const std::string& name : names_in(directory)) {
    if (name.starts_with(kEntryPrefix)) entries.push_back(name);
    has_gguf = has_gguf || name.ends_with(".gguf");
  }
  const std::string what = flag + " " + directory.string();
  if (!entries.empty()) {
    throw StartupError(
        what + " is the Hugging Face cache, give one of its models: " + listed(directory, entries));
  }
  if (has_gguf) {
    throw StartupError(what +
                       " holds GGUF files, which are not read: give the directory of a Hugging "
                       "Face checkpoint");
  }
}

}  // namespace

std::string demo_directory() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  // PREFIX/bin/fathom; PREFIX/build/release/apps/fathom.
  const fs::path folder = program.parent_path();
  for (const char* place : {"../share/fathom/models/demo", "../../../models/demo"}) {
    if (is_there(folder / place / "config.json"))
      return (folder / place).lexically_normal().string();
  }
  return "";
}

std::string find_model_directory(const std::string& flag, const std::string& given) {
  if (given == "demo" && !is_there(given)) {
    if (std::string demo = demo_directory(); !demo.empty()) return demo;
  }
  std::error_code error;
  if (fs::status(given, error).type() == fs::file_type::none)
    throw StartupError(flag + " " + given + " cannot be read: " + error.message());
  if (!is_folder(given)) {
    throw StartupError(flag + " " + given + " is not a directory" +
                       advice_without_directory(given));
  }
  const fs::path directory = given;
  for (const char* name : {"config.json", "tokenizer.json", "tiktoken.model"}) {
    if (is_there(directory / name)) return given;
  }
  if (is_folder(directory / "snapshots")) return snapshot_of(flag, directory);
  refuse_what_is_none(flag, directory);
  return given;
}

CLI::Validator checkpoint_directory(const std::string& flag) {
  const auto find = [flag](std::string& path) {
    path = find_model_directory(flag, path);
    return std::string();
  };
  return CLI::Validator(find, "");
}

std::string model_name_of(const std::string& directory) {
  std::error_code error;
  fs::path path = fs::absolute(directory, error).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  const fs::path snapshots = path.parent_path();
  const std::string entry = snapshots.parent_path().filename().string();
  const bool is_cached = snapshots.filename() == "snapshots" && entry.starts_with(kEntryPrefix) &&
                         entry.size() > kEntryPrefix.size();
  return is_cached ? repository_of(entry) : path.filename().string();
}

}  // namespace fathom::apps
