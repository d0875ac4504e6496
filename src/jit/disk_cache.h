#pragma once
// DiskCache: compiled kernels in files of one directory, by the key of what they were compiled from.
//
//   Result<DiskCache> cache = DiskCache::open(default_directory(), 256 << 20);     // the error says why there is none
//   if (std::optional<std::string> cubin = cache->find(key)) load(*cubin);
//   else if (Status stored = cache->store(key, compile()); !stored) say(stored.error().message);
//
// The directory belongs to this user and nobody else may write to it: what lies there runs on the GPU. A file is there
// whole or not at all, and begins with the digest of the rest: one that was cut or changed counts as missing. What was
// not used for the longest time goes when there are more bytes than the bound.
//
// Any number of processes and threads may use one directory.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace fathom::jit {

class DiskCache {
 public:
  // Makes the directory where there is none.
  static Result<DiskCache> open(const std::string& directory, int64_t max_bytes);

  std::optional<std::string> find(const std::string& key) const;
  // One that is larger than the bound is not kept.
  Status store(const std::string& key, std::string_view bytes) const;

 private:
  DiskCache(std::string directory, int64_t max_bytes)
      : directory_(std::move(directory)), max_bytes_(max_bytes) {}

  std::string path_of(const std::string& key) const;
  void remove_oldest() const;

  std::string directory_;
  int64_t max_bytes_;
};

// $XDG_CACHE_HOME/fathom/jit, or ~/.cache/fathom/jit; "" where neither is set to an absolute path.
std::string default_directory();

}  // namespace fathom::jit
