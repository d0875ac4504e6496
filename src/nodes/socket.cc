#include "nodes/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

namespace fathom::nodes {
namespace {

std::string last_reason() { return std::generic_category().message(errno); }

const sockaddr* as_sockaddr(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

// False when the time is over.
bool wait_for(int descriptor, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now())
                          .count();
    pollfd poll_of{.fd = descriptor, .events = events, .revents = 0};
    const int ready =
        ::poll(&poll_of, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000)));
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
    if (ready < 0 && errno != EINTR) throw SocketError("poll: " + last_reason());
  }
}

int new_socket(const SocketAddress& address) {
  const int descriptor =
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) throw SocketError("no socket can be made: " + last_reason());
  return descriptor;
}

void set_option(int descriptor, int level, int option) {
  const int on = 1;
  ::setsockopt(descriptor, level, option, &on, sizeof(on));
}

SocketAddress address_by(int (*get)(int, sockaddr*, socklen_t*), int descriptor) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (get(descriptor, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0)
    address.length = 0;
  return address;
}

struct HostAndPort {
  std::string host, port;
};

HostAndPort split(const std::string& text) {
  const size_t colon = text.rfind(':');
  HostAndPort parts;
  if (colon != std::string::npos) parts = {text.substr(0, colon), text.substr(colon + 1)};
  if (parts.host.size() > 2 && parts.host.front() == '[' && parts.host.back() == ']')
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  else if (parts.host.find(':') != std::string::npos)
    parts.host.clear();
  int port = 0;
  const char* const end = parts.port.data() + parts.port.size();
  const auto read = std::from_chars(parts.port.data(), end, port);
  if (parts.host.empty() || read.ec != std::errc() || read.ptr != end || port < 1 || port > 65535)
    throw SocketError("must be HOST:PORT, is " + text);
  return parts;
}

const void* ip_of(const sockaddr* address) {
  return address->sa_family == AF_INET6
             ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)
             : static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
}

}  // namespace

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET6)
    return std::memcmp(ip_of(as_sockaddr(*this)), &in6addr_loopback, sizeof(in6addr_loopback)) == 0;
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
  return storage.ss_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

std::string SocketAddress::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (length == 0 ||
      inet_ntop(storage.ss_family, ip_of(as_sockaddr(*this)), host, sizeof(host)) == nullptr)
    return "an unknown address";
  // The port is at the same place in both forms.
  const auto port = std::to_string(ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port));
  const bool is_v6 = storage.ss_family == AF_INET6;
  return (is_v6 ? "[" : "") + std::string(host) + (is_v6 ? "]:" : ":") + port;
}

std::optional<SocketAddress> resolve(const std::string& host_and_port) {
  const HostAndPort parts = split(host_and_port);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found) != 0) return std::nullopt;
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

std::string interface_of(const SocketAddress& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string name;
  const size_t bytes = address.storage.ss_family == AF_INET6 ? sizeof(in6_addr) : sizeof(in_addr);
  for (const ifaddrs* one = all; one != nullptr && name.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != address.storage.ss_family) continue;
    if (std::memcmp(ip_of(one->ifa_addr), ip_of(as_sockaddr(address)), bytes) == 0)
      name = one->ifa_name;
  }
  freeifaddrs(all);
  // Of 127.0.0.2 too, which no interface lists.
  return name.empty() && address.is_loopback() ? "lo" : name;
}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket Socket::listen(const SocketAddress& address) {
  Socket socket(new_socket(address));
  set_option(socket.descriptor_, SOL_SOCKET, SO_REUSEADDR);
  if (::bind(socket.descriptor_, as_sockaddr(address), address.length) != 0 ||
      ::listen(socket.descriptor_, 64) != 0)
    throw SocketError("cannot listen on " + address.text() + ": " + last_reason());
  return socket;
}

std::optional<Socket> Socket::connect(const SocketAddress& address, Deadline deadline) {
  Socket socket(new_socket(address));
  set_option(socket.descriptor_, IPPROTO_TCP, TCP_NODELAY);
  if (::connect(socket.descriptor_, as_sockaddr(address), address.length) == 0) return socket;
  if (errno != EINPROGRESS || !wait_for(socket.descriptor_, POLLOUT, deadline)) return std::nullopt;
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(socket.descriptor_, SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return std::nullopt;
  return socket;
}

std::optional<Socket> Socket::accept(Deadline deadline) {
  while (wait_for(descriptor_, POLLIN, deadline)) {
    Socket socket(::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.descriptor_ < 0) continue;
    set_option(socket.descriptor_, IPPROTO_TCP, TCP_NODELAY);
    return socket;
  }
  return std::nullopt;
}

void Socket::read(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
    if (count == 0) throw SocketError("closed the connection");
    if (count > 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      if (!wait_for(descriptor_, POLLIN, deadline)) throw SocketError("does not answer");
    } else if (errno != EINTR) {
      throw SocketError("broke the connection: " + last_reason());
    }
  }
}

void Socket::write(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      if (!wait_for(descriptor_, POLLOUT, deadline)) throw SocketError("does not read");
    } else if (errno != EINTR) {
      throw SocketError("broke the connection: " + last_reason());
    }
  }
}

bool Socket::is_closed() const {
  char byte = 0;
  const ssize_t count = ::recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

SocketAddress Socket::local() const { return address_by(::getsockname, descriptor_); }

std::string Socket::peer() const { return address_by(::getpeername, descriptor_).text(); }

}  // namespace fathom::nodes
