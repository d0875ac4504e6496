// Too many connections: who gives way, who is refused, and that probes are answered whatever the others do.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/http/raw_connection.h"
#include "tests/http/sample_server.h"
#include "tests/http/tls_connection.h"

namespace fathom::http::tests {
namespace {

using std::chrono::milliseconds;
using Connections = std::vector<std::unique_ptr<RawConnection>>;

std::string request_for(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n";
}

struct LimitedServer {
  explicit LimitedServer(int max_connections, ServerConfig config = sample_config()) {
    config.limits.max_connections = max_connections;
    server = sample_server(std::move(config), events);
  }
  ~LimitedServer() {
    const std::lock_guard lock(events->mutex);
    events->held.clear();
  }
  std::unique_ptr<RawConnection> connect() const {
    return std::make_unique<RawConnection>(server->port());
  }
  // Each brings something and waits until the server has it.
  Connections connect(int num, const std::string& bytes) const {
    Connections all;
    for (int i = 0; i < num; ++i) {
      all.push_back(connect());
      all.back()->send(bytes);
      const int64_t num_accepted = ++num_connected;
      EXPECT_TRUE(eventually(
          [&] { return server->counters().accepted_connections.load() >= num_accepted; }));
    }
    return all;
  }
  RawAnswer ask(const std::string& target) const {
    const auto connection = connect();
    ++num_connected;
    connection->send(request_for(target));
    RawAnswer answer = connection->read_answer();
    EXPECT_TRUE(!answer.closes || connection->wait_closed()) << target;
    return answer;
  }
  void expect_probes_alone() const {
    const RawAnswer probe = ask("/livez");
    EXPECT_EQ(probe.status, 200);
    EXPECT_EQ(probe.body, "alive");
    EXPECT_TRUE(probe.closes);
    for (const char* target : {"/hello", "/", "/nothing", "/v1/models/m"}) {
      RawAnswer refused = ask(target);
      EXPECT_EQ(refused.status, 503) << target;
      EXPECT_NE(refused.body.find("\"too_many_connections\""), std::string::npos) << refused.body;
      EXPECT_EQ(refused.headers["retry-after"], "1");
      EXPECT_TRUE(refused.closes);
    }
  }
  int64_t num_closed_idle() const { return server->counters().closed_idle_connections.load(); }

  std::shared_ptr<SampleEvents> events = std::make_shared<SampleEvents>();
  std::unique_ptr<Server> server;
  mutable int64_t num_connected = 0;
};

TEST(Admission, the_connection_that_idles_longest_gives_way_to_a_new_one) {
  ServerConfig config = sample_config();
  config.num_threads = 1;  // which sees the connections before what they send
  LimitedServer limited(3, std::move(config));
  const auto a = limited.connect(), b = limited.connect(), c = limited.connect();
  ASSERT_TRUE(eventually([&] { return limited.server->counters().open_connections == 3; }));
  // c has waited since before the others were used, b since before a was.
  for (RawConnection* used : {b.get(), a.get()}) {
    used->send(request_for("/hello"));
    EXPECT_EQ(used->read_answer().status, 200);
  }
  EXPECT_EQ(limited.ask("/hello").status, 200);
  EXPECT_TRUE(c->wait_closed());
  EXPECT_EQ(limited.num_closed_idle(), 1);
  ASSERT_TRUE(eventually([&] { return limited.server->counters().open_connections == 2; }));
  const auto d = limited.connect();
  d->send(request_for("/hello"));
  EXPECT_EQ(d->read_answer().status, 200);
  const auto e = limited.connect();
  e->send(request_for("/hello"));
  EXPECT_EQ(e->read_answer().status, 200);
  EXPECT_TRUE(b->wait_closed());
  a->send(request_for("/hello"));
  EXPECT_EQ(a->read_answer().status, 200);
}

TEST(Admission, six_hundred_silent_connections_keep_nobody_out) {
  LimitedServer limited(500);
  const Connections silent = limited.connect(600, "");
  EXPECT_EQ(limited.ask("/livez").status, 200);
  EXPECT_EQ(limited.ask("/hello").status, 200);
  EXPECT_EQ(limited.server->counters().rejected[static_cast<size_t>(Rejection::kOverloaded)], 0);
  EXPECT_LE(limited.server->counters().open_connections.load(), 500);
  EXPECT_GE(limited.num_closed_idle(), 100);
}

TEST(Admission, with_all_connections_busy_probes_are_answered_and_others_refused) {
  LimitedServer limited(4);
  const Connections busy = limited.connect(4, request_for("/hold"));
  ASSERT_TRUE(eventually([&] { return limited.events->num_held == 4; }));
  limited.expect_probes_alone();
  // A probe that is none: a body would have to be waited for.
  const auto with_body = limited.connect();
  with_body->send("GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
  EXPECT_EQ(with_body->read_answer().status, 503);
  EXPECT_EQ(limited.num_closed_idle(), 0);
  EXPECT_EQ(limited.events->num_closed, 0);
  busy[1]->reset();
  ASSERT_TRUE(eventually([&] { return limited.events->num_closed == 1; }));
  EXPECT_TRUE(eventually([&] { return limited.ask("/hello").status == 200; }));
}

TEST(Admission, half_sent_heads_and_bodies_leave_the_probes_alone) {
  LimitedServer limited(4);
  const Connections heads = limited.connect(2, "GET /hello HTTP/1.1\r\nHo");
  const Connections bodies =
      limited.connect(2, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  ASSERT_TRUE(eventually([&] { return limited.server->counters().bodies_bytes == 6; }));
  ASSERT_TRUE(eventually([&] { return limited.server->counters().received_bytes >= 130; }));
  limited.expect_probes_alone();
}

TEST(Admission, a_full_reserve_gives_way_to_the_next_probe) {
  LimitedServer limited(1);
  const Connections busy = limited.connect(1, request_for("/hold"));
  ASSERT_TRUE(eventually([&] { return limited.events->num_held == 1; }));
  for (const std::string bytes : {"", "GET /livez HTTP/1.1\r\nHos"}) {
    const Connections many = limited.connect(100, bytes);
    for (int i = 0; i < 5; ++i) limited.expect_probes_alone();
    EXPECT_LE(limited.server->counters().open_connections.load(),
              1 + Limits{}.num_probe_connections);
    EXPECT_TRUE(many.front()->wait_closed());
  }
}

TEST(Admission, holds_over_tls_too) {
  const TestCertificate certificate;
  ServerConfig config = sample_config();
  config.tls_certificate_path = certificate.certificate_path();
  config.tls_key_path = certificate.key_path();
  LimitedServer limited(2, std::move(config));
  const auto status = [&](const std::string& target) {
    TlsConnection connection(limited.server->port());
    if (!connection.handshake()) return 0;
    connection.send(request_for(target));
    return connection.read_answer().status;
  };
  const Connections silent = limited.connect(5, "");
  EXPECT_EQ(status("/hello"), 200);
  ASSERT_TRUE(eventually([&] { return limited.server->counters().open_connections == 1; }));
  TlsConnection a(limited.server->port()), b(limited.server->port());
  for (TlsConnection* busy : {&a, &b}) {
    ASSERT_TRUE(busy->handshake()) << busy->error();
    busy->send(request_for("/hold"));
  }
  ASSERT_TRUE(eventually([&] { return limited.events->num_held == 2; }));
  EXPECT_EQ(status("/livez"), 200);
  EXPECT_EQ(status("/hello"), 503);
}

TEST(Admission, one_address_takes_no_more_than_its_share) {
  ServerConfig config = sample_config();
  config.limits.max_connections_per_address = 2;
  LimitedServer limited(100, std::move(config));
  const auto from = [&](const char* source, const char* target) {
    auto connection = std::make_unique<RawConnection>(limited.server->port(), 0, source);
    connection->send(request_for(target));
    return connection;
  };
  const auto a = from("127.0.0.2", "/hold");
  auto b = from("127.0.0.2", "/hold");
  ASSERT_TRUE(eventually([&] { return limited.events->num_held == 2; }));
  const RawAnswer refused = from("127.0.0.2", "/hello")->read_answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("too_many_connections_from_address"), std::string::npos);
  EXPECT_EQ(from("127.0.0.2", "/livez")->read_answer().status, 200);
  EXPECT_EQ(from("127.0.0.3", "/hello")->read_answer().status, 200);
  b->reset();
  ASSERT_TRUE(eventually([&] { return limited.events->num_closed == 1; }));
  EXPECT_TRUE(eventually([&] { return from("127.0.0.2", "/hello")->read_answer().status == 200; }));
}

// Clients come and go on all threads at the limit; every place is given back.
TEST(Admission, loses_no_place_when_many_come_at_once) {
  LimitedServer limited(8);
  std::vector<std::thread> clients;
  std::atomic<int> num_answered{0};
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      for (int k = 0; k < 100; ++k) {
        RawConnection connection(limited.server->port());
        // Its connection may have given way before the request arrived.
        connection.send((i + k) % 4 == 0 ? "GET /he"
                                         : request_for(k % 2 == 0 ? "/hello" : "/livez"));
        if ((i + k) % 3 == 0) connection.reset();
        if ((i + k) % 3 == 1 && (i + k) % 4 != 0 && connection.read_answer().status > 0)
          ++num_answered;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(num_answered, 0);
  ASSERT_TRUE(eventually([&] { return limited.server->counters().open_connections == 0; }));
  Connections held;
  for (int i = 0; i < 8; ++i) {
    held.push_back(limited.connect());
    held.back()->send(request_for("/hold"));
  }
  EXPECT_TRUE(eventually([&] { return limited.events->num_held == 8; }));
  EXPECT_EQ(limited.ask("/hello").status, 503);
}

}  // namespace
}  // namespace fathom::http::tests
