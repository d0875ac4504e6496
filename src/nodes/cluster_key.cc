#include "nodes/cluster_key.h"

#include "base/startup_error.h"
#include "base/whole_file.h"

namespace fathom::nodes {

std::string read_cluster_key(const std::string& path) {
  const Result<std::string> text = read_whole_file(path, 2 * kMaxClusterKeyBytes);
  if (!text) throw StartupError("--cluster-key-file " + text.error().message);
  const size_t end = text->find_last_not_of(" \t\r\n");
  std::string key = text->substr(0, end == std::string::npos ? 0 : end + 1);
  if (key.size() < kMinClusterKeyBytes || key.size() > kMaxClusterKeyBytes)
    throw StartupError("--cluster-key-file " + path + ": a key has " +
                       std::to_string(kMinClusterKeyBytes) + " to " +
                       std::to_string(kMaxClusterKeyBytes) + " bytes, this one has " +
                       std::to_string(key.size()) + "; openssl rand -hex 32 makes one");
  return key;
}

}  // namespace fathom::nodes
