#pragma once
// Another node for the tests, as a process of its own: this test program, started anew with the arguments
// "peer ADDRESS NUM_NODES NODE_RANK". It answers on kResults with what it gets on kPlans from node 0, and ends when its
// link to node 0 fails.

#include <sys/types.h>

#include <string>

namespace fathom::nodes {

inline constexpr int kPeerSilenceMs = 1000;

// What main() does with those arguments: the exit status.
int run_peer(int argc, char** argv);

class PeerProcess {
 public:
  PeerProcess(const std::string& address, int num_nodes, int node_rank);
  // Ends it where it still runs.
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  void send_signal(int number) const;
  // The exit status, or 128 and the signal's number.
  int wait();

 private:
  pid_t id_ = 0;
};

}  // namespace fathom::nodes
