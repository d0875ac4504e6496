#pragma once
// How many nodes compute a model, and which one this is: flags, what a launcher's environment says, what is refused.
//
//   NodeFlags flags;
//   add_node_flags(*subcommand, flags);
//   ... parse ...
//   const NodePlace place = node_place(flags, process_environment());
//   check_nodes(flags, place, tp_size);
//
// Names are SGLang's. Throws StartupError.

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "apps/launcher.h"
#include "base/json.h"

namespace fathom::apps {

struct NodeFlags {
  std::optional<int> num_nodes{}, node_rank{};
  std::string dist_init_addr{};  // HOST:PORT of node 0
  std::string cluster_key_file{};
};

struct NodePlace {
  int num_nodes = 1, node_rank = 0;

  bool has_others() const { return num_nodes > 1; }
  bool is_head() const { return node_rank == 0; }
};

void add_node_flags(CLI::App& app, NodeFlags& flags);

// The flags', or where they say nothing the launcher's.
NodePlace node_place(const NodeFlags& flags, const Environment& environment);
// Whether the flags fit together, and the ranks can be shared out.
void check_nodes(const NodeFlags& flags, const NodePlace& place, int tp_size);
// For /server_info and the log: "nnodes", "node_rank", "dist_init_addr". REQUIRES: the flags say what node_place() did.
json::Value node_settings(const NodeFlags& flags);

}  // namespace fathom::apps
