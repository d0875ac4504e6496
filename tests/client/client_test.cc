// The client against the sample server: answers, streams, kept connections, timeouts, cancellation.

#include "client/client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>

#include "base/check.h"
#include "client/sse_parser.h"
#include "client/url.h"
#include "tests/http/sample_server.h"

namespace fathom::client {
namespace {

using http::tests::eventually;
using http::tests::sample_server;
using http::tests::SampleEvents;

std::string url(const http::Server& server, const std::string& target) {
  return "http://127.0.0.1:" + std::to_string(server.port()) + target;
}

// A port where nobody listens, and which no other program can take in the meantime.
class UnansweredPort {
 public:
  UnansweredPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    FATHOM_CHECK(::bind(fd_, generic, size) == 0, "bind");
    FATHOM_CHECK(::getsockname(fd_, generic, &size) == 0, "getsockname");
    port_ = ntohs(address.sin_port);
  }
  ~UnansweredPort() { ::close(fd_); }
  UnansweredPort(const UnansweredPort&) = delete;
  UnansweredPort& operator=(const UnansweredPort&) = delete;
  int port() const { return port_; }

 private:
  int fd_;
  int port_ = 0;
};

TEST(Client, gets_and_posts_over_one_kept_connection) {
  const auto server = sample_server();
  Client client;
  for (int i = 0; i < 5; ++i) {
    const ClientResponse hello = client.call({.url = url(*server, "/hello")});
    EXPECT_EQ(hello.body, "hello") << hello.status << " " << hello.error;
    const std::string body(100'000, static_cast<char>('a' + i));
    const ClientResponse echo =
        client.call({.method = "POST", .url = url(*server, "/echo"), .body = body});
    EXPECT_EQ(echo.status, 200);
    EXPECT_TRUE(echo.body == body) << echo.body.size();
  }
  EXPECT_EQ(server->counters().accepted_connections.load(), 1);
}

TEST(Client, carries_many_requests_at_once) {
  const auto server = sample_server();
  Client client;
  std::atomic<int> num_done{0}, num_right{0};
  for (int i = 0; i < 300; ++i) {
    const std::string body = "request " + std::to_string(i);
    client.send({.method = "POST", .url = url(*server, "/later"), .body = body},
                {.on_done = [&, body](const ClientResponse& response) {
                  if (response.body == body) ++num_right;
                  ++num_done;
                }});
  }
  EXPECT_TRUE(eventually([&] { return num_done == 300; }));
  EXPECT_EQ(num_right, 300);
}

TEST(Client, hands_out_a_stream_as_it_arrives) {
  const auto server = sample_server();
  Client client;
  std::vector<std::string> events;
  SseParser parser([&](std::string_view data) { events.emplace_back(data); });
  std::promise<ClientResponse> done;
  client.send({.url = url(*server, "/stream?n=2000")},
              {.on_body = [&](std::string_view bytes) { parser.feed(bytes); },
               .on_done = [&](const ClientResponse& response) { done.set_value(response); }});
  const ClientResponse response = done.get_future().get();
  EXPECT_EQ(response.error, "");
  EXPECT_EQ(response.header("content-type"), "text/event-stream; charset=utf-8");
  ASSERT_EQ(events.size(), 2000u);
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i], std::to_string(i));
}

TEST(Client, says_when_a_stream_ends_before_its_end) {
  const auto server = sample_server();
  Client client;
  const ClientResponse response = client.call({.url = url(*server, "/stream/broken")});
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.error, "");
}

TEST(Client, times_out) {
  const auto server = sample_server(http::tests::sample_config(), std::make_shared<SampleEvents>());
  Client client;
  EXPECT_EQ(
      client.call({.url = url(*server, "/hold"), .timeout = std::chrono::milliseconds(50)}).error,
      "timeout");
  // How far the request came within the time depends on how busy the machine is; nothing stays of it.
  EXPECT_TRUE(eventually([&] {
    return server->counters().open_connections == 0 && server->counters().active_exchanges == 0;
  }));
}

TEST(Client, cancels_what_the_server_works_on) {
  const auto events = std::make_shared<SampleEvents>();
  const auto server = sample_server(http::tests::sample_config(), events);
  Client client;
  std::promise<std::string> error;
  const Client::RequestId id = client.send(
      {.url = url(*server, "/hold")},
      {.on_done = [&](const ClientResponse& response) { error.set_value(response.error); }});
  EXPECT_TRUE(eventually([&] { return events->num_held == 1; }));
  client.cancel(id);
  EXPECT_EQ(error.get_future().get(), "cancelled");
  EXPECT_TRUE(eventually([&] { return events->num_closed == 1; }));
}

TEST(Client, ends_what_is_in_flight_when_it_goes) {
  const auto events = std::make_shared<SampleEvents>();
  const auto server = sample_server(http::tests::sample_config(), events);
  std::atomic<int> num_done{0};
  {
    Client client;
    for (int i = 0; i < 10; ++i)
      client.send({.url = url(*server, "/hold")},
                  {.on_done = [&](const ClientResponse&) { ++num_done; }});
    EXPECT_TRUE(eventually([&] { return events->num_held == 10; }));
  }
  EXPECT_EQ(num_done, 10);
}

TEST(Client, names_what_is_wrong_with_a_url_or_a_server) {
  Client client;
  EXPECT_NE(client.call({.url = "ftp://a/"}).error, "");
  EXPECT_NE(client.call({.url = "http:///"}).error, "");
  const UnansweredPort nobody;
  const ClientResponse refused =
      client.call({.url = "http://127.0.0.1:" + std::to_string(nobody.port()) + "/"});
  EXPECT_EQ(refused.status, 0);
  EXPECT_NE(refused.error, "");
}

TEST(Url, is_cut_into_its_parts) {
  const Result<Url> plain = parse_url("http://127.0.0.1:30000/v1/models?x=1#top");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, "30000");
  EXPECT_EQ(plain->target, "/v1/models?x=1");
  const Result<Url> tls = parse_url("https://[::1]?q");
  ASSERT_TRUE(tls);
  EXPECT_TRUE(tls->is_tls);
  EXPECT_EQ(tls->host, "::1");
  EXPECT_EQ(tls->port, "443");
  EXPECT_EQ(tls->target, "/?q");
  for (const char* bad : {"", "127.0.0.1", "http://", "http://a b/", "http://a/ b", "http://[::1/"})
    EXPECT_FALSE(parse_url(bad)) << bad;
}

TEST(SseParser, gives_the_same_events_for_any_cuts) {
  const std::string stream =
      "data: one\n\n: comment\n\nevent: x\r\ndata: two\r\ndata:three\r\n\r\ndata\n\ndata: "
      "[DONE]\n\n";
  for (size_t first = 0; first <= stream.size(); ++first) {
    std::vector<std::string> events;
    SseParser parser([&](std::string_view data) { events.emplace_back(data); });
    parser.feed(stream.substr(0, first));
    for (const char c : stream.substr(first)) parser.feed({&c, 1});
    EXPECT_EQ(events, (std::vector<std::string>{"one", "two\nthree", "", "[DONE]"}));
    EXPECT_EQ(parser.num_comments(), 1);
  }
}

TEST(SseParser, bounds_an_event_of_many_lines) {
  int num_events = 0;
  SseParser parser([&](std::string_view) { ++num_events; });
  const std::string line = "data: " + std::string(1 << 20, 'x') + "\n";
  for (int i = 0; i < 65; ++i) parser.feed(line);
  EXPECT_TRUE(parser.failed());
  EXPECT_EQ(num_events, 0);
}

}  // namespace
}  // namespace fathom::client
