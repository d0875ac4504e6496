// One request of each kind over a plain socket, byte by byte as a client sees it.

#include "http/server.h"

#include <gtest/gtest.h>

#include "tests/http/raw_connection.h"
#include "tests/http/sample_server.h"

namespace fathom::http {
namespace {

using tests::RawConnection;
using tests::sample_server;

TEST(Server, answers_a_get_and_keeps_the_connection) {
  const auto server = sample_server();
  RawConnection connection(server->port());
  for (int i = 0; i < 3; ++i) {
    connection.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    const auto answer = connection.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "hello");
    EXPECT_FALSE(answer.closes);
  }
  EXPECT_EQ(server->counters().accepted_connections.load(), 1);
}

}  // namespace
}  // namespace fathom::http
