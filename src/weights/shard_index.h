#pragma once
// Which files a checkpoint directory consists of, and which tensor the index expects in which file.
//
//   Result<ShardIndex> index = find_shards("models/demo");
//   index->files;                        // {"models/demo/model-00001-of-000002.safetensors", ...}
//   index->weight_map                    // {"lm_head.weight", 0}, ...; empty without an index
//
// Thread-safe (no state).

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace fathom::weights {

struct ShardIndex {
  std::string index_path;                              // empty = files without an index
  std::vector<std::string> files;                      // paths, sorted
  std::unordered_map<std::string, size_t> weight_map;  // tensor name -> index into files
};

Result<ShardIndex> find_shards(const std::string& directory);

// Reads the text of an index. `files` become paths inside `directory`; nothing is opened.
Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& directory,
                                     const std::string& index_path);

}  // namespace fathom::weights
