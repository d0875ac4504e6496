#include "weights/shard_index.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "base/json.h"
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
  return text;
}

// Without an index: model.safetensors, or the only file of its kind.
Result<ShardIndex> find_single_file(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> found;
  fs::directory_iterator entries(directory, error);
  for (const fs::directory_iterator end; !error && entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (name == kSingleName) {
      found = {name};
      break;
    }
    if (name.ends_with(kExtension)) found.push_back(name);
  }
  if (error) {
    return Error{ErrorCode::kNotFound, directory + ": can't be listed: " + error.message()};
  }
  if (found.size() != 1) {
    return invalid_argument(directory + ": holds " +
                            (found.empty() ? "no" : std::to_string(found.size())) +
                            " .safetensors files and no " + std::string(kIndexName) +
                            ", must have the index, model.safetensors or one file");
  }
  ShardIndex index;
  index.files.push_back(directory + "/" + found.front());
  return index;
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
    index = find_single_file(directory);
  }
  if (!index) return index;
  for (const std::string& file : index->files) {
    if (Status inside = check_location(file, directory); !inside) return inside.error();
  }
  return index;
}

}  // namespace fathom::weights
