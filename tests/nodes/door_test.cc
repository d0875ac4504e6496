#include "nodes/door.h"
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <random>

namespace fathom::nodes {
namespace {

using ::testing::HasSubstr;

Deadline soon(int ms = 5000) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
}

struct Ends {
  Ends() {
    int both[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
    head = Socket(both[0]);
    node = Socket(both[1]);
  }
  Socket head, node;
};

template <class Function>
std::string complaint(Function function) {
  try {
    function();
  } catch (const SocketError& error) {
    return error.what();
  }
  return "";
}

// What each side complains of.
std::pair<std::string, std::string> meet_with(const std::string& head_key,
                                              const std::string& node_key) {
  Ends ends;
  auto head = std::async(std::launch::async, [&, end = std::move(ends.head)]() mutable {
    return complaint([&] { Door::admit(std::move(end), head_key, soon()); });
  });
  // The connection closes with the node that has given up.
  const std::string node =
      complaint([&] { Door::enter(std::move(ends.node), node_key, 1, soon()); });
  return {head.get(), node};
}

TEST(Door, lets_both_sides_speak_who_have_the_key) {
  Ends ends;
  auto head = std::async(std::launch::async, [&] {
    Door door = Door::admit(std::move(ends.head), "the key", soon());
    const json::Value heard = door.hear(soon());
    door.tell({{"answer", heard["question"]}}, soon());
    door.tell({{"more", true}}, soon());
    return door.node_rank();
  });
  Door door = Door::enter(std::move(ends.node), "the key", 3, soon());
  door.tell({{"question", "who"}}, soon());
  EXPECT_EQ(json::dump(door.hear(soon())), R"({"answer":"who"})");
  EXPECT_EQ(json::dump(door.hear(soon())), R"({"more":true})");
  EXPECT_EQ(head.get(), 3);
}

TEST(Door, is_shut_to_another_key) {
  for (const auto& [head_key, node_key] :
       {std::pair<std::string, std::string>{"one key", "another key"},
        {"a key", ""},
        {"", "a key"}}) {
    const auto [head, node] = meet_with(head_key, node_key);
    EXPECT_THAT(head, HasSubstr("no proof that it has the --cluster-key-file"));
    EXPECT_THAT(node, HasSubstr("has another --cluster-key-file, or one of both has none"));
  }
  EXPECT_EQ(meet_with("", "").first, "");
}

TEST(Door, is_shut_to_what_is_no_node) {
  Ends ends;
  ends.node.write(bytes_of("GET / HTTP/1.1\r\nHost: somebody\r\nAccept: everything\r\n\r\n"),
                  soon());
  EXPECT_THAT(complaint([&] { Door::admit(std::move(ends.head), "key", soon()); }),
              HasSubstr("is no node of Fathom"));
}

TEST(Door, names_another_version_of_the_protocol) {
  Ends ends;
  ends.node.write(bytes_of("FathomN9" + std::string(40, '\1')), soon());
  EXPECT_THAT(complaint([&] { Door::admit(std::move(ends.head), "key", soon()); }),
              HasSubstr("\"FathomN9\" instead of \"FathomN1\""));
}

TEST(Door, does_not_wait_for_who_says_nothing) {
  Ends ends;
  EXPECT_THAT(complaint([&] { Door::admit(std::move(ends.head), "key", soon(50)); }),
              HasSubstr("does not answer"));
}

// Whoever sits between two nodes and changes or repeats what they say.
TEST(Door, refuses_words_that_were_changed_on_the_way) {
  std::mt19937_64 rng(4);
  for (int round = 0; round < 40; ++round) {
    Ends left, right;
    auto head = std::async(std::launch::async, [&] {
      Door door = Door::admit(std::move(left.head), "key", soon());
      return complaint([&] { door.hear(soon()); });
    });
    auto middle = std::async(std::launch::async, [&] {
      const auto pass = [](Socket& from, Socket& to, size_t bytes, size_t change) {
        std::vector<std::byte> buffer(bytes);
        from.read(buffer, soon());
        if (change < bytes) buffer[change] ^= std::byte{1};
        to.write(buffer, soon());
      };
      constexpr size_t kUnchanged = ~size_t{0};
      pass(right.head, left.node, 48, kUnchanged);  // hello
      pass(left.node, right.head, 80, kUnchanged);  // hello and proof
      pass(right.head, left.node, 32, kUnchanged);  // proof
      const size_t words = 4 + 32 + 15;             // length, tag, {"number":4242}
      // Not in the length: a longer message is waited for.
      pass(right.head, left.node, words, 4 + rng() % (words - 4));
    });
    Door door = Door::enter(std::move(right.node), "key", 1, soon());
    door.tell({{"number", 4242}}, soon());
    EXPECT_THAT(head.get(), HasSubstr("changed on the way")) << round;
    middle.get();
  }
}

TEST(Addresses, have_the_form_host_and_port) {
  EXPECT_EQ(resolve("127.0.0.1:29500")->text(), "127.0.0.1:29500");
  EXPECT_TRUE(resolve("127.0.0.1:29500")->is_loopback());
  EXPECT_EQ(resolve("[::1]:80")->text(), "[::1]:80");
  EXPECT_TRUE(resolve("[::1]:80")->is_loopback());
  EXPECT_FALSE(resolve("192.0.2.1:80")->is_loopback());
  EXPECT_EQ(interface_of(*resolve("127.0.0.1:80")), "lo");
  for (const char* wrong :
       {"", "127.0.0.1", "host:", ":80", "host:0", "host:65536", "host:8o", "::1:80"})
    EXPECT_THAT(complaint([&] { (void)resolve(wrong); }), HasSubstr("must be HOST:PORT")) << wrong;
}

}  // namespace
}  // namespace fathom::nodes
