#pragma once
// From flags to the nodes of a service that have met, and what a node without a planner does.
//
//   if (is_follower(flags)) return follow(flags);        // the exit status
//   ReadyModel ready = make_ready_model(flags);          // node 0: meets the others, then as ever
//
// Throws StartupError.

#include <functional>
#include <memory>
#include <string>

#include "apps/flags/flags.h"
#include "apps/flags/node_flags.h"
#include "nodes/cluster.h"
#include "ops/backend.h"
#include "runner/ranks/rank_group.h"

namespace fathom::apps {

// Of a server whose model cannot go on. A signal's end is 0 or 1, a failed start's 1 or 2.
inline constexpr int kFailedStatus = 70;

// Throws where the nodes cannot compute on this device: what NCCL asks for and cannot give. REQUIRES: num_local_ranks()
// has taken the nodes.
void check_nodes_on(const EngineFlags& flags, const ops::Backend& backend);
// Waits for the other nodes; null where there are none. REQUIRES: nodes and ranks are checked.
std::unique_ptr<nodes::Cluster> join_nodes(const EngineFlags& flags, const ops::Backend& backend);
// This node among them, for the ranks. The links are the cluster's.
runner::NodePlace place_among(nodes::Cluster* cluster, const EngineFlags& flags,
                              const ops::Backend& backend);

// Ranks in this process. Throws where nodes cannot share them out.
int num_local_ranks(const EngineFlags& flags);
bool is_follower(const EngineFlags& flags);
// Computes what node 0 submits, until that ends. What cannot go on ends the process. Told when it begins.
int follow(const EngineFlags& flags, const std::function<void()>& on_ready = {});
// Throws for nodes with what has no ranks.
void check_no_nodes(const NodeFlags& flags, const std::string& what);

}  // namespace fathom::apps
