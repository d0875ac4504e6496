#include <openssl/ssl.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <utility>

#include "client/stream_internal.h"

namespace fathom::client {

Stream::Stream(asio::io_context& io, asio::ssl::context* tls, const std::string& host, bool verify)
    : socket_(io) {
  if (tls == nullptr) return;
  tls_.emplace(socket_, *tls);
  SSL_set_tlsext_host_name(tls_->native_handle(), host.c_str());
  error_code ignored;
  tls_->set_verify_mode(verify ? asio::ssl::verify_peer : asio::ssl::verify_none, ignored);
  if (verify) tls_->set_verify_callback(asio::ssl::host_name_verification(host), ignored);
}

void Stream::handshake(DoneHandler done) {
  if (tls_) return tls_->async_handshake(asio::ssl::stream_base::client, std::move(done));
  asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
}

void Stream::read_some(asio::mutable_buffer buffer, IoHandler done) {
  if (tls_) return tls_->async_read_some(buffer, std::move(done));
  socket_.async_read_some(buffer, std::move(done));
}

void Stream::write_some(asio::const_buffer buffer, IoHandler done) {
  if (tls_) return tls_->async_write_some(buffer, std::move(done));
  socket_.async_write_some(buffer, std::move(done));
}

void Stream::close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace fathom::client
