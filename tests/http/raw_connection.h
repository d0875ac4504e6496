#pragma once
// RawConnection: a blocking TCP client for tests that must control every byte. Its reader of answers is small
// and strict: status line, headers, Content-Length or chunks or close.
//
//   RawConnection connection(port);
//   connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
//   RawAnswer answer = connection.read_answer();
//
// Every read gives up after its timeout. Not thread-safe. Owns its socket.

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <string_view>

namespace fathom::http::tests {

struct RawAnswer {
  int status = 0;                              // 0: no whole answer came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool closes = false;                         // says "Connection: close"
  bool is_whole = false;
};

class RawConnection {
 public:
  static constexpr std::chrono::milliseconds kTimeout{60'000};  // for busy machines

  // receive_buffer_bytes: of the socket, for slow readers; 0 = the system's.
  // source: the address to come from, one of loopback; null: the system's choice.
  explicit RawConnection(int port, int receive_buffer_bytes = 0, const char* source = nullptr);
  virtual ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // false: the peer has closed.
  bool send(std::string_view bytes);
  // What has come within the time, at least one byte unless the end or the timeout came first.
  std::string read_some(std::chrono::milliseconds timeout = kTimeout);
  RawAnswer read_answer(bool is_head = false, std::chrono::milliseconds timeout = kTimeout);
  // Reads until the text has come; false at the end or the timeout. What was read stays for read_answer().
  bool wait_for(std::string_view text, std::chrono::milliseconds timeout = kTimeout);
  // Reads and drops until the peer closes; false when it does not in time.
  bool wait_closed(std::chrono::milliseconds timeout = kTimeout);
  void half_close();
  void reset();  // closes with RST
  void close();
  const std::string& unread() const { return unread_; }

 protected:
  static constexpr ssize_t kNothingYet = -2;
  int fd() const { return fd_; }
  // As send() and recv(); receive_some may also say kNothingYet.
  virtual ssize_t send_some(const char* bytes, size_t num_bytes);
  virtual ssize_t receive_some(char* bytes, size_t num_bytes);
  // Whether something was read from the socket and not yet handed out.
  virtual bool has_buffered() const { return false; }

 private:
  bool fill(std::chrono::steady_clock::time_point deadline);

  int fd_ = -1;
  bool has_ended_ = false;
  std::string unread_;
};

}  // namespace fathom::http::tests
