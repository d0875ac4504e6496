#include "apps/flags/node_flags.h"

#include "base/startup_error.h"

namespace fathom::apps {
namespace {

constexpr int kMostNodes = 256;

void require_nodes(bool ok, const std::string& message) {
  if (!ok) throw StartupError(message);
}

std::string count_text(const char* name, int value) {
  return std::string(name) + " " + std::to_string(value);
}

}  // namespace

const FlagTable<NodeFlags>& node_flags() {
  static const FlagTable<NodeFlags> table(
      "Nodes",
      {{"--nnodes",
        &NodeFlags::num_nodes,
        "Processes, each on a host of its own, whose ranks compute the model together: "
        "every node has "
        "--tp-size / N of them. All are started with the same flags but for --node-rank",
        {.type = "N",
         .check = CLI::Range(1, kMostNodes),
         .default_text = "1, or as many as mpirun or srun has started",
         // Where there is the flag, the launcher may say it too.
         .parse_rules = [](CLI::Option&, NodeFlags& flags) { flags.num_nodes.reset(); },
         .setting = [](const NodeFlags& flags) { return flags.num_nodes.value_or(1); }}},
       {"--node-rank",
        &NodeFlags::node_rank,
        "Which node this is, from 0; node 0 has the HTTP server, and the others end with it",
        {.type = "N",
         .check = CLI::Range(0, kMostNodes - 1),
         .default_text = "as mpirun or srun says",
         .setting = [](const NodeFlags& flags) { return flags.node_rank.value_or(0); }}},
       {"--dist-init-addr",
        &NodeFlags::dist_init_addr,
        "Where node 0 waits for the others; an address that other hosts reach needs "
        "--cluster-key-file",
        {.type = "HOST:PORT"}},
       {"--cluster-key-file",
        &NodeFlags::cluster_key_file,
        "A secret of 32 bytes or more that the nodes prove to one another, the same on all",
        {.type = "FILE", .shown = Shown::kInLog}}});
  return table;
}

NodePlace node_place(const NodeFlags& flags, const Environment& environment) {
  if (flags.num_nodes == 1) return {1, flags.node_rank.value_or(0)};
  const std::optional<Launched> launched = find_launcher(environment);
  if (!flags.num_nodes) {
    if (launched) return {launched->size, flags.node_rank.value_or(launched->rank)};
    return {1, flags.node_rank.value_or(0)};
  }
  if (flags.node_rank) return {*flags.num_nodes, *flags.node_rank};
  require_nodes(launched.has_value(), count_text("--nnodes", *flags.num_nodes) +
                                          " needs --node-rank, which node this is");
  require_nodes(launched->size == *flags.num_nodes,
                count_text("--nnodes", *flags.num_nodes) + ": " + launched->by + " has started " +
                    std::to_string(launched->size) + ", and there is no --node-rank");
  return {launched->size, launched->rank};
}

void check_nodes(const NodeFlags& flags, const NodePlace& place, int tp_size) {
  const std::string num_nodes = count_text("--nnodes", place.num_nodes);
  require_nodes(place.node_rank < place.num_nodes,
                count_text("--node-rank", place.node_rank) + " must be less than " + num_nodes);
  if (!place.has_others()) {
    require_nodes(flags.dist_init_addr.empty(), "--dist-init-addr needs --nnodes 2 or more");
    require_nodes(flags.cluster_key_file.empty(), "--cluster-key-file needs --nnodes 2 or more");
    return;
  }
  require_nodes(
      !flags.dist_init_addr.empty(),
      num_nodes + (flags.num_nodes ? "" : " (as the launcher says; --nnodes 1 if each is alone)") +
          " needs --dist-init-addr HOST:PORT, where node 0 waits for the others");
  require_nodes(tp_size % place.num_nodes == 0, num_nodes + " does not divide --tp-size, " +
                                                    std::to_string(tp_size) +
                                                    ": its nodes have equally many ranks");
}

}  // namespace fathom::apps
