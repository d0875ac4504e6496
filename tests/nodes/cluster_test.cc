#include "nodes/cluster.h"
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>

#include <algorithm>
#include <future>
#include <random>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/startup_error.h"
#include "nodes/ucx_library.h"
#include "tests/nodes/peer_program.h"

namespace fathom::nodes {
namespace {

using comm::Link;
using comm::LinkFailure;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// An address of this host that nobody listens at.
std::string free_address() {
  SocketAddress any;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&any.storage);
  v4->sin_family = AF_INET;
  v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  any.length = sizeof(*v4);
  return Socket::listen(any).local().text();
}

std::vector<std::byte> message_of(const std::string& text) {
  const Bytes bytes = bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

std::string text_of_message(const std::vector<std::byte>& message) {
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

class Clusters : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_no_ucx(); !why.empty()) GTEST_SKIP() << why;
    set_log_level(LogLevel::kError);
  }

  ClusterConfig config(int num_nodes, int node_rank) const {
    return {.num_nodes = num_nodes,
            .node_rank = node_rank,
            .address = address_,
            .key = key_,
            .facts = json::Value{{"version", "1"}},
            .silence = milliseconds(kPeerSilenceMs),
            .start_limit = milliseconds(20'000)};
  }

  // All of them in this process.
  std::vector<std::unique_ptr<Cluster>> meet_all(int num_nodes) {
    std::vector<std::future<std::unique_ptr<Cluster>>> coming;
    for (int node = 0; node < num_nodes; ++node)
      coming.push_back(std::async(std::launch::async, [this, num_nodes, node] {
        return std::make_unique<Cluster>(config(num_nodes, node));
      }));
    std::vector<std::unique_ptr<Cluster>> clusters;
    for (auto& one : coming) clusters.push_back(one.get());
    return clusters;
  }

  static std::string complaint(const ClusterConfig& config) {
    try {
      const Cluster cluster(config);
    } catch (const StartupError& error) {
      return error.what();
    }
    return "";
  }

  // What a receiver hears, and after how many seconds.
  static std::pair<std::string, double> failure_of(Link& link) {
    const Stopwatch watch;
    try {
      link.receive(Link::kResults);
    } catch (const LinkFailure& failure) {
      return {failure.what(), watch.seconds()};
    }
    return {"", watch.seconds()};
  }

  // A link to a peer's process that answers.
  static void expect_answer(Link& link) {
    link.send(Link::kPlans, message_of("a plan"));
    EXPECT_EQ(text_of_message(link.receive(Link::kResults)), "a plan");
  }

  std::string address_ = free_address();
  std::string key_ = std::string(32, 'k');
};

TEST_F(Clusters, bring_messages_between_every_two_nodes) {
  const auto clusters = meet_all(4);
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to)
      if (from != to)
        clusters[static_cast<size_t>(from)]->link(to).send(
            Link::kFirstGroup, message_of(std::to_string(from) + " to " + std::to_string(to)));
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to)
      if (from != to) {
        EXPECT_EQ(text_of_message(
                      clusters[static_cast<size_t>(to)]->link(from).receive(Link::kFirstGroup)),
                  std::to_string(from) + " to " + std::to_string(to));
      }
}

TEST_F(Clusters, bring_messages_of_any_size_whole_and_in_order) {
  const auto clusters = meet_all(2);
  std::mt19937_64 rng(1);
  std::vector<std::vector<std::byte>> messages;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{8000}, size_t{70'000},
                             size_t{5'000'000}, size_t{3}}) {
    messages.emplace_back(bytes);
    for (std::byte& byte : messages.back()) byte = static_cast<std::byte>(rng() & 0xff);
  }
  for (int round = 0; round < 3; ++round)
    for (const auto& message : messages) clusters[0]->link(1).send(Link::kPlans, message);
  for (int round = 0; round < 3; ++round)
    for (const auto& message : messages)
      ASSERT_EQ(clusters[1]->link(0).receive(Link::kPlans), message);
  EXPECT_FALSE(clusters[1]->link(0).receive_for(Link::kPlans, milliseconds(10)));
}

TEST_F(Clusters, take_from_several_threads_at_once) {
  const auto clusters = meet_all(2);
  constexpr int kMessages = 500;
  std::vector<std::thread> threads;
  for (uint32_t channel = 1; channel < 4; ++channel) {
    threads.emplace_back([&, channel] {
      for (int i = 0; i < kMessages; ++i)
        clusters[0]->link(1).send(channel, message_of(std::to_string(i)));
    });
    threads.emplace_back([&, channel] {
      for (int i = 0; i < kMessages; ++i)
        ASSERT_EQ(text_of_message(clusters[1]->link(0).receive(channel)), std::to_string(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Clusters, live_while_nobody_says_anything) {
  const auto clusters = meet_all(2);
  std::this_thread::sleep_for(milliseconds(2 * kPeerSilenceMs));
  EXPECT_EQ(clusters[0]->link(1).failure(), "");
  EXPECT_EQ(clusters[1]->link(0).failure(), "");
}

TEST_F(Clusters, hear_why_a_link_was_given_up) {
  const auto clusters = meet_all(2);
  clusters[1]->link(0).fail("rank 3 stands still");
  EXPECT_THAT(failure_of(clusters[0]->link(1)).first,
              AllOf(HasSubstr("node 1 at 127.0.0.1:"), HasSubstr("rank 3 stands still")));
  EXPECT_EQ(clusters[1]->link(0).failure(), "rank 3 stands still");
}

TEST_F(Clusters, hear_why_a_node_leaves) {
  auto clusters = meet_all(3);
  clusters[0]->leave("its service ends");
  EXPECT_THAT(failure_of(clusters[2]->link(0)).first, HasSubstr("node 0 at 127.0.0.1:"));
  EXPECT_THAT(clusters[2]->link(0).failure(), HasSubstr("its service ends"));
  clusters[1].reset();
  EXPECT_THAT(failure_of(clusters[2]->link(1)).first, HasSubstr("it has ended"));
}

TEST_F(Clusters, keep_what_was_sent_before_a_node_left) {
  auto clusters = meet_all(2);
  std::vector<std::byte> large(3'000'000, std::byte{7});
  clusters[0]->link(1).send(Link::kPlans, large);
  clusters[0].reset();
  EXPECT_EQ(clusters[1]->link(0).receive(Link::kPlans), large);
}

// Longer than a node waits for a word once it is connected.
TEST_F(Clusters, meet_though_the_first_node_comes_seconds_after_another) {
  auto early =
      std::async(std::launch::async, [this] { return std::make_unique<Cluster>(config(2, 1)); });
  std::this_thread::sleep_for(milliseconds(5'500));
  Cluster head(config(2, 0));
  const std::unique_ptr<Cluster> other = early.get();
  head.link(1).send(Link::kPlans, message_of("a plan"));
  EXPECT_EQ(text_of_message(other->link(0).receive(Link::kPlans)), "a plan");
}

class ClusterOfProcesses : public Clusters {
 protected:
  ClusterOfProcesses() { key_.clear(); }
};

TEST_F(ClusterOfProcesses, notices_at_once_that_one_was_killed) {
  PeerProcess peer(address_, 2, 1);
  Cluster cluster(config(2, 0));
  expect_answer(cluster.link(1));
  peer.send_signal(SIGKILL);
  const auto [why, seconds] = failure_of(cluster.link(1));
  EXPECT_THAT(why, AllOf(HasSubstr("node 1 at 127.0.0.1:"),
                         HasSubstr("closed its connection: its process has ended")));
  EXPECT_LT(seconds, 1);
}

TEST_F(ClusterOfProcesses, notices_one_that_was_stopped) {
  PeerProcess peer(address_, 2, 1);
  Cluster cluster(config(2, 0));
  expect_answer(cluster.link(1));
  peer.send_signal(SIGSTOP);
  const auto [why, seconds] = failure_of(cluster.link(1));
  EXPECT_THAT(why, HasSubstr("was silent for 1000 ms"));
  EXPECT_GT(seconds, 0.5);
  EXPECT_LT(seconds, 3);
}

TEST_F(ClusterOfProcesses, ends_with_the_one_that_has_the_service) {
  PeerProcess one(address_, 3, 1), two(address_, 3, 2);
  {
    Cluster cluster(config(3, 0));
    expect_answer(cluster.link(1));
    expect_answer(cluster.link(2));
  }
  EXPECT_EQ(one.wait(), 0);
  EXPECT_EQ(two.wait(), 0);
}

class ClusterStart : public Clusters {
 protected:
  // What node 0 and node 1 complain of.
  std::pair<std::string, std::string> complaints(const ClusterConfig& head,
                                                 const ClusterConfig& other) {
    auto first = std::async(std::launch::async, [&] { return complaint(head); });
    const std::string second = complaint(other);
    return {first.get(), second};
  }
};

TEST_F(ClusterStart, is_refused_where_facts_differ) {
  ClusterConfig other = config(2, 1);
  (*other.facts)["version"] = "2";
  const auto [head, node] = complaints(config(2, 0), other);
  EXPECT_THAT(head, HasSubstr("node 1 at 127.0.0.1:"));
  EXPECT_THAT(head,
              HasSubstr("does not agree with node 0: version: node 0 has \"1\", node 1 has \"2\""));
  EXPECT_EQ(node, head);
}

TEST_F(ClusterStart, is_refused_where_the_number_of_nodes_differs) {
  const auto [head, node] = complaints(config(2, 0), config(3, 2));
  EXPECT_THAT(head, HasSubstr("nnodes: node 0 has 2, node 2 has 3"));
  EXPECT_EQ(node, head);
}

TEST_F(ClusterStart, is_refused_to_another_key) {
  ClusterConfig head = config(2, 0), other = config(2, 1);
  head.start_limit = milliseconds(1000);
  other.key = std::string(32, 'x');
  const auto [at_head, at_node] = complaints(head, other);
  EXPECT_EQ(at_node,
            "node 0 at " + address_ + " has another --cluster-key-file, or one of both has none");
  EXPECT_EQ(at_head, "no word from node 1 within the start's time");
}

TEST_F(ClusterStart, is_refused_where_the_port_is_in_use) {
  const Socket other_program = Socket::listen(*resolve(address_));
  EXPECT_EQ(complaint(config(2, 0)), "--dist-init-addr " + address_ + ": cannot listen on " +
                                         address_ + ": Address already in use");
}

TEST_F(ClusterStart, needs_a_key_where_others_reach_the_port) {
  for (const int node : {0, 1}) {
    ClusterConfig open = config(2, node);
    open.key.clear();
    open.address = "192.0.2.1:29500";
    EXPECT_EQ(complaint(open),
              "--dist-init-addr 192.0.2.1:29500: 192.0.2.1:29500 is reached by others than this "
              "host, which needs "
              "--cluster-key-file");
  }
}

TEST_F(ClusterStart, ends_when_nobody_comes) {
  ClusterConfig lonely = config(3, 0);
  lonely.start_limit = milliseconds(300);
  EXPECT_EQ(complaint(lonely), "no word from node 1, node 2 within the start's time");
  lonely.node_rank = 1;
  EXPECT_EQ(complaint(lonely), "node 0 at " + address_ + " did not answer within the start's time");
}

TEST_F(ClusterStart, names_a_node_that_is_there_twice) {
  auto head =
      std::async(std::launch::async, [&] { return std::make_unique<Cluster>(config(3, 0)); });
  std::vector<std::future<std::string>> twins;
  for (int i = 0; i < 2; ++i)
    twins.push_back(std::async(std::launch::async, [&] { return complaint(config(3, 1)); }));
  // One of both is told, the other waits for node 2.
  while (twins[0].wait_for(milliseconds(5)) != std::future_status::ready &&
         twins[1].wait_for(milliseconds(5)) != std::future_status::ready) {
  }
  EXPECT_EQ(complaint(config(3, 2)), "");
  std::vector<std::string> heard = {twins[0].get(), twins[1].get()};
  std::sort(heard.begin(), heard.end());
  EXPECT_EQ(heard[0], "");
  EXPECT_THAT(heard[1], HasSubstr("node 1 is there already: node 1 at 127.0.0.1:"));
  head.get();
}

// Whoever scans ports, or talks HTTP to this one, while the nodes meet.
TEST_F(ClusterStart, takes_no_notice_of_strangers) {
  auto head =
      std::async(std::launch::async, [&] { return std::make_unique<Cluster>(config(2, 0)); });
  std::mt19937_64 rng(5);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int round = 0; round < 50; ++round) {
    std::optional<Socket> stranger;
    while (!stranger) stranger = Socket::connect(*resolve(address_), end);
    std::vector<std::byte> noise(48 + rng() % 200);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(rng() & 0xff);
    if (round % 2 == 0) {
      const Bytes magic = bytes_of("FathomN1");
      std::copy(magic.begin(), magic.end(), noise.begin());
    }
    stranger->write(noise, end);
  }
  Cluster node(config(2, 1));
  const auto host = head.get();
  host->link(1).send(Link::kPlans, message_of("after all"));
  EXPECT_EQ(text_of_message(node.link(0).receive(Link::kPlans)), "after all");
}

}  // namespace
}  // namespace fathom::nodes
