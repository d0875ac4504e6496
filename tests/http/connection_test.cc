// A connection's life: keeping, pipelining, clients that go, that are slow, that say nothing; draining.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/http/raw_connection.h"
#include "tests/http/sample_server.h"

namespace fathom::http::tests {
namespace {

using std::chrono::milliseconds;

const std::string kGet = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";

std::string get(const std::string& target, const std::string& headers = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n";
}

struct Fixture {
  explicit Fixture(ServerConfig config = sample_config())
      : events(std::make_shared<SampleEvents>()),
        server(sample_server(std::move(config), events)) {}
  ExchangePtr take_held() {
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(events->mutex);
      return !events->held.empty();
    }));
    const std::lock_guard lock(events->mutex);
    const ExchangePtr exchange = events->held.front();
    events->held.erase(events->held.begin());
    return exchange;
  }
  int64_t open() const { return server->counters().open_connections.load(); }

  std::shared_ptr<SampleEvents> events;
  std::unique_ptr<Server> server;
};

TEST(Connection, keeps_to_the_rules_of_both_versions) {
  Fixture fixture;
  RawConnection kept(fixture.server->port());
  kept.send(get("/hello", "Connection: close\r\n"));
  EXPECT_TRUE(kept.read_answer().closes);
  EXPECT_TRUE(kept.wait_closed());
  RawConnection old(fixture.server->port());
  old.send("GET /hello HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.read_answer().closes);
  EXPECT_TRUE(old.wait_closed());
  RawConnection old_kept(fixture.server->port());
  for (int i = 0; i < 2; ++i) {
    old_kept.send("GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(old_kept.read_answer().headers["connection"], "keep-alive");
  }
}

TEST(Connection, answers_pipelined_requests_in_order) {
  Fixture fixture;
  RawConnection connection(fixture.server->port());
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += get("/v1/models/" + std::to_string(i));
  std::thread sender([&] { connection.send(requests); });
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(connection.read_answer().body, std::to_string(i));
  }
  sender.join();
}

TEST(Connection, keeps_bytes_that_come_while_an_answer_is_due) {
  Fixture fixture;
  RawConnection connection(fixture.server->port());
  connection.send(get("/hold") + kGet);
  const ExchangePtr held = fixture.take_held();
  held->post([held] {
    Response response;
    response.body = "late";
    held->send(response);
  });
  EXPECT_EQ(connection.read_answer().body, "late");
  EXPECT_EQ(connection.read_answer().body, "hello");
}

TEST(Connection, asks_for_a_body_that_waits_to_be_asked_for) {
  Fixture fixture;
  RawConnection connection(fixture.server->port());
  connection.send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(connection.read_answer().status, 100);
  connection.send("ok");
  EXPECT_EQ(connection.read_answer().body, "ok");
  // A refusal comes instead.
  connection.send(
      "POST /nothing HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(connection.read_answer().status, 404);
  EXPECT_TRUE(connection.wait_closed());
}

TEST(Connection, answers_head_and_options) {
  Fixture fixture;
  RawConnection connection(fixture.server->port());
  connection.send("HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n" + kGet);
  RawAnswer answer = connection.read_answer(true);
  EXPECT_EQ(answer.headers["content-length"], "5");
  EXPECT_EQ(connection.read_answer().body, "hello");
  connection.send("OPTIONS /echo HTTP/1.1\r\nHost: a\r\n\r\n");
  answer = connection.read_answer();
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers["allow"], "POST, OPTIONS");
  connection.send("DELETE /hello HTTP/1.1\r\nHost: a\r\n\r\n");
  answer = connection.read_answer();
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.headers["allow"], "GET, HEAD, OPTIONS");
  connection.send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n" + kGet);
  EXPECT_EQ(connection.read_answer(true).status, 200);
  EXPECT_EQ(connection.read_answer().body, "hello");
}

TEST(Connection, takes_an_absolute_target_of_the_host_it_names) {
  Fixture fixture;
  RawConnection client(fixture.server->port());
  client.send(get("http://a/hello"));
  EXPECT_EQ(client.read_answer().status, 200);
  client.send(get("http://A/hello"));
  EXPECT_EQ(client.read_answer().status, 200);
  client.send(get("http://b/hello"));
  EXPECT_EQ(client.read_answer().status, 400);
}

TEST(Connection, takes_an_encoded_slash_in_a_parameter_only) {
  Fixture fixture;
  RawConnection client(fixture.server->port());
  client.send(get("/v1/models/deepseek-ai%2FDeepSeek-V3.1"));
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "deepseek-ai/DeepSeek-V3.1");
  for (const char* path : {"/v1%2Fmodels/m", "/v1/models%2Fm", "/v1%2Fmodels/a%2Fb", "/%2Fhello"}) {
    RawConnection other(fixture.server->port());
    other.send(get(path));
    EXPECT_EQ(other.read_answer().status, 400) << path;
  }
}

TEST(Connection, names_the_path_that_does_not_exist) {
  Fixture fixture;
  RawConnection client(fixture.server->port());
  client.send(get("/v2/%22hello%22"));
  const RawAnswer answer = client.read_answer();
  EXPECT_EQ(answer.status, 404);
  EXPECT_NE(answer.body.find("there is no resource '/v2/hello'"), std::string::npos) << answer.body;
}

TEST(Connection, gives_back_a_request_id_and_draws_one_otherwise) {
  Fixture fixture;
  RawConnection connection(fixture.server->port());
  connection.send(get("/hello", "X-Request-Id: my_id-1\r\n"));
  EXPECT_EQ(connection.read_answer().headers["x-request-id"], "my_id-1");
  for (const std::string& bad : {std::string("a b"), std::string("a/b"), std::string(129, 'a')}) {
    connection.send(get("/hello", "X-Request-Id: " + bad + "\r\n"));
    EXPECT_EQ(connection.read_answer().headers["x-request-id"].size(), 32u);
  }
}

TEST(Connection, streams_in_chunks_and_to_the_close_for_the_old_version) {
  Fixture fixture;
  const std::string events = "data: 0\n\ndata: 1\n\ndata: 2\n\n";
  RawConnection connection(fixture.server->port());
  connection.send(get("/stream") + kGet);
  RawAnswer answer = connection.read_answer();
  EXPECT_EQ(answer.body, events);
  EXPECT_EQ(answer.headers["cache-control"], "no-cache");
  EXPECT_EQ(connection.read_answer().body, "hello");
  RawConnection old(fixture.server->port());
  old.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  answer = old.read_answer();
  EXPECT_EQ(answer.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(answer.body, events);
  RawConnection broken(fixture.server->port());
  broken.send(get("/stream/broken"));
  EXPECT_FALSE(broken.read_answer().is_whole);
}

TEST(Connection, answers_500_for_a_handler_that_forgets_to) {
  Fixture fixture;
  RawConnection connection(fixture.server->port());
  connection.send(get("/drop"));
  EXPECT_EQ(connection.read_answer().status, 500);
}

enum class Leave { kClose, kReset, kHalfClose };

TEST(Connection, notices_clients_that_go_whatever_their_request_waits_for) {
  Fixture fixture;
  const std::string requests[] = {get("/hold"), get("/stream/hold"),
                                  "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
                                  get("/hold") + kGet + kGet};
  int num_closed = 0;
  for (const std::string& request : requests) {
    for (const Leave leave : {Leave::kClose, Leave::kReset, Leave::kHalfClose}) {
      RawConnection connection(fixture.server->port());
      connection.send(request);
      const ExchangePtr held = fixture.take_held();
      if (leave == Leave::kClose) connection.close();
      if (leave == Leave::kReset) connection.reset();
      if (leave == Leave::kHalfClose) connection.half_close();
      ++num_closed;
      EXPECT_TRUE(eventually([&] { return fixture.events->num_closed == num_closed; })) << request;
      // What a handler still does is for nobody.
      held->post([held] {
        held->send({});
        held->begin_stream();
        held->write("data: x\n\n");
        held->finish_stream(true);
      });
    }
  }
  EXPECT_TRUE(eventually([&] { return fixture.open() == 0; }));
  EXPECT_EQ(fixture.server->counters().client_disconnects.load(), num_closed);
  EXPECT_EQ(fixture.server->counters().active_exchanges.load(), 0);
  EXPECT_EQ(fixture.server->counters().open_streams.load(), 0);
}

TEST(Connection, notices_a_client_that_goes_behind_bytes_that_are_not_read) {
  ServerConfig config = sample_config();
  config.limits.max_pipelined_bytes = 1000;
  Fixture fixture(std::move(config));
  RawConnection connection(fixture.server->port());
  connection.send(get("/hold"));
  const ExchangePtr held = fixture.take_held();
  connection.send(std::string(100'000, 'x'));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(fixture.events->num_closed, 0);
  connection.half_close();
  EXPECT_TRUE(eventually([&] { return fixture.events->num_closed == 1; }));
}

TEST(Connection, closes_what_says_nothing_or_too_little) {
  ServerConfig config = sample_config();
  config.timeouts.linger = milliseconds(100);
  ServerConfig impatient = config;
  impatient.timeouts.keep_alive = milliseconds(200);
  Fixture fixture_of_silence(std::move(impatient));
  RawConnection silent(fixture_of_silence.server->port());
  EXPECT_TRUE(silent.wait_closed());
  config.timeouts.header = milliseconds(100);
  config.timeouts.body_idle = milliseconds(100);
  Fixture fixture(std::move(config));
  RawConnection half_a_head(fixture.server->port()), half_a_body(fixture.server->port());
  half_a_head.send("GET / HTTP/1.1\r\nHost");
  half_a_body.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(half_a_head.read_answer().status, 408);
  EXPECT_EQ(half_a_body.read_answer().status, 408);
  EXPECT_TRUE(half_a_head.wait_closed());
  EXPECT_TRUE(half_a_body.wait_closed());
  // Each byte of a head does not begin the time anew.
  RawConnection drip(fixture.server->port());
  int num_sent = 0;
  while (num_sent < 1000 && drip.send("a")) {
    ++num_sent;
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_LT(num_sent, 1000);
}

TEST(Connection, ends_a_body_that_drips_and_lets_a_large_one_take_its_time) {
  ServerConfig config = sample_config();
  config.timeouts.linger = milliseconds(100);
  config.timeouts.body = milliseconds(300);
  const Fixture fixture(std::move(config));
  const std::string head = "POST /echo HTTP/1.1\r\nHost: a\r\n";
  for (const std::string framing :
       {"Content-Length: 100000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"}) {
    RawConnection drip(fixture.server->port());
    drip.send(head + framing);
    // Each piece comes long before the pause between two of them is too long.
    const std::string piece = framing.starts_with("C") ? "a" : "1\r\na\r\n";
    std::string answer;
    for (int num_sent = 0; num_sent < 2000 && answer.empty() && drip.send(piece); ++num_sent)
      answer = drip.read_some(milliseconds(10));
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 408") << framing;
  }
  // A second for every 32 KiB that have come: this one has earned ten and is there after one.
  RawConnection large(fixture.server->port());
  const std::string part(10 * kBodyBytesPerSecond, 'x');
  large.send(head + "Content-Length: " + std::to_string(part.size() + 1) + "\r\n\r\n" + part);
  std::this_thread::sleep_for(milliseconds(1000));
  large.send("x");
  EXPECT_EQ(large.read_answer().status, 200);
}

TEST(Connection, cuts_a_reader_that_does_not_read) {
  ServerConfig config = sample_config();
  config.timeouts.write_stall = milliseconds(200);
  Fixture fixture(std::move(config));
  RawConnection connection(fixture.server->port(), 4096);
  connection.send(get("/stream/flood"));
  EXPECT_TRUE(eventually([&] { return fixture.events->num_closed == 1; }));
  EXPECT_EQ(fixture.server->counters().rejected[static_cast<size_t>(Rejection::kStalled)].load(),
            1);
  EXPECT_TRUE(eventually([&] { return fixture.server->counters().backlog_bytes.load() == 0; }));
}

TEST(Connection, cuts_a_reader_that_reads_too_slowly) {
  ServerConfig config = sample_config();
  config.timeouts.write_stall = milliseconds(300);
  Fixture fixture(std::move(config));
  RawConnection connection(fixture.server->port(), 4096);
  connection.send(get("/stream/flood"));
  // It reads all the time, but its backlog stays above the limit.
  EXPECT_TRUE(eventually([&] {
    connection.read_some(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(20));
    return fixture.events->num_closed == 1;
  }));
}

TEST(Connection, sends_a_comment_when_a_stream_is_silent) {
  ServerConfig config = sample_config();
  config.timeouts.stream_comment = milliseconds(50);
  Fixture fixture(std::move(config));
  RawConnection connection(fixture.server->port());
  connection.send(get("/stream/hold"));
  EXPECT_TRUE(connection.wait_for(": keep-alive\n\n"));
}

TEST(Connection, sends_what_a_handler_says_when_its_stream_is_silent) {
  ServerConfig config = sample_config();
  config.timeouts.stream_comment = milliseconds(50);
  Fixture fixture(std::move(config));
  RawConnection connection(fixture.server->port());
  connection.send(get("/stream/quiet"));
  EXPECT_TRUE(connection.wait_for("data: still here, 0\n\n"));
  EXPECT_TRUE(connection.wait_for("data: still here, 1\n\n"));
}

TEST(Connection, refuses_bodies_beyond_the_limit_of_all) {
  ServerConfig config = sample_config();
  config.timeouts.linger = milliseconds(100);
  config.limits.max_bodies_bytes = 1000;
  Fixture fixture(std::move(config));
  RawConnection holder(fixture.server->port()), second(fixture.server->port());
  holder.send("POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 900\r\n\r\n" +
              std::string(900, 'x'));
  ExchangePtr held = fixture.take_held();
  second.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 200\r\n\r\n" +
              std::string(200, 'x'));
  EXPECT_EQ(second.read_answer().status, 503);
  held->post([exchange = held] { exchange->send({}); });
  held.reset();
  EXPECT_EQ(holder.read_answer().status, 200);
  EXPECT_TRUE(eventually([&] { return fixture.server->counters().bodies_bytes.load() == 0; }));
  EXPECT_TRUE(second.wait_closed());
}

TEST(Connection, keeps_what_a_large_body_takes_until_it_is_written_or_its_client_has_gone) {
  Fixture fixture;
  const std::string body(size_t{16} << 20, 'x');
  for (const bool is_read : {true, false}) {
    RawConnection client(fixture.server->port(), 4096);
    client.send(get("/hold"));
    std::weak_ptr<const void> lease;
    {
      const ExchangePtr held = fixture.take_held();
      auto taken = std::make_shared<const int>(0);
      lease = taken;
      held->post([exchange = held, body, taken] {
        Response response;
        response.body = body;
        response.lease = taken;
        exchange->send(std::move(response));
      });
    }
    EXPECT_TRUE(client.wait_for("\r\n\r\nx"));
    EXPECT_FALSE(lease.expired()) << "most of it waits for the client";
    if (is_read) {
      const RawAnswer answer = client.read_answer();
      EXPECT_TRUE(answer.is_whole);
      EXPECT_EQ(answer.body, body);
      client.send(kGet);
      EXPECT_EQ(client.read_answer().body, "hello");
    } else {
      client.reset();
    }
    EXPECT_TRUE(eventually([&] { return lease.expired(); }));
  }
  EXPECT_TRUE(eventually([&] { return fixture.server->counters().backlog_bytes.load() == 0; }));
}

TEST(Drain, closes_idle_connections_and_finishes_what_is_in_work) {
  Fixture fixture;
  RawConnection idle(fixture.server->port()), busy(fixture.server->port()),
      stream(fixture.server->port()), early(fixture.server->port());
  idle.send(kGet);
  EXPECT_EQ(idle.read_answer().status, 200);
  ASSERT_TRUE(eventually([&] { return fixture.open() == 4; }));
  busy.send(get("/hold"));
  const ExchangePtr held = fixture.take_held();
  stream.send(get("/stream/hold"));
  const ExchangePtr held_stream = fixture.take_held();
  fixture.server->begin_drain();
  EXPECT_TRUE(idle.wait_closed());
  EXPECT_FALSE(fixture.server->wait_idle(milliseconds(20)));
  RawConnection late(fixture.server->port());
  for (RawConnection* connection : {&early, &late}) {
    connection->send(kGet);
    const RawAnswer answer = connection->read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.closes);
  }
  held->post([held] { held->send({}); });
  held_stream->post([held_stream] {
    held_stream->write("data: last\n\n");
    held_stream->finish_stream(true);
  });
  const RawAnswer answer = busy.read_answer();
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.closes);
  EXPECT_EQ(stream.read_answer().body, "data: begun\n\ndata: last\n\n");
  EXPECT_TRUE(stream.wait_closed());
  EXPECT_TRUE(fixture.server->wait_idle(RawConnection::kTimeout));
}

TEST(Drain, a_connection_that_never_asks_is_closed_when_a_head_is_overdue) {
  ServerConfig config = sample_config();
  config.timeouts.header = milliseconds(300);
  Fixture fixture(std::move(config));
  RawConnection silent(fixture.server->port());
  ASSERT_TRUE(eventually([&] { return fixture.open() == 1; }));
  fixture.server->begin_drain();
  EXPECT_TRUE(silent.wait_closed());
}

TEST(PostAfter, runs_tasks_when_their_time_is_over_and_none_after_stop) {
  Fixture fixture;
  std::promise<std::string> all;
  std::string order;
  const auto begin = std::chrono::steady_clock::now();
  fixture.server->post_after(std::chrono::milliseconds(40), [&] { all.set_value(order + "late"); });
  fixture.server->post_after(std::chrono::milliseconds(10), [&] { order += "early "; });
  fixture.server->post_after(std::chrono::milliseconds(20),
                             [] { throw std::runtime_error("for the test"); });
  EXPECT_EQ(all.get_future().get(), "early late");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(40));
  const auto kept = std::make_shared<int>(0);
  fixture.server->post_after(std::chrono::hours(1),
                             [kept] { ADD_FAILURE() << "a task ran after stop"; });
  fixture.server->stop();
  EXPECT_EQ(kept.use_count(), 1) << "what waited is gone";
  fixture.server->post_after(std::chrono::milliseconds(0),
                             [] { ADD_FAILURE() << "a task ran after stop"; });
}

TEST(Server, can_stop_with_requests_in_work_and_exchanges_that_outlive_it) {
  ExchangePtr held;
  RawConnection* connection;
  {
    Fixture fixture;
    connection = new RawConnection(fixture.server->port());
    connection->send(get("/stream/hold"));
    held = fixture.take_held();
    fixture.server->stop();
    EXPECT_EQ(fixture.events->num_closed, 1);
    fixture.server->stop_accepting();
    fixture.server->post(0, [] { ADD_FAILURE() << "a task ran after stop"; });
  }
  EXPECT_TRUE(connection->wait_closed());
  held->post([] { ADD_FAILURE() << "a task ran after the server's end"; });
  held->write("data: x\n\n");
  EXPECT_TRUE(held->is_closed());
  held.reset();
  delete connection;
}

TEST(Server, reports_each_exchange_once) {
  std::mutex mutex;
  std::vector<std::string> lines;
  ServerConfig config = sample_config();
  config.on_access = [&](const AccessRecord& record) {
    const std::lock_guard lock(mutex);
    lines.push_back(std::string(record.method) + " " + std::string(record.route_path) + " " +
                    std::to_string(record.status) + (record.client_gone ? " gone" : "") +
                    (record.has_own_line ? " own" : ""));
  };
  Fixture fixture(std::move(config));
  const auto num_lines = [&] {
    const std::lock_guard lock(mutex);
    return lines.size();
  };
  RawConnection connection(fixture.server->port());
  connection.send(get("/v1/models/x") + get("/nothing") + get("/hold"));
  const ExchangePtr held = fixture.take_held();
  std::atomic<bool> is_claimed = false;
  held->post([&] {
    held->claim_log_line();
    is_claimed = true;
  });
  EXPECT_TRUE(eventually([&] { return is_claimed.load(); }));
  connection.close();
  EXPECT_TRUE(eventually([&] { return num_lines() == 3; }));
  EXPECT_EQ(lines, (std::vector<std::string>{"GET /v1/models/{id} 200", "GET  404",
                                             "GET /hold 0 gone own"}));
}

}  // namespace
}  // namespace fathom::http::tests
