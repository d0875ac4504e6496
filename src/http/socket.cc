#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <utility>

#include "base/check.h"
#include "base/whole_file.h"
#include "http/socket_internal.h"

namespace fathom::http {
namespace {

// For TLS 1.2: only forward secrecy (ECDHE) and authenticated ciphers (AEAD).
constexpr char kTls12Suites[] =
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:"
    "ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:"
    "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
// Elliptic curves only: a hello with a share of ffdhe8192, which OpenSSL offers by itself, costs its sender nothing and
// the server a tenth of a second (the D(HE)at attack, CVE-2002-20001).
constexpr char kGroups[] = "X25519:P-256:P-384:P-521";
constexpr char kCertificateRule[] = "must be a readable PEM file of a certificate chain";
constexpr char kKeyRule[] = "must be a readable PEM file of a private key without a passphrase";

Error unusable(const std::string& what, const std::string& why, const std::string& rule) {
  return invalid_argument("cannot use the TLS " + what + why + " (" + rule + ")");
}

void close_tcp(tcp::socket& socket) {
  error_code ignored;
  socket.close(ignored);
}

class PlainSocket final : public Socket {
 public:
  explicit PlainSocket(tcp::socket socket) : socket_(std::move(socket)) {}

  void handshake(DoneHandler done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
  }
  void read_some(asio::mutable_buffer buffer, IoHandler done) override {
    socket_.async_read_some(buffer, std::move(done));
  }
  void write_some(asio::const_buffer buffer, IoHandler done) override {
    socket_.async_write_some(buffer, std::move(done));
  }
  void shutdown_send(DoneHandler done) override {
    error_code error;
    socket_.shutdown(tcp::socket::shutdown_send, error);
    asio::post(socket_.get_executor(), [done = std::move(done), error] { done(error); });
  }
  void close() override { close_tcp(socket_); }
  tcp::socket& tcp_socket() override { return socket_; }

 private:
  tcp::socket socket_;
};

class TlsSocket final : public Socket {
 public:
  TlsSocket(tcp::socket socket, asio::ssl::context& context, HandshakePacer& pacer)
      : stream_(std::move(socket), context), pacer_(pacer) {}

  void handshake(DoneHandler done) override {
    error_code ignored;
    const std::string address = stream_.next_layer().remote_endpoint(ignored).address().to_string();
    // `done` holds the connection, and that this socket.
    stream_.next_layer().async_wait(
        tcp::socket::wait_read, [this, address, done = std::move(done)](error_code error) mutable {
          if (error) return done(error);
          pacer_.add(address, [this, done = std::move(done)] {
            stream_.async_handshake(asio::ssl::stream_base::server, done);
          });
        });
  }
  void read_some(asio::mutable_buffer buffer, IoHandler done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  void write_some(asio::const_buffer buffer, IoHandler done) override {
    stream_.async_write_some(buffer, std::move(done));
  }
  void shutdown_send(DoneHandler done) override { stream_.async_shutdown(std::move(done)); }
  void close() override { close_tcp(stream_.next_layer()); }
  tcp::socket& tcp_socket() override { return stream_.next_layer(); }

 private:
  asio::ssl::stream<tcp::socket> stream_;
  HandshakePacer& pacer_;
};

}  // namespace

std::unique_ptr<Socket> make_plain_socket(tcp::socket socket) {
  return std::make_unique<PlainSocket>(std::move(socket));
}

std::unique_ptr<Socket> make_tls_server_socket(tcp::socket socket, asio::ssl::context& context,
                                               HandshakePacer& pacer) {
  return std::make_unique<TlsSocket>(std::move(socket), context, pacer);
}

Result<std::shared_ptr<asio::ssl::context>> make_server_tls(const std::string& certificate_path,
                                                            const std::string& key_path) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  FATHOM_CHECK(SSL_CTX_set_cipher_list(context->native_handle(), kTls12Suites) == 1,
               "no suite of " << kTls12Suites);
  FATHOM_CHECK(SSL_CTX_set1_groups_list(context->native_handle(), kGroups) == 1,
               "no group of " << kGroups);
  // Without renegotiation, by which a client can make the server compute; with buffers released while a stream is idle.
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  // Clients resume sessions with tickets; a session cache would only be memory that they can fill.
  SSL_CTX_set_session_cache_mode(context->native_handle(), SSL_SESS_CACHE_OFF);
  error_code error;
  // OpenSSL would open a named pipe too, and wait until somebody writes to it.
  if (const Status checked = check_regular_file(certificate_path); !checked)
    return unusable("certificate ", checked.error().message, kCertificateRule);
  context->use_certificate_chain_file(certificate_path, error);
  if (error)
    return unusable("certificate ", certificate_path + ": " + error.message(), kCertificateRule);
  // OpenSSL would ask for an encrypted key's passphrase at the terminal.
  SSL_CTX_set_default_passwd_cb(context->native_handle(), [](char*, int, int, void*) { return 0; });
  if (const Status checked = check_regular_file(key_path); !checked)
    return unusable("key ", checked.error().message, kKeyRule);
  context->use_private_key_file(key_path, asio::ssl::context::pem, error);
  if (error &&
      ERR_GET_REASON(static_cast<unsigned long>(error.value())) == X509_R_KEY_VALUES_MISMATCH)
    return invalid_argument("the TLS key " + key_path + " does not belong to the certificate " +
                            certificate_path);
  if (error) return unusable("key ", key_path + ": " + error.message(), kKeyRule);
  return context;
}

}  // namespace fathom::http
