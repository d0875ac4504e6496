#include "bench/http/vanishing_clients.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bench/http/checked_stream.h"
#include "client/client.h"

namespace fathom::bench {
namespace {

constexpr int kNumTokens = 2000;  // none gets to its end
constexpr double kPatienceSeconds = 60, kIdlePatienceSeconds = 60;

// A blocking connection without any manners.
class RawClient {
 public:
  explicit RawClient(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = static_cast<time_t>(kPatienceSeconds), .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    is_open_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() {
    if (fd_ >= 0) ::close(fd_);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool send(std::string_view bytes) {
    return is_open_ && ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
                           static_cast<ssize_t>(bytes.size());
  }
  // The first event has come.
  bool wait_begun() {
    std::string received;
    char buffer[4096];
    while (received.find("output_ids") == std::string::npos) {
      const ssize_t count = recv(fd_, buffer, sizeof buffer, 0);
      if (count <= 0) return false;
      received.append(buffer, static_cast<size_t>(count));
    }
    return true;
  }
  void vanish(bool with_reset) {
    if (with_reset) {
      const linger option{.l_onoff = 1, .l_linger = 0};
      setsockopt(fd_, SOL_SOCKET, SO_LINGER, &option, sizeof option);
    } else {
      // Unread bytes would turn the FIN into a RST.
      char buffer[65536];
      while (recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT) > 0) {
      }
    }
    ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
  bool is_open_ = false;
};

// What must come back to where it was.
struct Levels {
  double used_tokens = -1, fenced_tokens = -1, running = -1, open_requests = -1, ghosts = -1;
  bool operator==(const Levels&) const = default;
};

constexpr Levels kIdle{
    .used_tokens = 0, .fenced_tokens = 0, .running = 0, .open_requests = 0, .ghosts = 0};

double value_of(const std::string& metrics, const std::string& name) {
  const size_t at = metrics.find("\n" + name + "{");
  if (at == std::string::npos) return -1;
  return std::stod(metrics.substr(metrics.find("} ", at) + 2, 32));
}

Levels levels(client::Client& client, const std::string& url) {
  const std::string metrics = client.call({.url = url + "/metrics"}).body;
  return {.used_tokens = value_of(metrics, "fathom:kv_used_tokens"),
          .fenced_tokens = value_of(metrics, "fathom:kv_fenced_tokens"),
          .running = value_of(metrics, "fathom:num_running_requests"),
          .open_requests = value_of(metrics, "fathom:open_requests"),
          .ghosts = value_of(metrics, "fathom:ghost_requests")};
}

std::string described(const Levels& now) {
  return "used_tokens " + std::to_string(now.used_tokens) + ", fenced_tokens " +
         std::to_string(now.fenced_tokens) + ", running " + std::to_string(now.running) +
         ", open_requests " + std::to_string(now.open_requests) + ", ghosts " +
         std::to_string(now.ghosts);
}

// Until nothing of earlier requests is left; what the levels are then, or at last.
Levels wait_idle(client::Client& client, const std::string& url, double patience_seconds) {
  const Stopwatch watch;
  Levels now = levels(client, url);
  while (now != kIdle && watch.seconds() < patience_seconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    now = levels(client, url);
  }
  return now;
}

std::string request_bytes(const VanishOptions& options, int index) {
  const CheckedStream stream(
      {.index = 2'000'000 + index, .num_tokens = kNumTokens, .vocab_size = options.vocab_size});
  const std::string body = stream.body();
  return "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

}  // namespace

VanishOutcome run_vanishing_clients(const VanishOptions& options) {
  client::Client watcher;
  const int port = std::stoi(options.url.substr(options.url.rfind(':') + 1));
  const Levels before = wait_idle(watcher, options.url, kIdlePatienceSeconds);
  if (before != kIdle) return {.seconds = 0, .problem = "not idle before: " + described(before)};
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < options.num_clients; ++i) {
    clients.push_back(std::make_unique<RawClient>(port));
    if (!clients.back()->send(request_bytes(options, i)))
      return {.seconds = 0, .problem = "a client could not connect"};
  }
  for (const auto& client : clients) {
    if (!client->wait_begun()) return {.seconds = 0, .problem = "a stream did not begin"};
  }
  if (levels(watcher, options.url).running != options.num_clients)
    return {.seconds = 0, .problem = "not all are running at the same time"};
  const Stopwatch watch;
  for (size_t i = 0; i < clients.size(); ++i) clients[i]->vanish(i % 2 == 0);
  const Levels after = wait_idle(watcher, options.url, kPatienceSeconds);
  return {.seconds = watch.seconds(),
          .problem = after == kIdle ? "" : "not back to idle: " + described(after)};
}

}  // namespace fathom::bench
