#include "weights/shard_index.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "base/lfs_pointer.h"
#include "weights/file.h"

namespace fathom::weights {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kExtension = ".safetensors";
constexpr int64_t kMaxIndexBytes = 100'000'000;

// A shard is named by a plain file name. Anything else could reach files outside the directory.
bool is_plain_file_name(std::string_view name) {
  return name.size() > kExtension.size() && name.ends_with(kExtension) && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

bool is_inside(const fs::path& path, const fs::path& directory) {
  const fs::path relative = path.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != "..";
}

// The file may be a link, but only to a place inside the directory, or, in the layout of the Hugging Face
// cache (REPO/snapshots/REVISION/ links to REPO/blobs/), inside that repository's blobs.
Status check_location(const std::string& path, const std::string& directory) {
  std::error_code error;
  const fs::path target = fs::canonical(path, error);
  if (error) {
    return Error{ErrorCode::kNotFound, path + ": can't be opened: " + error.message()};
  }
  const fs::path root = fs::canonical(directory, error);
  if (!error && is_inside(target, root)) return {};
  const fs::path snapshots = root.parent_path();
  if (!error && snapshots.filename() == "snapshots" &&
      is_inside(target, snapshots.parent_path() / "blobs")) {
    return {};
  }
  return invalid_argument(path + ": is a link that leaves the checkpoint directory");
}

Result<std::string> read_index_text(const std::string& path) {
  const Result<File> file = File::open(path);
  if (!file) return file.error();
  if (file->num_bytes() > kMaxIndexBytes) {
    return invalid_argument(path + ": has " + std::to_string(file->num_bytes()) +
                            " bytes, an index has at most " + std::to_string(kMaxIndexBytes));
  }
  std::string text(static_cast<size_t>(file->num_bytes()), '\0');
  if (Status read = file->read_at(0, text.data(), file->num_bytes()); !read) return read.error();
  if (is_lfs_pointer(text)) return lfs_pointer_error(path);
  return text;
}

// What to do about a directory without weights that this program reads.
std::string advice_without_weights(const std::vector<std::string>& names) {
  const auto has = [&](std::string_view ending) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name.ends_with(ending); });
  };
  if (has(".gguf")) {
    return "it holds GGUF files, which are not read: give a Hugging Face checkpoint of the model";
  }
  if (has(".bin") || has(".pt") || has(".pth")) {
    return "it holds weights of PyTorch, which are not read: save them as safetensors";
  }
  return "must have model.safetensors, or shards with or without " + std::string(kIndexName) +
         ": has the download finished?";
}

// The parts of "model-00002-of-00005.safetensors".
struct NumberedName {
  std::string_view before, number, total;  // "model-", "00002", "00005"
};

std::optional<NumberedName> parse_numbered(std::string_view name) {
  const std::string_view stem = name.substr(0, name.size() - kExtension.size());
  const size_t of = stem.rfind("-of-");
  const size_t dash = of == stem.npos ? of : stem.rfind('-', of - 1);
  if (of == stem.npos || of == 0 || dash == stem.npos) return std::nullopt;
  const NumberedName parts{.before = stem.substr(0, dash + 1),
                           .number = stem.substr(dash + 1, of - dash - 1),
                           .total = stem.substr(of + 4)};
  constexpr size_t kMaxDigits = 6;
  for (const std::string_view digits : {parts.number, parts.total}) {
    if (digits.empty() || digits.size() > kMaxDigits ||
        digits.find_first_not_of("0123456789") != digits.npos) {
      return std::nullopt;
    }
  }
  return parts;
}

// Of the files that the name of another speaks of, the first that is not there. REQUIRES: sorted.
std::optional<std::string> missing_of_numbered(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const std::optional<NumberedName> parts = parse_numbered(file);
    const int total = parts ? std::stoi(std::string(parts->total)) : 0;
    for (int number = 1; number <= total; ++number) {
      const std::string digits = std::to_string(number);
      const size_t padding = parts->number.size() - std::min(parts->number.size(), digits.size());
      const std::string name = std::string(parts->before) + std::string(padding, '0') + digits +
                               "-of-" + std::string(parts->total) + std::string(kExtension);
      if (!std::binary_search(files.begin(), files.end(), name)) return name;
    }
  }
  return std::nullopt;
}

// Without an index: model.safetensors, or every file of its kind. That they fit together is seen from their headers.
Result<ShardIndex> find_files(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names, found;
  fs::directory_iterator entries(directory, error);
  for (const fs::directory_iterator end; !error && entries != end; entries.increment(error)) {
    names.push_back(entries->path().filename().string());
    if (names.back().ends_with(kExtension)) found.push_back(names.back());
  }
  if (error) {
    return Error{ErrorCode::kNotFound, directory + ": can't be listed: " + error.message()};
  }
  if (found.empty()) {
    return invalid_argument(directory + ": holds no .safetensors files; " +
                            advice_without_weights(names));
  }
  std::sort(found.begin(), found.end());
  if (std::binary_search(found.begin(), found.end(), kSingleName))
    found = {std::string(kSingleName)};
  if (const std::optional<std::string> missing = missing_of_numbered(found)) {
    return invalid_argument(
        directory + ": has no " + *missing +
        ", which the names of the others speak of: the download has not finished");
  }
  ShardIndex index;
  for (const std::string& name : found) index.files.push_back(directory + "/" + name);
  return index;
}

// One sentence for all of them: half a download lacks many.
Status check_all_there(const ShardIndex& index) {
  std::string first;
  size_t num_missing = 0;
  for (const std::string& file : index.files) {
    std::error_code error;
    if (fs::exists(fs::status(file, error))) continue;
    if (num_missing++ == 0) first = file;
  }
  if (num_missing == 0) return {};
  return Error{ErrorCode::kNotFound,
               first + ": is missing, the first of " + std::to_string(num_missing) + " of the " +
                   std::to_string(index.files.size()) +
                   " files of the checkpoint that are: the download has not finished"};
}

Status check_index_root(const json::Value& root) {
  if (!root.is_object()) return invalid_argument("is " + json::shown(root) + ", must be an object");
  const auto map = root.find("weight_map");
  if (map == root.end()) return invalid_argument("\"weight_map\" is missing");
  if (!map->is_object() || map->empty()) {
    return invalid_argument("\"weight_map\" is " + json::shown(*map) +
                            ", must be an object of tensor names and files");
  }
  for (const auto& member : map->items()) {
    const json::Value& file = member.value();
    if (file.is_string() && is_plain_file_name(file.get_ref<const std::string&>())) continue;
    return invalid_argument("\"weight_map\" puts " + json::shown_text(member.key()) + " into " +
                            json::shown(file) +
                            ", must be the name of a .safetensors file in the same directory");
  }
  return {};
}

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& directory,
                                     const std::string& index_path) {
  const Result<json::Value> root = json::parse(text, {.max_depth = 8, .max_bytes = kMaxIndexBytes});
  if (!root) return invalid_argument(index_path + ": " + root.error().message);
  if (Status valid = check_index_root(*root); !valid) {
    return invalid_argument(index_path + ": " + valid.error().message);
  }
  const json::Value& map = (*root)["weight_map"];
  std::map<std::string, size_t> positions;
  for (const auto& member : map.items()) {
    positions.emplace(member.value().get_ref<const std::string&>(), 0);
  }
  ShardIndex index;
  index.index_path = index_path;
  for (auto& [name, position] : positions) {
    position = index.files.size();
    index.files.push_back(directory + "/" + name);
  }
  index.weight_map.reserve(map.size());
  for (const auto& member : map.items()) {
    index.weight_map.emplace(member.key(),
                             positions.at(member.value().get_ref<const std::string&>()));
  }
  return index;
}

Result<ShardIndex> find_shards(const std::string& directory) {
  const std::string index_path = directory + "/" + std::string(kIndexName);
  std::error_code error;
  Result<ShardIndex> index = ShardIndex{};
  if (fs::exists(fs::symlink_status(index_path, error))) {
    const Result<std::string> text = read_index_text(index_path);
    if (!text) return text.error();
    index = parse_shard_index(*text, directory, index_path);
  } else {
    index = find_files(directory);
  }
  if (!index) return index;
  if (Status all = check_all_there(*index); !all) return all.error();
  for (const std::string& file : index->files) {
    if (Status inside = check_location(file, directory); !inside) return inside.error();
  }
  return index;
}

}  // namespace fathom::weights
