#include "tests/nodes/peer_program.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "nodes/cluster.h"

namespace fathom::nodes {

int run_peer(int argc, char** argv) {
  FATHOM_CHECK(argc == 5, argc);
  set_log_level(LogLevel::kError);
  try {
    Cluster cluster({.num_nodes = std::atoi(argv[3]),
                     .node_rank = std::atoi(argv[4]),
                     .address = argv[2],
                     .facts = json::Value{{"version", "1"}},
                     .silence = std::chrono::milliseconds(kPeerSilenceMs),
                     .start_limit = std::chrono::milliseconds(20'000)});
    comm::Link& head = cluster.link(0);
    while (true) head.send(comm::Link::kResults, head.receive(comm::Link::kPlans));
  } catch (const comm::LinkFailure&) {
    return 0;
  } catch (const StartupError& error) {
    std::fprintf(stderr, "peer: %s\n", error.what());
    return 1;
  }
}

PeerProcess::PeerProcess(const std::string& address, int num_nodes, int node_rank) {
  std::vector<std::string> words = {"test_nodes", "peer", address, std::to_string(num_nodes),
                                    std::to_string(node_rank)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  FATHOM_CHECK(
      ::posix_spawn(&id_, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ) == 0,
      "posix_spawn");
}

PeerProcess::~PeerProcess() {
  if (id_ == 0) return;
  send_signal(SIGKILL);
  wait();
}

void PeerProcess::send_signal(int number) const { FATHOM_CHECK(::kill(id_, number) == 0, id_); }

int PeerProcess::wait() {
  int status = 0;
  FATHOM_CHECK(::waitpid(std::exchange(id_, 0), &status, 0) > 0, "waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace fathom::nodes
