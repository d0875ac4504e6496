#pragma once
// How the nodes of a service find one another: node 0 listens, the others come, all prove that they have the key, node
// 0 compares what they say of themselves and tells everybody where the others are.
//
//   Meeting meeting = meet(config);
//
// Throws StartupError: an address that cannot be had, another key, a difference, nobody who came in time.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "nodes/door.h"
#include "nodes/ucx_transport.h"

namespace fathom::nodes {

struct ClusterConfig {
  int num_nodes = 1;
  int node_rank = 0;
  std::string address;   // of node 0: "HOST:PORT"
  std::string key = {};  // empty = none, which only a loopback address may have
  // What must be the same on all nodes (agreement.h).
  json::Box facts = json::Box::object();
  // A node of which nothing was heard for so long has failed.
  std::chrono::milliseconds silence{5'000};
  // How long nodes wait for one another at the start.
  std::chrono::milliseconds start_limit{300'000};
};

struct Meeting {
  // Of node 0: by node, that of itself empty. Of another: one, to node 0.
  std::vector<std::unique_ptr<Door>> doors;
  std::unique_ptr<UcxTransport> transport;
  std::vector<std::string> addresses;  // UCX's, by node
  std::vector<std::string> names;      // "node 1 at 10.0.0.2:40512", by node
  std::string session;                 // key of this meeting's frames
  std::string network_interface;       // that leads to the others: "lo", "eth0"
};

using MakeTransport =
    std::function<std::unique_ptr<UcxTransport>(const std::string& network_interface)>;

Meeting meet(const ClusterConfig& config, const MakeTransport& make_transport);

}  // namespace fathom::nodes
