// A node without a planner, on simulated ranks: it takes what node 0's runner sends, and refuses everything else as a
// whole, with a reason and without a crash.

#include "runner/ranks/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

#include "comm/link_pair.h"
#include "runner/ranks/remote_runner.h"
#include "runner/sim/sim_runner.h"

namespace fathom::runner {
namespace {

using comm::Link;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr SimConfig kFollowed = {.vocab_size = 1000};

core::Batch followed_batch(int64_t step_id) {
  core::Batch batch{.step_id = step_id};
  if (step_id == 0) {
    batch.admissions.push_back({.slot = 0, .prompt = {5, 6, 7}, .seed = 1});
    batch.block_appends.push_back({.slot = 0, .kv_group = 0, .block_ids = {3}});
    batch.slices.push_back({.slot = 0, .num_tokens = 3, .tokens = {5, 6, 7}});
  } else {
    batch.slices.push_back({.slot = 0});
  }
  return batch;
}

// What a follower of one simulated rank ends with, of which `head` does the other end.
std::string followed(const std::function<void(Link& link, SimRunner& like)>& head) {
  comm::LinkPair pair("node 0", "node 1");
  SimRunner rank(kFollowed), like(kFollowed);
  Follower follower(pair.of(1), {{.lane = 0, .first_rank = 1, .runners = {&rank}}}, 1);
  std::string why;
  std::thread node([&] { why = follower.run(); });
  head(pair.of(0), like);
  node.join();
  return why;
}

void end_node(Link& link) { link.send(Link::kPlans, encode({.kind = NodeMessageKind::kNodeEnds})); }

TEST(Follower, computes_what_the_other_node_submits_until_it_ends) {
  EXPECT_EQ(followed([](Link& link, SimRunner& like) {
              {
                RemoteRunner runner(link, {.like = &like, .on_failure = [](const std::string& why) {
                                             ADD_FAILURE() << why;
                                           }});
                for (int64_t step = 0; step < 4; ++step) {
                  runner.submit(followed_batch(step));
                  like.submit(followed_batch(step));
                  EXPECT_EQ(runner.wait().slices.at(0).tokens.at(0).token,
                            like.wait().slices.at(0).tokens.at(0).token);
                }
              }
              end_node(link);
            }),
            "");
}

TEST(Follower, names_what_is_no_plan) {
  const auto plan = [](int64_t step_id, int32_t lane) {
    return encode({.kind = NodeMessageKind::kPlan,
                   .lane = lane,
                   .payload = core::encode(followed_batch(step_id))});
  };
  const std::pair<Bytes, const char*> all[] = {
      {plan(1, 0), "a plan is of step 1, expected step 0"},
      {plan(0, 3), "a message is for lane 3, of which no rank is here"},
      {encode({.kind = NodeMessageKind::kMasks}), "what came is no plan"},
      {Bytes(7), "a message of 7 bytes is none of a node's"}};
  for (const auto& message : all)
    EXPECT_THAT(followed([&](Link& link, SimRunner&) { link.send(Link::kPlans, message.first); }),
                HasSubstr(message.second));
}

TEST(Follower, refuses_masks_that_no_step_wants) {
  EXPECT_THAT(
      followed([](Link& link, SimRunner&) {
        link.send(Link::kPlans, encode({.kind = NodeMessageKind::kPlan,
                                        .payload = core::encode(followed_batch(0))}));
        const core::StepMasks masks{
            .step_id = 0, .masks = {{.slice_idx = 0, .words = std::vector<uint64_t>(16, ~0ull)}}};
        link.send(Link::kMasks,
                  encode({.kind = NodeMessageKind::kMasks, .payload = core::encode(masks)}));
      }),
      "masks came that their step does not want");
}

// Of a batch in which one byte or a piece is another; what still is a batch of the lane is not among them.
TEST(Follower, refuses_what_is_no_batch_of_its_lane) {
  std::mt19937_64 rng(3);
  const core::StepLimits limits = step_limits(SimRunner(kFollowed).info(), 0, 1);
  int num_refused = 0;
  for (int i = 0; i < 300; ++i) {
    Bytes bytes = core::encode(followed_batch(0));
    bytes[rng() % bytes.size()] = std::byte(rng() % 256);
    if (i % 3 == 0) bytes.resize(rng() % bytes.size());
    if (core::decode_batch(bytes, limits)) continue;
    const std::string why = followed([&](Link& link, SimRunner&) {
      link.send(Link::kPlans, encode({.kind = NodeMessageKind::kPlan, .payload = bytes}));
    });
    EXPECT_NE(why, "");
    ++num_refused;
  }
  EXPECT_GT(num_refused, 100);
}

}  // namespace
}  // namespace fathom::runner
