// What every link promises, of the one within a process: order on a channel, channels apart, and how it fails.

#include "comm/link_pair.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace fathom::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

std::vector<std::byte> link_message(int value) { return {std::byte(value)}; }

TEST(LinkPair, brings_messages_in_the_order_of_their_channel) {
  LinkPair pair("node 0", "node 1");
  pair.of(0).send(Link::kPlans, link_message(1));
  pair.of(0).send(Link::kMasks, link_message(2));
  pair.of(0).send(Link::kPlans, link_message(3));
  pair.of(1).send(Link::kPlans, link_message(4));
  EXPECT_THAT(pair.of(1).receive(Link::kMasks), ElementsAre(std::byte(2)));
  EXPECT_THAT(pair.of(1).receive(Link::kPlans), ElementsAre(std::byte(1)));
  EXPECT_THAT(pair.of(1).receive(Link::kPlans), ElementsAre(std::byte(3)));
  EXPECT_THAT(pair.of(0).receive(Link::kPlans), ElementsAre(std::byte(4)));
  EXPECT_EQ(pair.of(0).receive_for(Link::kPlans, milliseconds(1)), std::nullopt);
}

TEST(LinkPair, wakes_who_waits_for_a_message) {
  LinkPair pair("node 0", "node 1");
  std::thread sender([&] {
    std::this_thread::sleep_for(milliseconds(20));
    pair.of(0).send(Link::kResults, {});
  });
  EXPECT_TRUE(pair.of(1).receive(Link::kResults).empty());
  sender.join();
}

TEST(LinkPair, fails_on_both_ends_behind_what_had_come) {
  LinkPair pair("node 0", "node 1");
  pair.of(0).send(Link::kPlans, link_message(1));
  std::thread waiting([&] { EXPECT_THROW(pair.of(0).receive(Link::kResults), LinkFailure); });
  pair.of(0).fail("rank 1 stands still");
  pair.of(0).fail("another reason");
  pair.of(1).fail("a later one");
  waiting.join();
  EXPECT_EQ(pair.of(0).failure(), "rank 1 stands still");
  EXPECT_EQ(pair.of(1).failure(), "node 0: rank 1 stands still");
  pair.of(1).send(Link::kResults, link_message(2));
  EXPECT_THROW(pair.of(0).receive_for(Link::kResults, milliseconds(1)), LinkFailure);
  EXPECT_THAT(pair.of(1).receive(Link::kPlans), ElementsAre(std::byte(1)));
  EXPECT_THROW(pair.of(1).receive(Link::kPlans), LinkFailure);
}

}  // namespace
}  // namespace fathom::comm
