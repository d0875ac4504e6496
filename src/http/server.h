#pragma once
// Server: HTTP/1.1 (and 1.0), plain or TLS, over a Router. Each I/O thread runs its own event loop; a
// connection stays on one thread for life, so what a handler keeps per request needs no lock.
//
//   Server server({.host = "127.0.0.1", .port = 30000, .num_threads = 2}, std::move(router));  // binds
//   server.start();                                // from here on connections are accepted
//   server.post(exchange->thread_idx(), [] { ... });
//   server.begin_drain();                          // SIGTERM: answers say "Connection: close"
//   server.wait_idle(std::chrono::seconds(60));
//   server.stop();                                 // closes what is left, joins the threads
//
// A client that has gone, half-closed its side, or does not take its answer is noticed while a request is in
// work, whether or not an answer has begun (Exchange::on_close).
//
// Public functions are thread-safe; stop() and the destructor may not run on an I/O thread. Handlers may use
// their ExchangePtr after the server is gone: every call is then a no-op.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/key_store.h"
#include "http/limits.h"
#include "http/router.h"
#include "http/server_counters.h"

namespace fathom::http {

// One finished exchange, for the access log and metrics. The views live only during the call.
struct AccessRecord {
  std::string_view method;
  std::string_view route_path;  // as registered ("/v1/models/{id}"); empty: none matched
  std::string_view request_id;
  std::string_view key_name;
  int status = 0;  // 0: the client went before an answer began
  int64_t request_body_bytes = 0;
  int64_t response_bytes = 0;  // as sent, head and framing included
  double milliseconds = 0;     // head complete to answer handed to the socket
  bool client_gone = false;    // before the answer was complete
  bool has_own_line = false;   // the handler logs this one itself (Exchange::claim_log_line)
};

struct ServerConfig {
  std::string host = "127.0.0.1";  // an address or a name; "::" and "0.0.0.0" bind everything
  int port = 0;                    // 0: the kernel chooses, see Server::port()
  int num_threads = 2;
  Limits limits = {};
  Timeouts timeouts = {};
  // PEM chain; with the key's path: TLS 1.2 or later instead of plain HTTP.
  std::string tls_certificate_path = {};
  std::string tls_key_path = {};
  KeyStore keys = {};  // empty: nobody is asked for a key
  // Names that the Host header may have besides those of loopback and `host`; "*": any. Checked by servers without
  // keys, and by others if the list is not empty (http/browser_policy.h).
  std::vector<std::string> allowed_hosts = {};
  // Origins besides the server's own whose pages may call; "*": any.
  std::vector<std::string> cors_origins = {};
  // Called on the I/O thread after each exchange; must be quick and may not call the server.
  std::function<void(const AccessRecord&)> on_access = {};
};

class Server {
 public:
  // Binds and starts the I/O threads. Throws StartupError: address in use, unreadable certificate, ...
  Server(ServerConfig config, Router router);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void start();
  int port() const;
  int num_threads() const;
  // Runs a task on an I/O thread, in order per thread, never inside the call. Dropped after stop().
  void post(int thread_idx, std::function<void()> task);
  // Runs a task on the first I/O thread after a delay. Meant for few tasks: each has a timer. Dropped after stop().
  void post_after(std::chrono::milliseconds delay, std::function<void()> task);
  void replace_keys(KeyStore keys);
  // Reads the certificate and its key again, for connections from now on. After an error the old pair stays.
  // REQUIRES: the server was made with a pair.
  Status reload_tls();

  // Kept connections between two requests are closed, every answer from now on closes its connection. New
  // connections are still accepted, and those without a request yet are kept for Timeouts::header, so that
  // health probes and late clients get an answer from the handlers.
  void begin_drain();
  void stop_accepting();
  // Whether every dispatched request was answered, or its client went, within the time.
  bool wait_idle(std::chrono::milliseconds timeout);
  // Handlers and on_access are destroyed before it returns, and with them what they hold.
  void stop();

  const ServerCounters& counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fathom::http
