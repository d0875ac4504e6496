// Keys: every route of the sample router against every way of not having one.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "http/key_store.h"
#include "tests/http/raw_connection.h"
#include "tests/http/sample_server.h"
#include "tests/scratch_directory.h"

namespace fathom::http::tests {
namespace {

constexpr char kKey[] = "sk-inference-0123456789", kAdminKey[] = "sk-admin-0123456789";
// "anyone:" and the key.
constexpr char kBasic[] = "Basic YW55b25lOnNrLWluZmVyZW5jZS0wMTIzNDU2Nzg5";

ServerConfig config_with_keys() {
  ServerConfig config = sample_config();
  EXPECT_TRUE(config.keys.add(std::string("web:") + kKey, KeyRole::kInference));
  EXPECT_TRUE(config.keys.add(std::string("root:") + kAdminKey, KeyRole::kAdmin));
  return config;
}

RawAnswer ask(int port, const std::string& method, const std::string& target,
              const std::string& headers) {
  RawConnection connection(port);
  connection.send(method + " " + target + " HTTP/1.1\r\nContent-Length: 0\r\n" +
                  (headers.find("Host:") == std::string::npos ? "Host: a\r\n" : "") + headers +
                  "\r\n");
  return connection.read_answer(method == "HEAD");
}

std::string bearer(const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; }

TEST(Access, no_route_but_the_open_ones_answers_without_a_good_key) {
  const auto server = sample_server(config_with_keys());
  const std::string key = kKey;
  const std::string bad_headers[] = {"",
                                     "Authorization: \r\n",
                                     "Authorization: Bearer\r\n",
                                     bearer(""),
                                     bearer("wrong-key-0123456789"),
                                     bearer(key.substr(0, key.size() - 1)),
                                     bearer(key + "x"),
                                     bearer("x" + key),
                                     bearer(key + " " + key),
                                     "Authorization: " + key + "\r\n",
                                     "Authorization: Token " + key + "\r\n",
                                     "Authorization: Basic " + key + "\r\n",
                                     "Authorization: Basic !!!!\r\n",
                                     "Authorization: Basic YW55b25l\r\n",
                                     "X-Api-Key: Bearer " + key + "\r\n",
                                     "Proxy-Authorization: Bearer " + key + "\r\n",
                                     bearer("sk-INFERENCE-0123456789"),
                                     bearer(std::string(4000, 'a')),
                                     "Host: localhost/livez?\r\n",
                                     "Host: a\r\nHost: /livez\r\n",
                                     bearer(key) + bearer(key),
                                     bearer("x") + bearer(key)};
  const Router router = sample_router();
  for (const Route& route : router.routes()) {
    const std::string path = route.path == "/v1/models/{id}" ? "/v1/models/m" : route.path;
    for (const std::string& headers : bad_headers) {
      const RawAnswer answer = ask(server->port(), route.method, path, headers);
      const bool is_malformed =
          headers.substr(0, 4) == "Host" || headers.find("\nAuthorization") != std::string::npos;
      if (route.access == Access::kOpen && !is_malformed) {
        EXPECT_EQ(answer.status, 200) << path << " " << headers;
      } else {
        EXPECT_TRUE(answer.status == 401 || answer.status == 400)
            << path << " " << headers << answer.status;
      }
    }
    const std::string forms[] = {"http://b" + path,    "/livez/.." + path,     "/%2e%2e" + path,
                                 "/livez%2f.." + path, "/livez/%2e%2e" + path, "/." + path,
                                 path + "%00",         "/livez%00" + path,     "\\" + path,
                                 "/livez;" + path};
    for (const std::string& form : forms) {
      const int status = ask(server->port(), route.method, form, "").status;
      EXPECT_TRUE(status == 401 || status == 400) << form << " " << status;
      const int with_key = ask(server->port(), route.method, form, bearer(key)).status;
      EXPECT_TRUE(with_key == 400 || with_key == 404 || form.substr(0, 11) == "/v1/models/")
          << form << " " << with_key;
    }
    // These are the path itself, and so is who may call it.
    const int plain = ask(server->port(), route.method, path, "").status;
    for (const std::string& form : {"/" + path, "/" + path + "//", path + "/", "/v1" + path}) {
      const bool is_other = form.starts_with("/v1") && !path.starts_with("/v1/");
      const int status = ask(server->port(), route.method, form, "").status;
      EXPECT_EQ(status, is_other ? 401 : plain) << form;
    }
  }
}

TEST(Access, good_keys_open_what_their_role_may) {
  const auto server = sample_server(config_with_keys());
  const int port = server->port();
  EXPECT_EQ(ask(port, "GET", "/hello", bearer(kKey)).status, 200);
  EXPECT_EQ(
      ask(port, "GET", "/hello", "authorization: bearer   " + std::string(kKey) + "  \r\n").status,
      200);
  EXPECT_EQ(ask(port, "GET", "/hello", "Authorization: " + std::string(kBasic) + "\r\n").status,
            200);
  EXPECT_EQ(ask(port, "GET", "/", "Authorization: " + std::string(kBasic) + "\r\n").status, 200);
  EXPECT_EQ(ask(port, "POST", "/flush", bearer(kKey)).status, 401);
  EXPECT_EQ(ask(port, "POST", "/flush", bearer(kAdminKey)).status, 200);
  EXPECT_EQ(ask(port, "GET", "/hello", bearer(kAdminKey)).status, 200);
}

TEST(Access, admin_routes_want_an_admin_key_where_there_are_several_keys) {
  ServerConfig config = sample_config();
  ASSERT_TRUE(config.keys.add(std::string("alice:") + kKey, KeyRole::kInference));
  {
    const auto server = sample_server(config);
    EXPECT_EQ(ask(server->port(), "POST", "/flush", bearer(kKey)).status, 200);
  }
  ASSERT_TRUE(config.keys.add("bob:sk-of-bob-0123456789", KeyRole::kInference));
  const auto server = sample_server(config);
  const auto refused = ask(server->port(), "POST", "/flush", bearer(kKey));
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(refused.body.find("--admin-api-key"), std::string::npos) << refused.body;
  EXPECT_EQ(ask(server->port(), "POST", "/flush", bearer("wrong-key-0123456789")).status, 401);
  EXPECT_EQ(ask(server->port(), "GET", "/hello", bearer(kKey)).status, 200);
}

TEST(Access, a_bare_key_counts_where_nothing_else_is_given) {
  const auto server = sample_server(config_with_keys());
  const int port = server->port();
  const std::string bare = "X-Api-Key: " + std::string(kKey) + "\r\n";
  const auto status = [&](const std::string& headers) {
    return ask(port, "POST", "/messages", headers).status;
  };
  EXPECT_EQ(status(bare), 200);
  EXPECT_EQ(status("x-api-key:   " + std::string(kKey) + "  \r\n"), 200);
  EXPECT_EQ(status(bearer(kKey)), 200);
  EXPECT_EQ(status(bearer(kKey) + "X-Api-Key: wrong-key-0123456789\r\n"), 200);
  EXPECT_EQ(status(bearer("wrong-key-0123456789") + bare), 401);
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("X-Api-Key: \r\n"), 401);
  EXPECT_EQ(status("X-Api-Key: " + std::string(kKey) + "x\r\n"), 401);
  EXPECT_EQ(status("X-Api-Key: Bearer " + std::string(kKey) + "\r\n"), 401);
  EXPECT_EQ(status(bare + bare), 400);
  EXPECT_EQ(ask(port, "GET", "/hello", bare).status, 200);
  EXPECT_EQ(ask(port, "GET", "/v1/models/m", bare).status, 200);
  EXPECT_EQ(ask(port, "POST", "/flush", bare).status, 401);
  EXPECT_EQ(ask(port, "POST", "/flush", "X-Api-Key: " + std::string(kAdminKey) + "\r\n").status,
            200);
}

TEST(Access, errors_of_a_route_have_its_form) {
  const auto server = sample_server(config_with_keys());
  const std::string id = "X-Request-Id: mine-1\r\n";
  EXPECT_EQ(ask(server->port(), "POST", "/messages", id).body,
            R"({"type":"error","error":{"type":"authentication_error",)"
            R"("message":"a valid API key is needed"},"request_id":"mine-1"})");
  EXPECT_EQ(ask(server->port(), "POST", "/messages/drop", id + bearer(kKey)).body,
            R"({"type":"error","error":{"type":"api_error",)"
            R"("message":"the request failed; see the server's log"},"request_id":"mine-1"})");
  // What is below a route is of its API, whether it is there or not.
  EXPECT_EQ(ask(server->port(), "POST", "/messages/batches", id + bearer(kKey)).body,
            R"({"type":"error","error":{"type":"not_found_error","message":)"
            R"("there is no resource '/messages/batches'; docs/api.md lists all"},)"
            R"("request_id":"mine-1"})");
  EXPECT_EQ(ask(server->port(), "POST", "/messagesbatches", bearer(kKey)).body.substr(0, 10),
            R"({"error":{)");
  EXPECT_EQ(ask(server->port(), "POST", "/echo", "").body.substr(0, 21),
            R"({"error":{"message":")");
}

TEST(Access, without_a_key_nothing_shows_which_routes_exist) {
  const auto server = sample_server(config_with_keys());
  for (const char* method : {"GET", "POST", "DELETE", "OPTIONS", "HEAD", "FOO"}) {
    EXPECT_EQ(ask(server->port(), method, "/hello", "").status, 401) << method;
    EXPECT_EQ(ask(server->port(), method, "/nothing", "").status, 401) << method;
  }
  EXPECT_EQ(ask(server->port(), "GET", "/nothing", bearer(kKey)).status, 404);
  EXPECT_EQ(ask(server->port(), "DELETE", "/hello", bearer(kKey)).status, 405);
}

TEST(Access, a_browser_is_asked_for_the_key_on_the_page_only) {
  const auto server = sample_server(config_with_keys());
  EXPECT_EQ(ask(server->port(), "GET", "/", "").headers["www-authenticate"].substr(0, 6), "Basic ");
  EXPECT_EQ(ask(server->port(), "GET", "/hello", "").headers["www-authenticate"].substr(0, 7),
            "Bearer ");
}

TEST(Access, keys_can_be_replaced_while_serving) {
  const auto server = sample_server(config_with_keys());
  KeyStore keys;
  ASSERT_TRUE(keys.add("another-key-0123", KeyRole::kInference));
  server->replace_keys(keys);
  EXPECT_TRUE(
      eventually([&] { return ask(server->port(), "GET", "/hello", bearer(kKey)).status == 401; }));
  EXPECT_TRUE(eventually([&] {
    return ask(server->port(), "GET", "/hello", bearer("another-key-0123")).status == 200;
  }));
}

TEST(KeyStore, takes_named_and_unnamed_keys_and_refuses_others) {
  KeyStore keys;
  EXPECT_TRUE(keys.add("0123456789", KeyRole::kInference));
  EXPECT_TRUE(keys.add("alice:abcdefgh:i", KeyRole::kInference));
  ASSERT_NE(keys.find("0123456789"), nullptr);
  EXPECT_EQ(keys.find("0123456789")->name, "key-1");
  EXPECT_EQ(keys.find("abcdefgh:i")->name, "alice");
  EXPECT_EQ(keys.find("abcdefgh"), nullptr);
  EXPECT_EQ(keys.find(""), nullptr);
  for (const char* bad : {"", "short", "a b c d e f", ":abcdefgh", "bad name:abcdefgh",
                          "alice:another-key", "bob:0123456789", "caf\xc3\xa9-key-1234"}) {
    const Status status = keys.add(bad, KeyRole::kInference);
    EXPECT_FALSE(status) << bad;
    EXPECT_EQ(status.error().message.find("another-key"), std::string::npos);
  }
}

TEST(KeyStore, reads_a_file_and_names_its_bad_line) {
  const ScratchDirectory directory;
  const std::string path = directory / "keys";
  std::ofstream(path) << "# comment\n\nalice:abcdefgh1\r\nabcdefgh2\n";
  KeyStore keys;
  EXPECT_TRUE(keys.add_file(path, KeyRole::kInference));
  EXPECT_EQ(keys.size(), 2u);
  EXPECT_NE(keys.find("abcdefgh1"), nullptr);
  std::ofstream(path) << "abcdefgh3\nbad\n";
  const Status status = keys.add_file(path, KeyRole::kInference);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find(":2:"), std::string::npos) << status.error().message;
  std::ofstream(path) << "# nothing\n";
  EXPECT_FALSE(keys.add_file(path, KeyRole::kInference));
  std::filesystem::remove(path);
  EXPECT_FALSE(keys.add_file(path, KeyRole::kInference));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const Status of_pipe = keys.add_file(path, KeyRole::kInference);
  ASSERT_FALSE(of_pipe);
  EXPECT_NE(of_pipe.error().message.find("must be a regular file"), std::string::npos);
}

}  // namespace
}  // namespace fathom::http::tests
