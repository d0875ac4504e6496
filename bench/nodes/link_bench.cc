// What a message between two processes of a host costs: there and back by size, and how long steps become whose plans
// and results go between processes. A JSON line each.
//
//   bench_nodes [ADDRESS]            127.0.0.1:29573 when none is named

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "nodes/cluster.h"

namespace {

using fathom::Stopwatch;
using fathom::comm::Link;
using fathom::nodes::Cluster;

constexpr size_t kPlanBytes = 8192, kResultBytes = 2048;
constexpr std::chrono::microseconds kStep{2000};

fathom::nodes::ClusterConfig config_of(int node, const char* address) {
  return {.num_nodes = 2, .node_rank = node, .address = address};
}

// Plans are steps that take their time, one after another; what comes on the group's channel goes back.
void run_other_node(const char* address) {
  Cluster cluster(config_of(1, address));
  Link& head = cluster.link(0);
  std::thread steps([&] {
    try {
      auto end = std::chrono::steady_clock::now();
      while (true) {
        (void)head.receive(Link::kPlans);
        // From the end of the step before, if the plan was there by then.
        end = std::max(end, std::chrono::steady_clock::now()) + kStep;
        std::this_thread::sleep_until(end);
        head.send(Link::kResults, std::vector<std::byte>(kResultBytes));
      }
    } catch (const fathom::comm::LinkFailure&) {
    }
  });
  try {
    while (true) head.send(Link::kFirstGroup, head.receive(Link::kFirstGroup));
  } catch (const fathom::comm::LinkFailure&) {
  }
  steps.join();
}

double percentile(std::vector<double>& values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

void time_there_and_back(Link& link, size_t bytes) {
  const int rounds = bytes > (1 << 20) ? 100 : 2000;
  std::vector<double> us;
  for (int round = 0; round < rounds + 50; ++round) {
    const Stopwatch watch;
    link.send(Link::kFirstGroup, std::vector<std::byte>(bytes));
    (void)link.receive(Link::kFirstGroup);
    if (round >= 50) us.push_back(watch.seconds() * 1e6);
  }
  std::printf(
      "{\"case\": \"there and back\", \"bytes\": %zu, \"p50_us\": %.1f, \"p99_us\": %.1f}\n", bytes,
      percentile(us, 0.5), percentile(us, 0.99));
}

// in_flight plans are sent ahead: with two, one is there when the step before it ends.
void time_steps(Link& link, int in_flight) {
  std::vector<double> us;
  for (int i = 0; i < in_flight; ++i) link.send(Link::kPlans, std::vector<std::byte>(kPlanBytes));
  for (int step = 0; step < 1000; ++step) {
    const Stopwatch watch;
    (void)link.receive(Link::kResults);
    link.send(Link::kPlans, std::vector<std::byte>(kPlanBytes));
    us.push_back(watch.seconds() * 1e6);
  }
  for (int i = 0; i < in_flight; ++i) (void)link.receive(Link::kResults);
  std::printf(
      "{\"case\": \"steps of %d us\", \"plans_ahead\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
      static_cast<int>(kStep.count()), in_flight, percentile(us, 0.5), percentile(us, 0.99));
}

int run(const char* address) {
  fathom::set_log_level(fathom::LogLevel::kError);
  // Before UCX has threads.
  const pid_t other = ::fork();
  if (other == 0) {
    run_other_node(address);
    return 0;
  }
  {
    Cluster cluster(config_of(0, address));
    Link& link = cluster.link(1);
    for (const size_t bytes :
         {size_t{64}, kPlanBytes, size_t{65536}, size_t{1} << 20, size_t{16} << 20})
      time_there_and_back(link, bytes);
    time_steps(link, 1);
    time_steps(link, 2);
  }
  int status = 0;
  ::waitpid(other, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "127.0.0.1:29573");
  } catch (const fathom::StartupError& error) {
    std::fprintf(stderr, "bench_nodes: %s\n", error.what());
    return 1;
  }
}
