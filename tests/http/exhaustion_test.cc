// What a server does when descriptors run out, and when clients send more, or less, than they should.

#include <gtest/gtest.h>

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "http/key_store.h"
#include "http/response_writer.h"
#include "tests/cpu_time.h"
#include "tests/http/raw_connection.h"
#include "tests/http/sample_server.h"
#include "tests/sanitized.h"

namespace fathom::http::tests {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string get_request(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n";
}

// Leaves the process exactly one free descriptor until it goes.
class ScarceDescriptors {
 public:
  ScarceDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const rlimit scarce = {.rlim_cur = static_cast<rlim_t>(fd) + 10, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &scarce);
    for (; fd >= 0; fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) held_.push_back(fd);
    free_one();
  }
  ~ScarceDescriptors() {
    ::setrlimit(RLIMIT_NOFILE, &before_);
    while (!held_.empty()) free_one();
  }
  ScarceDescriptors(const ScarceDescriptors&) = delete;
  ScarceDescriptors& operator=(const ScarceDescriptors&) = delete;
  void free_one() {
    ::close(held_.back());
    held_.pop_back();
  }

 private:
  rlimit before_ = {};
  std::vector<int> held_;
};

TEST(Exhaustion, of_descriptors_pauses_accepting_and_leaves_streams_alone) {
  const auto events = std::make_shared<SampleEvents>();
  const auto server = sample_server(sample_config(), events);
  RawConnection stream(server->port());
  stream.send(get_request("/stream/hold"));
  ASSERT_TRUE(stream.wait_for("begun"));
  ASSERT_TRUE(eventually([&] { return events->num_held == 1; }));
  ExchangePtr held;
  {
    const std::lock_guard lock(events->mutex);
    held = events->held.front();
  }
  ScarceDescriptors scarce;
  // Takes the last descriptor; the kernel's queue holds its other end.
  RawConnection late(server->port());
  late.send(get_request("/hello"));
  ASSERT_TRUE(eventually([&] { return server->counters().accept_pauses > 0; }));
  held->post([held] { held->write("data: still here\n\n"); });
  EXPECT_TRUE(stream.wait_for("still here"));
  std::this_thread::sleep_for(milliseconds(300));
  // Ten tries a second, not a busy loop.
  EXPECT_LT(server->counters().accept_pauses.load(), 200);
  scarce.free_one();
  EXPECT_EQ(late.read_answer().body, "hello");
}

TEST(Exhaustion, by_half_sent_heads_ends_at_the_timeout_and_others_are_served) {
  ServerConfig config = sample_config();
  config.timeouts.header = milliseconds(500);
  config.timeouts.linger = milliseconds(100);
  const auto server = sample_server(std::move(config));
  const auto begin = steady_clock::now();
  std::vector<std::unique_ptr<RawConnection>> half_sent;
  for (int i = 0; i < 200; ++i) {
    half_sent.push_back(std::make_unique<RawConnection>(server->port()));
    half_sent.back()->send("GET /hello HTTP/1.1\r\nHost");
  }
  RawConnection good(server->port());
  for (int i = 0; i < 100; ++i) {
    good.send(get_request("/hello"));
    ASSERT_EQ(good.read_answer().body, "hello");
  }
  EXPECT_EQ(half_sent.back()->read_answer().status, 408);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(500));
  for (const auto& connection : half_sent) EXPECT_TRUE(connection->wait_closed());
}

TEST(Exhaustion, by_an_answer_that_is_not_taken_ends_at_the_write_stall) {
  ServerConfig config = sample_config();
  config.timeouts.write_stall = milliseconds(300);
  const auto server = sample_server(std::move(config));
  RawConnection stalled(server->port(), 4096);
  const std::string body(16 << 20, 'x');
  stalled.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) +
               "\r\n\r\n" + body);
  RawConnection good(server->port());
  good.send(get_request("/hello"));
  EXPECT_EQ(good.read_answer().body, "hello");
  const auto& num_stalled = server->counters().rejected[static_cast<size_t>(Rejection::kStalled)];
  EXPECT_TRUE(eventually([&] { return num_stalled == 1; }));
  EXPECT_TRUE(eventually([&] { return server->counters().backlog_bytes == 0; }));
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Sends the start and then the piece again and again; returns by how much resident memory grew at most.
int64_t growth_under(int port, const std::string& start, const std::string& piece, int64_t total) {
  RawConnection connection(port);
  connection.send(start);
  // What earlier tests freed would hide the growth.
  ::malloc_trim(0);
  const int64_t before = resident_bytes();
  int64_t most = before;
  for (int64_t sent = 0; sent < total && connection.send(piece);
       sent += static_cast<int64_t>(piece.size()))
    most = std::max(most, resident_bytes());
  most = std::max(most, resident_bytes());
  return most - before;
}

std::string repeated(const std::string& text, int num) {
  std::string result;
  for (int i = 0; i < num; ++i) result += text;
  return result;
}

TEST(Exhaustion, of_memory_by_a_million_chunks_or_endless_headers_does_not_happen) {
  const auto server = sample_server();
  growth_under(server->port(), get_request("/hello"), "", 0);
  const std::string post = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string head = "GET /hello HTTP/1.1\r\nHost: a\r\n";
  const int64_t by_chunks =
      growth_under(server->port(), post, repeated("1\r\nx\r\n", 10'000), 6'000'000);
  const int64_t by_headers =
      growth_under(server->port(), head, repeated("X: aaaaaaaaaaaa\r\n", 4'000), 100'000'000);
  const int64_t by_one_line =
      growth_under(server->port(), head + "X: ", std::string(64 << 10, 'a'), 100'000'000);
  std::printf("resident growth: %ld KiB by chunks, %ld KiB by headers, %ld KiB by one line\n",
              static_cast<long>(by_chunks >> 10), static_cast<long>(by_headers >> 10),
              static_cast<long>(by_one_line >> 10));
  EXPECT_EQ(server->counters().rejected[static_cast<size_t>(Rejection::kTooLarge)].load(), 3);
  if (kIsSanitized)
    GTEST_SKIP() << "resident memory means nothing under a sanitizer; to run it: make test";
  EXPECT_LE(by_chunks, 8 << 20);
  EXPECT_LE(by_headers, 8 << 20);
  EXPECT_LE(by_one_line, 8 << 20);
}

TEST(KeyStore, compares_all_keys_whichever_matches) {
  KeyStore keys;
  constexpr int kNumKeys = 1000;
  const auto key = [](int i) { return "key-number-" + std::to_string(i); };
  for (int i = 0; i < kNumKeys; ++i) ASSERT_TRUE(keys.add(key(i), KeyRole::kInference));
  for (int i = 0; i < kNumKeys; ++i) {
    ASSERT_NE(keys.find(key(i)), nullptr);
    EXPECT_EQ(keys.find(key(i))->name, "key-" + std::to_string(i + 1));
  }
  // The least of many times is that without interruptions. In turns, as a processor's speed changes.
  const std::array<std::string, 3> presented = {key(0), key(kNumKeys - 1), "key-number-none"};
  std::array<double, 3> least = {1e9, 1e9, 1e9};
  for (int i = 0; i < 300; ++i) {
    for (size_t k = 0; k < presented.size(); ++k) {
      const CpuStopwatch watch;
      keys.find(presented[k]);
      least[k] = std::min(least[k], watch.seconds());
    }
  }
  // A search that stopped at the first key would take a hundredth.
  EXPECT_GT(least[0] * 10, least[1]);
  EXPECT_GT(least[0] * 10, least[2]);
}

TEST(ResponseWriter, lets_no_value_begin_another_header) {
  Response response;
  response.content_type = "text/plain\r\nSet-Cookie: a";
  response.headers = {{"X-Echo", "a\r\n\r\nHTTP/1.1 200 OK\r\nX: y"}};
  const std::string answer = whole_answer(response, {.request_id = "b\r\nX-Id: c"});
  EXPECT_EQ(answer.find("\r\nSet-Cookie"), std::string::npos);
  EXPECT_EQ(answer.find("\r\nX-Id"), std::string::npos);
  EXPECT_EQ(answer.find("\r\n\r\n"), answer.size() - 4);
  response.headers = {{"X: a\r\nY", "b"}};
  EXPECT_DEATH(whole_answer(response, {}), "not a token");
}

// One request's status, by its bytes.
TEST(Strictness, covers_connection_lists_chunk_extensions_and_trailers) {
  const auto server = sample_server();
  const auto status_of = [&](const std::string& bytes) {
    RawConnection connection(server->port());
    connection.send(bytes);
    return connection.read_answer().status;
  };
  const std::string post = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* extension : {"", ";a", ";a=b", "; a=b;c", ";a=\"b c\";d"})
    EXPECT_EQ(status_of(post + "1" + extension + "\r\nx\r\n0\r\n\r\n"), 200) << extension;
  for (const char* extension : {";", ";=b", ";a=", ";a=?", ";a=\"b", ";a=\"\\\"\"", ";a b", " ;a"})
    EXPECT_EQ(status_of(post + "1" + extension + "\r\nx\r\n0\r\n\r\n"), 400) << extension;
  EXPECT_EQ(status_of(post + "0\r\nx-checksum: 1\r\n\r\n"), 200);
  for (const char* name : {"Transfer-Encoding", "Content-Length", "Host", "Authorization"})
    EXPECT_EQ(status_of(post + "0\r\n" + name + ": 1\r\n\r\n"), 400) << name;
  const std::string head = "GET /hello HTTP/1.0\r\nConnection: ";
  EXPECT_EQ(status_of(head + "keep-alive, , x\r\n\r\n"), 200);
  EXPECT_EQ(status_of(head + "keep alive\r\n\r\n"), 400);
  RawConnection both(server->port());
  both.send(head + "close\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(both.read_answer().closes);
}

}  // namespace
}  // namespace fathom::http::tests
