// Web pages: which Host, Origin and Sec-Fetch-Site get in, with raw headers. What a browser makes of it is in
// tests/page/foreign_page_test.py.

#include <gtest/gtest.h>

#include "base/startup_error.h"
#include "tests/http/raw_connection.h"
#include "tests/http/sample_server.h"

namespace fathom::http::tests {
namespace {

constexpr char kPageKey[] = "sk-page-0123456789";
// "anyone:" and the key.
constexpr char kPageLogin[] = "Authorization: Basic YW55b25lOnNrLXBhZ2UtMDEyMzQ1Njc4OQ==\r\n";
const std::string kPageBearer = std::string("Authorization: Bearer ") + kPageKey + "\r\n";

// A server without keys that knows no name but its own.
ServerConfig open_config() { return {.num_threads = 1}; }

ServerConfig keyed_config() {
  ServerConfig config = open_config();
  EXPECT_TRUE(config.keys.add(kPageKey, KeyRole::kInference));
  return config;
}

class Asked {
 public:
  explicit Asked(ServerConfig config) : server_(sample_server(std::move(config))) {}
  // A Host of "" is none at all.
  RawAnswer answer(const std::string& method, const std::string& path, const std::string& host,
                   const std::string& headers = "") const {
    RawConnection connection(server_->port());
    connection.send(method + " " + path + (host.empty() ? " HTTP/1.0\r\n" : " HTTP/1.1\r\nHost: ") +
                    host + (host.empty() ? "" : "\r\n") + "Content-Length: 0\r\n" + headers +
                    "\r\n");
    return connection.read_answer(method == "HEAD");
  }
  int status(const std::string& method, const std::string& path, const std::string& host,
             const std::string& headers = "") const {
    return answer(method, path, host, headers).status;
  }
  std::string own_host() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  int get(const std::string& path, const std::string& headers) const {
    return status("GET", path, own_host(), headers);
  }
  int post(const std::string& path, const std::string& headers) const {
    return status("POST", path, own_host(), headers);
  }

 private:
  std::unique_ptr<Server> server_;
};

std::string origin_line(const std::string& origin) { return "Origin: " + origin + "\r\n"; }

TEST(BrowserHosts, without_keys_only_names_of_this_server_get_in) {
  const Asked server(open_config());
  for (const char* own :
       {"127.0.0.1", "127.0.0.1:30000", "localhost", "LocalHost:1", "localhost.", "[::1]",
        "[::1]:80", "127.5.6.7", "[0:0:0:0:0:0:0:1]:9", "[::ffff:127.0.0.1]"})
    EXPECT_EQ(server.status("GET", "/hello", own), 200) << own;
  for (const char* foreign :
       {"evil.example", "evil.example:30000", "localhost.evil.example", "127.0.0.1.evil.example",
        "192.168.1.5", "0.0.0.0", "[::]", "[fe80::1]", "localhostx", "a"}) {
    for (const char* path : {"/hello", "/", "/livez", "/nothing"})
      EXPECT_EQ(server.status("GET", path, foreign), 403) << foreign << path;
    EXPECT_EQ(server.status("POST", "/echo", foreign), 403) << foreign;
  }
  // HTTP/1.0 without a Host: no browser.
  EXPECT_EQ(server.status("GET", "/livez", ""), 200);
}

TEST(BrowserHosts, a_refusal_names_the_host_and_the_flag) {
  const Asked server(open_config());
  const RawAnswer answer = server.answer("GET", "/hello", "rebound.example:30000");
  EXPECT_EQ(answer.status, 403);
  EXPECT_NE(answer.body.find("'rebound.example'"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("--allowed-host"), std::string::npos);
  EXPECT_NE(answer.body.find("\"code\":\"host_not_allowed\""), std::string::npos);
}

TEST(BrowserHosts, more_can_be_allowed_and_then_they_are_asked_of_keyed_servers_too) {
  ServerConfig config = open_config();
  config.allowed_hosts = {"Models.Example", "fd00::7"};
  const Asked named(config);
  EXPECT_EQ(named.status("GET", "/hello", "models.example:30000"), 200);
  EXPECT_EQ(named.status("GET", "/hello", "[fd00:0::7]"), 200);
  EXPECT_EQ(named.status("GET", "/hello", "localhost"), 200);
  EXPECT_EQ(named.status("GET", "/hello", "sub.models.example"), 403);
  config.allowed_hosts = {"*"};
  EXPECT_EQ(Asked(config).status("GET", "/hello", "evil.example"), 200);
  EXPECT_EQ(Asked(keyed_config()).status("GET", "/hello", "evil.example", kPageBearer), 200);
  config = keyed_config();
  config.allowed_hosts = {"models.example"};
  const Asked keyed(std::move(config));
  EXPECT_EQ(keyed.status("GET", "/hello", "evil.example", kPageBearer), 403);
  EXPECT_EQ(keyed.status("GET", "/hello", "models.example", kPageBearer), 200);
}

TEST(BrowserHosts, an_admin_key_alone_leaves_the_server_open_and_its_host_asked_for) {
  ServerConfig config = open_config();
  ASSERT_TRUE(config.keys.add("sk-admin-0123456789", KeyRole::kAdmin));
  EXPECT_EQ(Asked(std::move(config)).status("GET", "/hello", "evil.example"), 403);
}

TEST(BrowserHosts, who_listens_everywhere_takes_any_address_and_no_name) {
  ServerConfig config = open_config();
  config.host = "0.0.0.0";
  const Asked server(std::move(config));
  for (const char* address : {"10.1.2.3:30000", "[fd00::7]", "0.0.0.0", "localhost"})
    EXPECT_EQ(server.status("GET", "/hello", address), 200) << address;
  EXPECT_EQ(server.status("GET", "/hello", "evil.example"), 403);
}

TEST(BrowserOrigins, only_the_servers_own_pages_may_call) {
  const Asked server(open_config());
  const std::string own = "http://" + server.own_host();
  EXPECT_EQ(server.post("/echo", origin_line(own)), 200);
  EXPECT_EQ(server.post("/echo", origin_line(own) + "Sec-Fetch-Site: same-origin\r\n"), 200);
  // A tunnel changes the port, in the Host as in the origin.
  EXPECT_EQ(server.status("POST", "/echo", "localhost", origin_line("http://localhost:80")), 200);
  const std::string foreign[] = {"http://evil.example",
                                 "null",
                                 "",
                                 "https://" + server.own_host(),
                                 "http://127.0.0.1",
                                 "http://127.0.0.1:1",
                                 "http://localhost:1",
                                 own + "/",
                                 own + ".evil.example",
                                 "file://",
                                 "chrome-extension://abc",
                                 own + " " + own};
  for (const std::string& origin : foreign) {
    for (const char* site : {"", "Sec-Fetch-Site: same-origin\r\n", "Sec-Fetch-Site: same-site\r\n",
                             "Sec-Fetch-Site: none\r\n", "Sec-Fetch-Site: cross-site\r\n"}) {
      const std::string headers = origin_line(origin) + site;
      for (const char* path : {"/hello", "/", "/livez", "/flush", "/nothing"})
        EXPECT_EQ(server.get(path, headers), 403) << path << " " << headers;
      EXPECT_EQ(server.post("/echo", headers), 403) << headers;
      EXPECT_EQ(server.status("OPTIONS", "/echo", server.own_host(),
                              headers + "Access-Control-Request-Method: POST\r\n"),
                403)
          << headers;
    }
  }
  EXPECT_EQ(server.post("/echo", origin_line(own) + origin_line(own)), 403);
}

TEST(BrowserOrigins, a_refusal_names_the_origin_and_the_flag_and_has_no_cors_header) {
  const Asked server(open_config());
  const RawAnswer answer =
      server.answer("POST", "/echo", server.own_host(), origin_line("http://evil.example:8000"));
  EXPECT_NE(answer.body.find("'http://evil.example:8000'"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("--cors-origin"), std::string::npos);
  EXPECT_EQ(answer.headers.count("access-control-allow-origin"), 0u);
  const RawAnswer quoted =
      server.answer("POST", "/echo", server.own_host(), origin_line("http://a\",\"b\":\"c"));
  EXPECT_NE(quoted.body.find("origin ''"), std::string::npos) << quoted.body;
  const RawAnswer none = server.answer("POST", "/echo", server.own_host(), origin_line("null"));
  EXPECT_NE(none.body.find("origin 'null'"), std::string::npos) << none.body;
}

TEST(BrowserOrigins, same_site_is_not_same_origin) {
  const Asked server(open_config());
  for (const char* site : {"cross-site", "same-site", "Cross-Site", "something-new"}) {
    const std::string headers = std::string("Sec-Fetch-Site: ") + site + "\r\n";
    EXPECT_EQ(server.get("/hello", headers), 403) << site;
    EXPECT_EQ(server.post("/echo", headers), 403) << site;
    // Pages may be linked to, but neither framed nor loaded as anything else.
    EXPECT_EQ(server.get("/", headers), 200) << site;
    EXPECT_EQ(server.get("/", headers + "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n"),
              200);
    EXPECT_EQ(server.get("/", headers + "Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n"),
              403);
    EXPECT_EQ(server.get("/", headers + "Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n"),
              403);
  }
  for (const char* site : {"same-origin", "none"})
    EXPECT_EQ(server.get("/hello", std::string("Sec-Fetch-Site: ") + site + "\r\n"), 200) << site;
}

TEST(BrowserOrigins, behind_a_proxy_that_ends_tls_the_public_origin_is_our_own) {
  ServerConfig config = open_config();
  config.allowed_hosts = {"models.example"};
  const Asked server(std::move(config));
  const auto post = [&](const char* host, const char* origin) {
    return server.status("POST", "/echo", host, origin_line(origin));
  };
  EXPECT_EQ(post("models.example", "https://models.example"), 200);
  EXPECT_EQ(post("models.example:443", "https://models.example"), 200);
  EXPECT_EQ(post("models.example", "https://other.example"), 403);
  EXPECT_EQ(post("localhost", "https://localhost"), 403);
}

TEST(BrowserOrigins, listed_ones_may_call_and_are_told_so) {
  ServerConfig config = keyed_config();
  config.cors_origins = {"https://app.example", "http://localhost:5173",
                         "HTTPS://Third.example:443"};
  const Asked server(std::move(config));
  const auto ask = [&](const std::string& method, const std::string& headers) {
    return server.answer(method, method == "POST" ? "/echo" : "/hello", server.own_host(), headers);
  };
  for (const char* origin :
       {"https://app.example", "http://localhost:5173", "https://third.example"}) {
    const std::string cross = origin_line(origin) + "Sec-Fetch-Site: cross-site\r\n";
    RawAnswer answer = ask("OPTIONS", cross + "Access-Control-Request-Method: GET\r\n");
    EXPECT_EQ(answer.status, 204) << origin;
    EXPECT_EQ(answer.headers["access-control-allow-origin"], origin);
    EXPECT_EQ(answer.headers["access-control-allow-methods"], "GET, HEAD");
    EXPECT_EQ(answer.headers["access-control-allow-headers"],
              "authorization, content-type, x-request-id");
    // What a client brings of its own; no text that is no list of names comes back.
    const std::string asks =
        cross + "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: ";
    answer = ask("OPTIONS", asks + "authorization, x-stainless-os,x-stainless-retry-count\r\n");
    EXPECT_EQ(answer.headers["access-control-allow-headers"],
              "authorization, x-stainless-os,x-stainless-retry-count");
    answer = ask("OPTIONS", asks + "x-a; <b>\r\n");
    EXPECT_EQ(answer.headers["access-control-allow-headers"],
              "authorization, content-type, x-request-id");
    answer = ask("POST", cross + kPageBearer);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers["access-control-allow-origin"], origin);
    EXPECT_EQ(answer.headers["vary"], "Origin");
    answer = ask("POST", cross);
    EXPECT_EQ(answer.status, 401);
    EXPECT_EQ(answer.headers["access-control-allow-origin"], origin);
  }
  for (const char* origin :
       {"http://app.example", "https://app.example:8443", "https://evil.example", "null"}) {
    const RawAnswer answer = ask("POST", origin_line(origin) + kPageBearer);
    EXPECT_EQ(answer.status, 403) << origin;
    EXPECT_EQ(answer.headers.count("access-control-allow-origin"), 0u);
  }
  // A call that the list could let in says who makes it.
  EXPECT_EQ(ask("GET", "Sec-Fetch-Site: cross-site\r\n" + kPageBearer).status, 403);
}

TEST(BrowserOrigins, a_login_that_the_browser_keeps_works_for_the_servers_own_pages_alone) {
  for (const char* listed : {"https://app.example", "*"}) {
    ServerConfig config = keyed_config();
    config.cors_origins = {listed};
    const Asked server(std::move(config));
    const std::string own = origin_line("http://" + server.own_host());
    const std::string foreign = origin_line("https://app.example");
    EXPECT_EQ(server.post("/echo", kPageLogin), 200);
    EXPECT_EQ(server.post("/echo", own + kPageLogin), 200);
    EXPECT_EQ(server.post("/echo", foreign + kPageLogin), 401);
    EXPECT_EQ(server.post("/flush", foreign + kPageLogin), 401);
    EXPECT_EQ(server.get("/", foreign + kPageLogin), 401);
    EXPECT_EQ(server.post("/echo", foreign + kPageBearer), 200);
  }
  const Asked server(keyed_config());
  EXPECT_EQ(server.post("/echo", origin_line("http://localhost:8000") + kPageLogin), 403);
  EXPECT_EQ(server.get("/flush", "Sec-Fetch-Site: same-site\r\n" + std::string(kPageLogin)), 403);
}

TEST(BrowserGets, that_change_something_are_for_tools) {
  const Asked server(open_config());
  EXPECT_EQ(server.get("/flush", ""), 200);
  EXPECT_EQ(server.get("/flush", "User-Agent: curl/8.0\r\n"), 200);
  const std::string own = origin_line("http://" + server.own_host());
  const std::string browsers[] = {own,
                                  "Sec-Fetch-Site: none\r\n",
                                  "Sec-Fetch-Site: same-origin\r\n",
                                  "Sec-Fetch-Mode: navigate\r\n",
                                  "Sec-Fetch-User: ?1\r\n",
                                  "Sec-Fetch-Dest: image\r\n",
                                  "User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n"};
  for (const std::string& headers : browsers) {
    EXPECT_EQ(server.get("/flush", headers), 403) << headers;
    EXPECT_EQ(server.status("HEAD", "/flush", server.own_host(), headers), 403) << headers;
    EXPECT_EQ(server.post("/flush", headers), 200) << headers;
  }
}

TEST(BrowserPolicy, names_an_entry_that_is_none) {
  const auto refusal = [](const char* host, const char* origin) -> std::string {
    ServerConfig config = open_config();
    if (*host != '\0') config.allowed_hosts = {host};
    if (*origin != '\0') config.cors_origins = {origin};
    try {
      const Server server(std::move(config), sample_router());
    } catch (const StartupError& error) {
      return error.what();
    }
    return "started";
  };
  for (const char* host : {"a:30000", "http://a", "a b", "*.example", "[::1]:8"})
    EXPECT_NE(refusal(host, "").find(std::string("'") + host + "'"), std::string::npos) << host;
  for (const char* origin :
       {"example.org", "https://a/path", "null", "https://", "://a", "https://*.a"})
    EXPECT_NE(refusal("", origin).find(std::string("'") + origin + "'"), std::string::npos)
        << origin;
  EXPECT_EQ(refusal("a", "https://a"), "started");
}

}  // namespace
}  // namespace fathom::http::tests
