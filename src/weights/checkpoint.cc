#include "weights/checkpoint.h"

#include <utility>

#include "base/json.h"
#include "weights/file.h"
#include "weights/parallel.h"
#include "weights/problem_list.h"
#include "weights/shard_index.h"

namespace fathom::weights {
namespace {

// Headers are small: a few threads hide the latency of a network file system.
constexpr int kHeaderThreads = 8;

// Every tensor of the files is where the index says, and the other way round.
Status compare_with_index(const ShardIndex& index, const std::vector<TensorInfo>& tensors) {
  if (index.index_path.empty()) return {};
  ProblemList problems;
  std::unordered_map<std::string_view, std::string_view> file_of;
  for (const TensorInfo& tensor : tensors) {
    file_of.emplace(tensor.name, tensor.file);
    const auto it = index.weight_map.find(tensor.name);
    if (it == index.weight_map.end()) {
      problems.add("not in the index",
                   "tensor " + json::shown_text(tensor.name) + " of " + tensor.file);
    } else if (index.files[it->second] != tensor.file) {
      problems.add("in the wrong file", "tensor " + json::shown_text(tensor.name) + " is in " +
                                            tensor.file + ", the index says " +
                                            index.files[it->second]);
    }
  }
  for (const auto& [name, file_idx] : index.weight_map) {
    if (file_of.contains(name)) continue;
    problems.add("in no file",
                 "tensor " + json::shown_text(name) + ", the index says " + index.files[file_idx]);
  }
  if (!problems.any()) return {};
  return problems.error(index.index_path + " does not fit the files");
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& directory) {
  Result<ShardIndex> index = find_shards(directory);
  if (!index) return index.error();
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  checkpoint.files_ = index->files;
  if (Status read = checkpoint.read_headers(); !read) return read.error();
  if (Status unique = checkpoint.index_names(); !unique) return unique.error();
  if (Status fits = compare_with_index(*index, checkpoint.tensors_); !fits) return fits.error();
  return checkpoint;
}

Status Checkpoint::read_headers() {
  std::vector<std::vector<TensorInfo>> headers(files_.size());
  file_bytes_.assign(files_.size(), 0);
  Status done = run_jobs(files_.size(), kHeaderThreads, [&](size_t i, size_t) -> Status {
    const Result<File> file = File::open(files_[i]);
    if (!file) return file.error();
    file_bytes_[i] = file->num_bytes();
    Result<std::vector<TensorInfo>> tensors = read_safetensors_header(*file);
    if (!tensors) return tensors.error();
    headers[i] = std::move(*tensors);
    return {};
  });
  if (!done) return done;
  for (std::vector<TensorInfo>& header : headers) {
    for (TensorInfo& tensor : header) {
      total_bytes_ += tensor.num_bytes;
      tensors_.push_back(std::move(tensor));
    }
  }
  return {};
}

Status Checkpoint::index_names() {
  by_name_.reserve(tensors_.size());
  ProblemList problems;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [first, added] = by_name_.emplace(tensors_[i].name, i);
    if (added) continue;
    problems.add("in two files", "tensor " + json::shown_text(tensors_[i].name) + ": " +
                                     tensors_[first->second].file + " and " + tensors_[i].file);
  }
  if (problems.any()) {
    return problems.error(directory_ +
                          " names tensors twice: leave the files of one checkpoint there");
  }
  return {};
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace fathom::weights
