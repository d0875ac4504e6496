#pragma once
// Stream: the client's end of a TCP connection, plain or TLS. Only .cc files of this module include it (it brings
// Asio).
//
//   Stream stream(io, tls, "example.org");        // tls null: plain
//   asio::async_connect(stream.tcp_socket(), ...);  stream.handshake([](error_code error) { ... });
//
// One read and one write may be in flight at a time. Not thread-safe: used on its event loop's thread.

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <functional>
#include <optional>
#include <string>

namespace fathom::client {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class Stream {
 public:
  using DoneHandler = std::function<void(error_code)>;
  using IoHandler = std::function<void(error_code, size_t)>;

  // verify: the certificate must be host's, signed by one that `tls` trusts.
  Stream(asio::io_context& io, asio::ssl::context* tls, const std::string& host, bool verify);

  tcp::socket& tcp_socket() { return socket_; }
  void handshake(DoneHandler done);  // plain: done at once, in a later turn
  void read_some(asio::mutable_buffer buffer, IoHandler done);
  void write_some(asio::const_buffer buffer, IoHandler done);
  void close();

 private:
  tcp::socket socket_;
  std::optional<asio::ssl::stream<tcp::socket&>> tls_;
};

}  // namespace fathom::client
