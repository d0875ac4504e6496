// Thousands of malformed requests against the transport: none is answered with 5xx, none hangs, and a good
// request in between gets the same answer every time.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <vector>

#include "tests/http/malformed_requests.h"
#include "tests/http/raw_connection.h"
#include "tests/http/sample_server.h"

namespace fathom::http::tests {
namespace {

std::string canary(int port) {
  RawConnection connection(port);
  connection.send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nx-request-id: c\r\n\r\ncanary");
  return connection.read_answer().body;
}

TEST(MalformedRequests, are_refused_one_by_one_and_hurt_nobody_else) {
  const auto server = sample_server();
  const std::vector<MalformedRequest> requests = malformed_requests({});
  EXPECT_GE(requests.size(), 2000u);
  std::set<std::string> distinct;
  for (const MalformedRequest& request : requests) distinct.insert(request.bytes);
  EXPECT_GE(distinct.size(), 2000u);
  RecordProperty("requests", static_cast<int>(requests.size()));
  RecordProperty("distinct", static_cast<int>(distinct.size()));
  int num_failed = 0;
  std::vector<std::chrono::milliseconds> times;
  for (size_t i = 0; i < requests.size() && num_failed < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string wrong = try_malformed(server->port(), requests[i]);
    times.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin));
    if (!wrong.empty()) ++num_failed;
    EXPECT_EQ(wrong, "") << requests[i].name << "\n" << requests[i].bytes.substr(0, 300);
    if (i % 100 == 0) {
      ASSERT_EQ(canary(server->port()), "canary") << "after request " << i;
    }
    EXPECT_EQ(server->counters().responses[5].load(), 0);
  }
  std::sort(times.begin(), times.end());
  std::printf("slowest answer: %ld ms\n", static_cast<long>(times.back().count()));
  // Those above may have waited for a busy machine; try_malformed() bounds them.
  EXPECT_LT(times[times.size() / 2].count(), 1000);
  EXPECT_TRUE(eventually([&] { return server->counters().open_connections.load() == 0; }));
  EXPECT_EQ(server->counters().bodies_bytes.load(), 0);
  EXPECT_EQ(server->counters().backlog_bytes.load(), 0);
}

TEST(MalformedRequests, are_refused_the_same_when_they_come_byte_by_byte) {
  const auto server = sample_server();
  const std::vector<MalformedRequest> requests = malformed_requests({});
  // Every 40th: each byte is a packet.
  for (size_t i = 0; i < requests.size(); i += 40) {
    const MalformedRequest& request = requests[i];
    if (request.expect != MalformedRequest::Expect::kRejected || request.bytes.size() > 400)
      continue;
    RawConnection connection(server->port());
    for (const char c : request.bytes) connection.send({&c, 1});
    const RawAnswer answer = connection.read_answer(request.bytes.substr(0, 5) == "HEAD ");
    EXPECT_TRUE(answer.status >= 400 && answer.status < 500)
        << request.name << " got " << answer.status;
  }
}

TEST(EarlyClose, at_every_byte_of_a_request_leaves_nothing_behind) {
  const auto events = std::make_shared<SampleEvents>();
  const auto server = sample_server(sample_config(), events);
  const std::string samples[] = {
      "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world",
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok",
      "GET /stream?n=100 HTTP/1.0\r\n\r\n",
  };
  int num_tried = 0;
  for (const std::string& sample : samples) {
    for (size_t at = 0; at <= sample.size(); ++at, ++num_tried) {
      RawConnection connection(server->port());
      connection.send(sample.substr(0, at));
      if (at % 2 == 0) {
        connection.close();
      } else {
        connection.reset();
      }
    }
  }
  EXPECT_GE(num_tried, 250);
  EXPECT_EQ(canary(server->port()), "canary");
  EXPECT_TRUE(eventually([&] { return server->counters().open_connections.load() == 0; }));
  EXPECT_EQ(server->counters().active_exchanges.load(), 0);
  EXPECT_EQ(server->counters().bodies_bytes.load(), 0);
  EXPECT_EQ(server->counters().responses[5].load(), 0);
}

}  // namespace
}  // namespace fathom::http::tests
