#include "kv_events/lane_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cache/radix_tree.h"
#include "tests/kv_events/block_index.h"

namespace fathom::kv_events {
namespace {

using testing::BlockIndex;
using testing::MessagePackReader;

Event stored_event(uint64_t parent, std::vector<uint64_t> names, const std::string& salt = "\n") {
  Event event{.kind = Event::Kind::kStored,
              .salt = salt,
              .parent = parent,
              .names = std::move(names),
              .block_tokens = 2};
  for (const uint64_t name : event.names) {
    event.tokens.push_back(static_cast<int32_t>(name % 1000));
    event.tokens.push_back(1 << 17);
  }
  return event;
}

Event removed_event(uint64_t name) { return {.kind = Event::Kind::kRemoved, .names = {name}}; }

// As JSON, without the time.
std::string batch_of(LaneEvents& events) {
  const std::string payload = events.take_batch(1.5);
  if (payload.empty()) return "";
  const json::Value batch = MessagePackReader(payload).value();
  EXPECT_EQ(batch[0], 1.5);
  return json::dump(batch[1]) + " of " + json::dump(batch[2]);
}

TEST(KvLaneEvents, are_the_arrays_that_vllm_publishes) {
  LaneEvents events(3);
  EXPECT_EQ(batch_of(events), "");
  events.add({.kind = Event::Kind::kCleared});
  EXPECT_TRUE(events.add(stored_event(0, {7, UINT64_MAX})));
  EXPECT_TRUE(events.add(stored_event(UINT64_MAX, {300})));
  events.add(removed_event(300));
  events.add(removed_event(UINT64_MAX));
  EXPECT_EQ(events.num_events(), 4);
  EXPECT_EQ(
      batch_of(events),
      R"([["AllBlocksCleared"],)"
      R"(["BlockStored",[7,18446744073709551615],null,[7,131072,615,131072],2,null,"GPU",null],)"
      R"(["BlockStored",[300],18446744073709551615,[300,131072],2,null,"GPU",null],)"
      R"(["BlockRemoved",[300,18446744073709551615],"GPU"]] of 3)");
  EXPECT_EQ(events.num_blocks(), 1);
  EXPECT_EQ(batch_of(events), "");
}

TEST(KvLaneEvents, name_the_salt_of_blocks_that_not_every_prompt_finds) {
  LaneEvents events(0);
  events.add(stored_event(0, {1, 2}, "\nmine"));
  events.add(stored_event(2, {3}, "\nmine"));
  events.add(stored_event(0, {4}, "team a\n"));
  EXPECT_EQ(batch_of(events),
            R"([["BlockStored",[1,2],null,[1,131072,2,131072],2,null,"GPU",null,[["mine"],null]],)"
            R"(["BlockStored",[3],2,[3,131072],2,null,"GPU",null,[null]],)"
            R"(["BlockStored",[4],null,[4,131072],2,null,"GPU",null,[["team a\n"]]]] of 0)");
}

TEST(KvLaneEvents, tell_the_first_and_the_last_of_a_name) {
  LaneEvents events(0);
  events.add(stored_event(0, {1, 2}));
  events.add(stored_event(0, {1, 2, 3}));  // the same tokens, and others behind them
  events.add(removed_event(2));
  events.add(removed_event(1));
  EXPECT_EQ(batch_of(events),
            R"([["BlockStored",[1,2],null,[1,131072,2,131072],2,null,"GPU",null],)"
            R"(["BlockStored",[3],2,[3,131072],2,null,"GPU",null]] of 0)");
  events.add(removed_event(3));
  events.add(removed_event(2));
  EXPECT_EQ(batch_of(events), R"([["BlockRemoved",[3,2],"GPU"]] of 0)");
}

TEST(KvLaneEvents, never_tell_of_blocks_that_follow_a_lost_one) {
  LaneEvents events(0);
  events.add(stored_event(0, {1, 2}));
  events.add({.kind = Event::Kind::kCleared});
  EXPECT_FALSE(events.add(stored_event(2, {3})));
  events.add(removed_event(3));
  events.add(removed_event(2));
  batch_of(events);
  EXPECT_TRUE(events.add(stored_event(0, {1})));
  EXPECT_EQ(batch_of(events), R"([["BlockStored",[1],null,[1,131072],2,null,"GPU",null]] of 0)");
}

// Hands on what it hears.
class Relay : public cache::BlockListener {
 public:
  explicit Relay(LaneEvents& to) : to_(to) {}
  void stored(int /*cache*/, const cache::StoredBlocks& blocks) override {
    EXPECT_TRUE(to_.add({.kind = Event::Kind::kStored,
                         .salt = std::string(blocks.salt),
                         .parent = blocks.parent,
                         .names = {blocks.names.begin(), blocks.names.end()},
                         .tokens = {blocks.tokens.begin(), blocks.tokens.end()},
                         .block_tokens = blocks.block_tokens}));
  }
  void removed(int /*cache*/, uint64_t name) override { to_.add(removed_event(name)); }
  void cleared(int /*cache*/) override { to_.add({.kind = Event::Kind::kCleared}); }

 private:
  LaneEvents& to_;
};

// Prompts of few different blocks over a small cache, which forgets some and is emptied now and then.
TEST(KvLaneEvents, let_an_index_say_what_the_cache_would) {
  constexpr int kBlock = 4, kBlocks = 40;
  for (const int lookahead : {0, 1}) {
    LaneEvents events(0);
    Relay relay(events);
    cache::BlockPool pool({.num_blocks = kBlocks});
    cache::RadixTree tree(
        {&pool}, {.block_tokens = kBlock, .lookahead_tokens = lookahead, .listener = &relay});
    BlockIndex index;
    std::mt19937_64 random(7);
    const auto prompt = [&] {
      std::vector<int32_t> tokens(1 + random() % 30);
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = i % kBlock == 0 ? static_cast<int32_t>(random() % 2) : 9;
      return tokens;
    };
    const auto salt = [&] { return random() % 4 == 0 ? std::string("\ns") : std::string("\n"); };
    int num_hits = 0;
    for (int turn = 0; turn < 4000; ++turn) {
      const std::vector<int32_t> tokens = prompt();
      const std::string owner = salt();
      {
        cache::RadixTree::Pin pin = tree.match(owner, tokens, std::ssize(tokens));
        const int wanted = static_cast<int>(std::ssize(tokens)) / kBlock - pin.num_blocks();
        tree.evict(std::max(0, wanted - pool.num_free()));
        std::vector<cache::BlockPool::Lease> leases;
        leases.push_back(pool.lease(wanted).value());
        tree.publish(pin, owner, tokens, leases);
      }
      if (random() % 200 == 0) tree.clear();
      if (random() % 3 == 0) continue;  // a batch holds several turns
      if (std::string payload = events.take_batch(0); !payload.empty()) index.read(payload);
      ASSERT_EQ(index.problem(), "");
      const std::vector<int32_t> asked = prompt();
      const std::string of = salt();
      const int64_t known = index.num_cached_tokens(of.substr(1), asked);
      const int64_t hit = tree.match_length(of, asked);
      num_hits += hit > 0 ? 1 : 0;
      if (lookahead == 0) {
        ASSERT_EQ(known, hit);
        ASSERT_EQ(static_cast<int>(index.size()), tree.num_blocks());
      } else {
        ASSERT_GE(known, hit);  // the last block may have been followed by another token
      }
    }
    EXPECT_GT(num_hits, 1000);
    EXPECT_THAT(index.kinds(), ::testing::HasSubstr("A"));
    EXPECT_THAT(index.kinds(), ::testing::HasSubstr("R"));
  }
}

}  // namespace
}  // namespace fathom::kv_events
