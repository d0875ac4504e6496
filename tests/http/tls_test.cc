// TLS: what works in plain works here, old versions and plain text are refused, bad files stop the start.

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/startup_error.h"
#include "tests/http/sample_server.h"
#include "tests/http/tls_connection.h"

namespace fathom::http::tests {
namespace {

std::string tls_get(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: a\r\n\r\n";
}

struct TlsFixture {
  explicit TlsFixture(std::chrono::milliseconds header_timeout = Timeouts().header) {
    ServerConfig config = sample_config();
    config.tls_certificate_path = certificate.certificate_path();
    config.tls_key_path = certificate.key_path();
    config.timeouts.header = header_timeout;
    server = sample_server(std::move(config), events);
  }
  std::string answer() const {
    TlsConnection connection(server->port());
    if (!connection.handshake()) return connection.error();
    connection.send(tls_get("/hello"));
    return connection.read_answer().body;
  }

  TestCertificate certificate;
  std::shared_ptr<SampleEvents> events = std::make_shared<SampleEvents>();
  std::unique_ptr<Server> server;
};

TEST(Tls, carries_requests_over_a_kept_connection_and_streams) {
  TlsFixture fixture;
  TlsConnection connection(fixture.server->port());
  ASSERT_TRUE(connection.handshake()) << connection.error();
  EXPECT_EQ(connection.version(), "TLSv1.3");
  for (int i = 0; i < 3; ++i) {
    connection.send(tls_get("/hello"));
    EXPECT_EQ(connection.read_answer().body, "hello");
  }
  const std::string body(300'000, 'b');
  connection.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n" + body);
  EXPECT_TRUE(connection.read_answer().body == body);
  connection.send(tls_get("/stream"));
  EXPECT_EQ(connection.read_answer().body, "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  EXPECT_EQ(fixture.server->counters().accepted_connections.load(), 1);
}

TEST(Tls, delivers_a_refusal_while_the_client_still_sends) {
  TlsFixture fixture;
  for (int i = 0; i < 10; ++i) {
    TlsConnection connection(fixture.server->port());
    ASSERT_TRUE(connection.handshake()) << connection.error();
    connection.send("POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 400000\r\n\r\n" +
                    std::string(400'000, 'x'));
    EXPECT_EQ(connection.read_answer().status, 404);
  }
}

TEST(Tls, notices_clients_that_go_with_and_without_a_word) {
  TlsFixture fixture;
  int num_closed = 0;
  for (const std::string& target : {std::string("/hold"), std::string("/stream/hold")}) {
    for (int way = 0; way < 3; ++way) {
      TlsConnection connection(fixture.server->port());
      ASSERT_TRUE(connection.handshake()) << connection.error();
      connection.send(tls_get(target));
      ASSERT_TRUE(eventually([&] { return fixture.events->num_held == 1; }));
      if (way == 0) connection.close_notify();
      if (way == 1) connection.close();
      if (way == 2) connection.reset();
      ++num_closed;
      EXPECT_TRUE(eventually([&] { return fixture.events->num_closed == num_closed; })) << way;
    }
  }
}

TEST(Tls, refuses_old_versions_and_takes_1_2) {
  TlsFixture fixture;
  TlsConnection old(fixture.server->port(), TLS1_1_VERSION);
  EXPECT_FALSE(old.handshake());
  EXPECT_NE(old.error().find("alert protocol version"), std::string::npos) << old.error();
  TlsConnection current(fixture.server->port(), TLS1_2_VERSION);
  EXPECT_TRUE(current.handshake()) << current.error();
  EXPECT_EQ(fixture.answer(), "hello");
}

TEST(Tls, takes_suites_of_1_2_that_are_modern_and_no_others) {
  TlsFixture fixture;
  // The certificate's key is of an elliptic curve: suites that sign with RSA could not be chosen anyway.
  for (const char* suite : {"ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
                            "ECDHE-ECDSA-CHACHA20-POLY1305"}) {
    TlsConnection modern(fixture.server->port(), TLS1_2_VERSION, suite);
    EXPECT_TRUE(modern.handshake()) << suite << modern.error();
  }
  for (const char* suite :
       {"ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES128-SHA",
        "ECDHE-ECDSA-AES256-SHA", "ECDHE-ECDSA-CAMELLIA128-SHA256", "ECDHE-ECDSA-AES128-CCM8"}) {
    TlsConnection old(fixture.server->port(), TLS1_2_VERSION, suite);
    EXPECT_FALSE(old.handshake()) << suite;
    EXPECT_NE(old.error().find("handshake failure"), std::string::npos) << suite << old.error();
  }
}

// Shares of finite fields cost their sender nothing and the server a tenth of a second.
TEST(Tls, agrees_on_keys_by_elliptic_curves_only) {
  TlsFixture fixture;
  for (const char* group : {"X25519", "P-256", "P-384", "P-521"}) {
    TlsConnection modern(fixture.server->port());
    modern.offer_groups(group);
    EXPECT_TRUE(modern.handshake()) << group << modern.error();
  }
  for (const char* group : {"ffdhe2048", "ffdhe3072", "ffdhe8192", "X448"}) {
    TlsConnection dear(fixture.server->port());
    dear.offer_groups(group);
    EXPECT_FALSE(dear.handshake()) << group;
    EXPECT_NE(dear.error().find("handshake failure"), std::string::npos) << group << dear.error();
  }
}

TEST(Tls, handshakes_that_come_at_once_all_end) {
  TlsFixture fixture;
  std::vector<std::unique_ptr<TlsConnection>> connections;
  for (int i = 0; i < 20; ++i) {
    connections.push_back(std::make_unique<TlsConnection>(fixture.server->port()));
    connections.back()->offer_groups("P-384");
  }
  std::vector<std::thread> clients;
  std::atomic<int> num_good{0};
  for (const auto& connection : connections) {
    clients.emplace_back([&connection, &num_good] { num_good += connection->handshake() ? 1 : 0; });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_good.load(), 20);
}

void copy_pair(const TestCertificate& from, const TestCertificate& to) {
  const auto replace = std::filesystem::copy_options::overwrite_existing;
  std::filesystem::copy_file(from.certificate_path(), to.certificate_path(), replace);
  std::filesystem::copy_file(from.key_path(), to.key_path(), replace);
}

TEST(Tls, new_connections_get_the_certificate_that_was_read_again) {
  TlsFixture fixture;
  const TestCertificate renewed, other;
  const auto fingerprint = [&] {
    TlsConnection connection(fixture.server->port());
    EXPECT_TRUE(connection.handshake()) << connection.error();
    return connection.fingerprint();
  };
  TlsConnection old(fixture.server->port());
  ASSERT_TRUE(old.handshake());
  const std::string before = fingerprint();
  EXPECT_EQ(old.fingerprint(), before);
  copy_pair(renewed, fixture.certificate);
  EXPECT_EQ(fingerprint(), before);
  ASSERT_TRUE(fixture.server->reload_tls());
  const std::string after = fingerprint();
  EXPECT_NE(after, before);
  // Who was there goes on.
  old.send(tls_get("/hello"));
  EXPECT_EQ(old.read_answer().body, "hello");
  // A pair that does not belong together.
  std::filesystem::copy_file(other.key_path(), fixture.certificate.key_path(),
                             std::filesystem::copy_options::overwrite_existing);
  const Status mismatched = fixture.server->reload_tls();
  ASSERT_FALSE(mismatched);
  EXPECT_NE(mismatched.error().message.find("does not belong to"), std::string::npos);
  std::filesystem::remove(fixture.certificate.certificate_path());
  ASSERT_FALSE(fixture.server->reload_tls());
  EXPECT_EQ(fingerprint(), after);
}

TEST(Tls, closes_on_plain_text_and_on_silence) {
  TlsFixture fixture;
  RawConnection plain(fixture.server->port());
  plain.send(tls_get("/hello"));
  EXPECT_TRUE(plain.wait_closed());
  EXPECT_EQ(fixture.answer(), "hello");
  EXPECT_TRUE(eventually([&] { return fixture.server->counters().open_connections == 0; }));
  const TlsFixture impatient(std::chrono::milliseconds(100));
  RawConnection silent(impatient.server->port());
  EXPECT_TRUE(silent.wait_closed());
  EXPECT_TRUE(eventually([&] { return impatient.server->counters().open_connections == 0; }));
}

// What the server says when it cannot start with these files.
std::string refusal(const std::string& certificate_path, const std::string& key_path) {
  ServerConfig config = sample_config();
  config.tls_certificate_path = certificate_path;
  config.tls_key_path = key_path;
  try {
    const Server server(std::move(config), sample_router());
  } catch (const StartupError& error) {
    return error.what();
  }
  return "started";
}

TEST(Tls, names_the_file_that_it_cannot_use) {
  const TestCertificate one, other;
  const std::string missing = one.key_path() + ".missing", pipe = one.key_path() + ".pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  struct Case {
    std::string certificate_path, key_path, named, rule;
  };
  const std::vector<Case> cases = {
      {missing, one.key_path(), missing, "must be a readable PEM file of a certificate chain"},
      {one.key_path(), one.key_path(), one.key_path(), "certificate chain"},
      {one.certificate_path(), missing, missing, "private key without a passphrase"},
      {one.certificate_path(), one.encrypted_key_path(), one.encrypted_key_path(),
       "without a passphrase"},
      {one.certificate_path(), other.key_path(), other.key_path(), "does not belong to"},
      {one.certificate_path(), "", "", "both"},
      {"/dev/zero", one.key_path(), "/dev/zero", "must be a regular file, is a device"},
      {one.certificate_path(), pipe, pipe, "must be a regular file, is a pipe"},
  };
  for (const Case& bad : cases) {
    const std::string message = refusal(bad.certificate_path, bad.key_path);
    EXPECT_NE(message.find(bad.named), std::string::npos) << message;
    EXPECT_NE(message.find(bad.rule), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace fathom::http::tests
