#include "tests/http/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"

namespace fathom::http::tests {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string to_lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  });
  return lower;
}

// Status and headers of a head that ends with an empty line; false when it is malformed.
bool parse_head(std::string_view head, RawAnswer* answer) {
  if (head.substr(0, 9) != "HTTP/1.1 " || head.size() < 13) return false;
  std::from_chars(head.data() + 9, head.data() + 12, answer->status);
  size_t line = head.find("\r\n") + 2;
  while (line < head.size()) {
    const size_t end = head.find("\r\n", line);
    if (end == line || end == std::string_view::npos) break;
    const std::string_view text = head.substr(line, end - line);
    const size_t colon = text.find(": ");
    if (colon == std::string_view::npos) return false;
    answer->headers[to_lower_case(text.substr(0, colon))] = text.substr(colon + 2);
    line = end + 2;
  }
  const auto connection = answer->headers.find("connection");
  answer->closes = connection != answer->headers.end() && connection->second == "close";
  return true;
}

// Moves whole chunks from the front of `bytes` to `body`; true once the last one has come.
bool take_chunks(std::string* bytes, std::string* body) {
  while (true) {
    const size_t line_end = bytes->find("\r\n");
    if (line_end == std::string::npos) return false;
    size_t size = 0;
    std::from_chars(bytes->data(), bytes->data() + line_end, size, 16);
    if (bytes->size() < line_end + 2 + size + 2) return false;
    body->append(*bytes, line_end + 2, size);
    bytes->erase(0, line_end + 2 + size + 2);
    if (size == 0) return true;
  }
}

}  // namespace

RawConnection::RawConnection(int port, int receive_buffer_bytes, const char* source) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FATHOM_CHECK(fd_ >= 0, "socket");
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (receive_buffer_bytes > 0)
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  if (source != nullptr) {
    address.sin_addr.s_addr = ::inet_addr(source);
    const int bound = ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
    FATHOM_CHECK(bound == 0, "bind to " << source);
  }
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int result = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  FATHOM_CHECK(result == 0, "connect to port " << port);
}

RawConnection::~RawConnection() { close(); }

void RawConnection::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawConnection::reset() {
  const linger now = {.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  close();
}

void RawConnection::half_close() { ::shutdown(fd_, SHUT_WR); }

ssize_t RawConnection::send_some(const char* bytes, size_t num_bytes) {
  return ::send(fd_, bytes, num_bytes, MSG_NOSIGNAL);
}

ssize_t RawConnection::receive_some(char* bytes, size_t num_bytes) {
  return ::recv(fd_, bytes, num_bytes, 0);
}

bool RawConnection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t num = send_some(bytes.data(), bytes.size());
    if (num <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(num));
  }
  return true;
}

bool RawConnection::fill(steady_clock::time_point deadline) {
  if (has_ended_) return false;
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now());
  pollfd entry = {.fd = fd_, .events = POLLIN, .revents = 0};
  if (!has_buffered() &&
      (left.count() < 0 || ::poll(&entry, 1, static_cast<int>(left.count())) <= 0))
    return false;
  std::array<char, 65536> buffer;
  const ssize_t num = receive_some(buffer.data(), buffer.size());
  if (num == kNothingYet) return true;
  if (num <= 0) {
    has_ended_ = true;
    return false;
  }
  unread_.append(buffer.data(), static_cast<size_t>(num));
  return true;
}

std::string RawConnection::read_some(milliseconds timeout) {
  if (unread_.empty()) fill(steady_clock::now() + timeout);
  std::string bytes;
  bytes.swap(unread_);
  return bytes;
}

bool RawConnection::wait_for(std::string_view text, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  while (unread_.find(text) == std::string::npos) {
    if (!fill(deadline)) return false;
  }
  return true;
}

bool RawConnection::wait_closed(milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  while (fill(deadline)) unread_.clear();
  return has_ended_;
}

RawAnswer RawConnection::read_answer(bool is_head, milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  RawAnswer answer;
  size_t head_end;
  while ((head_end = unread_.find("\r\n\r\n")) == std::string::npos) {
    if (!fill(deadline)) return answer;
  }
  if (!parse_head(std::string_view(unread_).substr(0, head_end + 4), &answer)) return answer;
  unread_.erase(0, head_end + 4);
  const auto length = answer.headers.find("content-length");
  if (is_head || answer.status == 204 || answer.status == 100) {
    answer.is_whole = true;
  } else if (answer.headers.count("transfer-encoding") > 0) {
    while (!(answer.is_whole = take_chunks(&unread_, &answer.body)) && fill(deadline)) {
    }
  } else if (length != answer.headers.end()) {
    const size_t size = std::stoul(length->second);
    while (unread_.size() < size && fill(deadline)) {
    }
    answer.is_whole = unread_.size() >= size;
    answer.body = unread_.substr(0, size);
    unread_.erase(0, size);
  } else {
    while (fill(deadline)) {
    }
    answer.is_whole = has_ended_;
    answer.body.swap(unread_);
  }
  return answer;
}

}  // namespace fathom::http::tests
