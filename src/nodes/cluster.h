#pragma once
// Cluster: this process's place among the nodes of a service, with a Link to each of the others.
//
//   Cluster cluster({.num_nodes = 2, .node_rank = 1, .address = "node0:29500", .key = key, .facts = facts});
//   comm::Link& head = cluster.link(0);
//
// The constructor returns when all nodes have met and agree (meeting.h). From then on a thread moves messages; it
// sleeps while there are none. A link fails when the other process ends (at once), says that it leaves, or was silent
// for config.silence. Thread-safe. Links live as long as the cluster; the destructor sends what is left, tells the
// others that this node leaves, and waits for at most about a second.

#include <memory>
#include <string>

#include "comm/link.h"
#include "nodes/meeting.h"

namespace fathom::nodes {

class Cluster {
 public:
  explicit Cluster(const ClusterConfig& config);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  int num_nodes() const;
  int node_rank() const;
  // That leads to node 0, or of node 0 to another: "lo", "eth0".
  const std::string& network_interface() const;
  // REQUIRES: another node than this one.
  comm::Link& link(int node);
  // Tells the others why this node leaves, behind what was sent before: their links to it fail with that. Once; returns
  // at once.
  void leave(const std::string& why);

 private:
  class Mover;
  std::unique_ptr<Mover> mover_;
};

}  // namespace fathom::nodes
