#include "apps/engine/node_setup.h"

#include <cstdio>

#include "apps/engine/engine_setup.h"
#include "apps/engine/node_facts.h"
#include "apps/engine/shutdown_signals.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "cuda/comm/nccl_ranks.h"
#include "nodes/cluster_key.h"
#include "nodes/ucx_library.h"

namespace fathom::apps {
namespace {

NodePlace place_of(const EngineFlags& flags) {
  return node_place(flags.nodes, process_environment());
}

}  // namespace

void check_nodes_on(const EngineFlags& flags, const ops::Backend& backend) {
  const NodePlace place = place_of(flags);
  if (!place.has_others() || !backend.device_memory) return;
  const std::string nodes = "--nnodes " + std::to_string(place.num_nodes);
  const std::string ranks = std::to_string(flags.ranks.tp_size);
  if (flags.ranks.tp_size != place.num_nodes)
    throw StartupError(nodes + " with --tp-size " + ranks +
                       ": GPUs of several nodes are one to a process, so start " + ranks +
                       " processes with --nnodes " + ranks);
  if (backend.batch_invariant && place.num_nodes > 2)
    throw StartupError(nodes +
                       " does not go with --deterministic: NCCL adds more than two GPUs in "
                       "another order for other numbers of rows");
}

std::unique_ptr<nodes::Cluster> join_nodes(const EngineFlags& flags, const ops::Backend& backend) {
  const NodePlace place = place_of(flags);
  if (!place.has_others()) return nullptr;
  if (const std::string why = nodes::why_no_ucx(); !why.empty()) throw StartupError(why);
  nodes::ClusterConfig config{.num_nodes = place.num_nodes,
                              .node_rank = place.node_rank,
                              .address = flags.nodes.dist_init_addr,
                              .silence = rank_standstill(flags.ranks)};
  if (!flags.nodes.cluster_key_file.empty())
    config.key = nodes::read_cluster_key(flags.nodes.cluster_key_file);
  config.facts = node_facts(flags, backend);
  auto cluster = std::make_unique<nodes::Cluster>(config);
  FATHOM_LOG(kInfo, "apps", "nodes",
             {{"nnodes", place.num_nodes},
              {"node_rank", place.node_rank},
              {"dist_init_addr", config.address}});
  return cluster;
}

runner::NodePlace place_among(nodes::Cluster* cluster, const EngineFlags& flags,
                              const ops::Backend& backend) {
  runner::NodePlace place;
  if (cluster == nullptr) return place;
  if (backend.device_memory)
    place.make_group = cuda::make_nccl_ranks({.library = flags.ranks.peers.nccl_library,
                                              .network_interface = cluster->network_interface()});
  place.node = cluster->node_rank();
  for (int node = 0; node < cluster->num_nodes(); ++node)
    place.links.push_back(node == place.node ? nullptr : &cluster->link(node));
  return place;
}

int num_local_ranks(const EngineFlags& flags) {
  const NodePlace place = place_of(flags);
  check_nodes(flags.nodes, place, flags.ranks.tp_size);
  return flags.ranks.tp_size / place.num_nodes;
}

void check_no_nodes(const NodeFlags& flags, const std::string& what) {
  const NodePlace place = node_place(flags, process_environment());
  check_nodes(flags, place, place.num_nodes);
  if (place.has_others())
    throw StartupError("--nnodes " + std::to_string(place.num_nodes) + " does not go with " + what);
}

bool is_follower(const EngineFlags& flags) { return !place_of(flags).is_head(); }

int follow(const EngineFlags& flags, const std::function<void()>& on_ready) {
  ReadyModel ready = make_ready_model(flags);
  if (on_ready) on_ready();
  const std::string why = ready.ranks->follow();
  if (why.empty()) return 0;
  ready.cluster->leave(why);
  std::fprintf(stderr, "fathom: node %d: %s\n", ready.cluster->node_rank(), why.c_str());
  // Ranks that wait for others are not to be joined.
  end_here(kFailedStatus);
}

}  // namespace fathom::apps
