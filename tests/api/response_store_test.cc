#include "api/responses/response_store.h"

#include <gtest/gtest.h>

namespace fathom::api {
namespace {

StoredResponse stored_body(size_t num_bytes) {
  return {.messages = {}, .body = std::string(num_bytes, 'x')};
}

TEST(ResponseStore, keeps_what_was_used_last) {
  ResponseStore store({.max_responses = 3, .max_bytes = 1 << 20});
  for (const char* id : {"a", "b", "c"}) store.put("key", id, stored_body(1));
  EXPECT_NE(store.find("key", "a"), nullptr);
  store.put("key", "d", stored_body(1));
  EXPECT_EQ(store.find("key", "b"), nullptr);
  for (const char* id : {"a", "c", "d"}) EXPECT_NE(store.find("key", id), nullptr) << id;
  EXPECT_EQ(store.counts().num_responses, 3);
  EXPECT_EQ(store.counts().num_stored, 4);
  EXPECT_EQ(store.counts().num_evicted, 1);
}

TEST(ResponseStore, holds_no_more_bytes_than_it_may) {
  ResponseStore store({.max_responses = 100, .max_bytes = 100'000});
  for (int i = 0; i < 50; ++i) {
    store.put("key", std::to_string(i), stored_body(10'000));
    EXPECT_LE(store.counts().num_bytes, 100'000);
  }
  EXPECT_GE(store.counts().num_responses, 8);
  EXPECT_NE(store.find("key", "49"), nullptr);
  StoredResponse talk = stored_body(1);
  talk.messages.push_back(
      {.role = "assistant",
       .content = std::string(60'000, 'x'),
       .tool_calls = {{.id = "", .name = "f", .arguments = std::string(60'000, 'y')}}});
  store.put("key", "large", std::move(talk));
  EXPECT_EQ(store.find("key", "large"), nullptr);
  EXPECT_EQ(store.counts().num_bytes, 0);
  EXPECT_EQ(store.counts().num_responses, 0);
}

TEST(ResponseStore, whoever_holds_the_most_makes_room) {
  ResponseStore store({.max_responses = 10, .max_bytes = 100'000});
  for (const char* id : {"1", "2"}) store.put("bob", id, stored_body(1));
  for (int i = 0; i < 50; ++i) store.put("alice", std::to_string(i), stored_body(1));
  for (const char* id : {"1", "2"}) EXPECT_NE(store.find("bob", id), nullptr) << id;
  EXPECT_NE(store.find("alice", "49"), nullptr);
  EXPECT_EQ(store.find("alice", "41"), nullptr);
  store.put("alice", "large", stored_body(200'000));
  EXPECT_EQ(store.find("alice", "large"), nullptr);
  for (const char* id : {"1", "2"}) EXPECT_NE(store.find("bob", id), nullptr) << id;
}

TEST(ResponseStore, one_that_is_erased_while_it_is_made_is_gone) {
  ResponseStore store({.max_responses = 10, .max_bytes = 100'000});
  std::shared_ptr<void> making = store.begin("alice", "a");
  EXPECT_FALSE(store.erase("bob", "a"));
  EXPECT_TRUE(store.erase("alice", "a"));
  EXPECT_FALSE(store.erase("alice", "a"));
  store.put("alice", "a", stored_body(1));
  EXPECT_EQ(store.find("alice", "a"), nullptr);
  making = store.begin("alice", "b");
  store.put("alice", "b", stored_body(1));
  EXPECT_TRUE(store.erase("alice", "b"));
  EXPECT_EQ(store.find("alice", "b"), nullptr);
  making = nullptr;
  store.put("alice", "a", stored_body(1));
  EXPECT_NE(store.find("alice", "a"), nullptr);
}

TEST(ResponseStore, what_was_found_outlives_its_place_and_others_cannot_find_it) {
  ResponseStore store({.max_responses = 3, .max_bytes = 1 << 20});
  store.put("alice", "a", stored_body(5));
  const auto found = store.find("alice", "a");
  EXPECT_EQ(store.find("bob", "a"), nullptr);
  EXPECT_FALSE(store.erase("bob", "a"));
  EXPECT_TRUE(store.erase("alice", "a"));
  EXPECT_FALSE(store.erase("alice", "a"));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->body, "xxxxx");
  EXPECT_EQ(store.counts().num_bytes, 0);
}

TEST(ResponseStore, an_id_that_comes_again_is_replaced) {
  ResponseStore store({.max_responses = 3, .max_bytes = 1 << 20});
  store.put("key", "a", stored_body(5));
  store.put("key", "a", stored_body(7));
  EXPECT_EQ(store.counts().num_responses, 1);
  EXPECT_EQ(store.find("key", "a")->body.size(), 7U);
}

}  // namespace
}  // namespace fathom::api
