#pragma once
// A TCP connection with time limits, for the few words that nodes exchange before they trust one another.
//
//   const SocketAddress address = resolve("node0:29500");
//   Socket listener = Socket::listen(address);            // at most one program
//   Socket connection = listener.accept(deadline);
//   connection.read(bytes, deadline);
//
// One thread at a time. Owns its descriptor. Throws SocketError with a sentence.

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace fathom::nodes {

using Deadline = std::chrono::steady_clock::time_point;

class SocketError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  bool is_loopback() const;
  std::string text() const;  // "127.0.0.1:29500", "[::1]:29500"
};

// "HOST:PORT" or "[IPV6]:PORT". Throws for what has another form; nothing for a name that no address is known of.
std::optional<SocketAddress> resolve(const std::string& host_and_port);
// The network interface that has the address ("eth0"); empty = none has.
std::string interface_of(const SocketAddress& address);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  static Socket listen(const SocketAddress& address);
  // Nothing: nobody listens there.
  static std::optional<Socket> connect(const SocketAddress& address, Deadline deadline);
  // Nothing: nobody has come by then.
  std::optional<Socket> accept(Deadline deadline);

  void read(std::span<std::byte> bytes, Deadline deadline);
  void write(std::span<const std::byte> bytes, Deadline deadline);

  // Whether the other side has closed it, and nothing more can be read.
  bool is_closed() const;
  int descriptor() const { return descriptor_; }
  SocketAddress local() const;
  std::string peer() const;

 private:
  int descriptor_ = -1;
};

}  // namespace fathom::nodes
