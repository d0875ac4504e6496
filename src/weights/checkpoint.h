#pragma once
// A checkpoint directory: model.safetensors.index.json with its shards, a single model.safetensors, or every
// *.safetensors file where there is neither. Opening reads all headers (in parallel) and no data. The index wins over
// model.safetensors, and that over other files.
//
//   Result<Checkpoint> checkpoint = Checkpoint::open("models/demo");
//   const TensorInfo* info = checkpoint->find("model.norm.weight");
//
// Immutable after open(), thread-safe. Refused: shards named by a path instead of a file name, or links
// that leave the directory (a snapshot of a Hugging Face cache may link into its own blobs/); a shard that
// is missing; a tensor in two shards, in the wrong one, or in none.

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "weights/safetensors.h"

namespace fathom::weights {

class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  static Result<Checkpoint> open(const std::string& directory);

  const TensorInfo* find(std::string_view name) const;  // null = not there
  // By file, in file order.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<std::string>& files() const { return files_; }  // paths, sorted
  // Sizes of files() when their headers were read: the loader refuses a file that has changed since.
  const std::vector<int64_t>& file_bytes() const { return file_bytes_; }
  const std::string& directory() const { return directory_; }
  int64_t total_bytes() const { return total_bytes_; }  // of all tensors

 private:
  Checkpoint() = default;
  Status read_headers();
  Status index_names();

  std::string directory_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> files_;
  std::vector<int64_t> file_bytes_;
  std::unordered_map<std::string_view, size_t> by_name_;  // views of tensors_' names
  int64_t total_bytes_ = 0;
};

}  // namespace fathom::weights
