#pragma once
// Socket: a TCP connection, plain or TLS, behind one small interface, so that Connection is written once. Only
// .cc files of this module include it (it brings Asio).
//
//   auto socket = make_plain_socket(std::move(tcp_socket));
//   socket->read_some(asio::buffer(bytes), [self](error_code error, size_t num) { ... });
//
// One read and one write may be in flight at a time. Not thread-safe: used on its event loop's thread.

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "http/handshake_pacer_internal.h"

namespace fathom::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class Socket {
 public:
  using DoneHandler = std::function<void(error_code)>;
  using IoHandler = std::function<void(error_code, size_t)>;

  virtual ~Socket() = default;
  // The server's side of the TLS handshake; plain sockets are done at once (in a later turn).
  virtual void handshake(DoneHandler done) = 0;
  virtual void read_some(asio::mutable_buffer buffer, IoHandler done) = 0;
  virtual void write_some(asio::const_buffer buffer, IoHandler done) = 0;
  // Says that nothing more will be written. TLS: done without an error once the peer has said so too; data of
  // the peer that is still to be read makes it an error.
  virtual void shutdown_send(DoneHandler done) = 0;
  virtual void close() = 0;
  virtual tcp::socket& tcp_socket() = 0;
};

std::unique_ptr<Socket> make_plain_socket(tcp::socket socket);
// Its handshake begins when the client's hello is there and `pacer`, that of the socket's loop, gives it its turn.
std::unique_ptr<Socket> make_tls_server_socket(tcp::socket socket, asio::ssl::context& context,
                                               HandshakePacer& pacer);

// TLS 1.2 or later with the given PEM files. An error names the file.
Result<std::shared_ptr<asio::ssl::context>> make_server_tls(const std::string& certificate_path,
                                                            const std::string& key_path);

}  // namespace fathom::http
