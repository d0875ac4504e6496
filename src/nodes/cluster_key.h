#pragma once
// The secret that the nodes of a service share, read from a file.
//
//   const std::string key = read_cluster_key("/etc/fathom/cluster-key");     // openssl rand -hex 32 > ...
//
// Throws StartupError. White space at the end of the file is no part of the key.

#include <string>

namespace fathom::nodes {

inline constexpr size_t kMinClusterKeyBytes = 32, kMaxClusterKeyBytes = 4096;

std::string read_cluster_key(const std::string& path);

}  // namespace fathom::nodes
