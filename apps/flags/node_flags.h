#pragma once
// How many nodes compute a model, and which one this is: flags, what a launcher's environment says, what is refused.
//
//   NodeFlags flags;
//   node_flags().add_to(*subcommand, flags);
//   ... parse ...
//   const NodePlace place = node_place(flags, process_environment());
//   check_nodes(flags, place, tp_size);
//
// Names are SGLang's. Throws StartupError.

#include <optional>
#include <string>

#include "apps/flags/flag_table.h"
#include "apps/flags/launcher.h"

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

// Their settings say what node_place() did only once its numbers are in the flags.
const FlagTable<NodeFlags>& node_flags();

// The flags', or where they say nothing the launcher's.
NodePlace node_place(const NodeFlags& flags, const Environment& environment);
// Whether the flags fit together, and the ranks can be shared out.
void check_nodes(const NodeFlags& flags, const NodePlace& place, int tp_size);

}  // namespace fathom::apps
