#pragma once
// TLS for tests: a self-signed certificate made on the spot, and a RawConnection that speaks TLS.
//
//   const TestCertificate certificate;                 // for 127.0.0.1
//   const auto server = sample_server({.tls_certificate_path = certificate.certificate_path(), ...});
//   TlsConnection connection(server->port());
//   ASSERT_TRUE(connection.handshake());
//
// Not thread-safe. A certificate owns its files.

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "tests/http/raw_connection.h"
#include "tests/scratch_directory.h"

namespace fathom::http::tests {

class TestCertificate {
 public:
  TestCertificate();

  std::string certificate_path() const { return folder_ / "cert.pem"; }
  std::string key_path() const { return folder_ / "key.pem"; }
  std::string encrypted_key_path() const { return folder_ / "encrypted_key.pem"; }

 private:
  ScratchDirectory folder_;
};

class TlsConnection : public RawConnection {
 public:
  // versions: the only one offered (TLS1_1_VERSION, ...), 0 = what OpenSSL offers. suites: those offered for it, in
  // OpenSSL's words. The certificate is not verified.
  explicit TlsConnection(int port, int version = 0, const char* suites = "ALL:@SECLEVEL=0");

  // Of key agreement, in OpenSSL's words, instead of what it offers by itself; before the handshake.
  void offer_groups(const char* groups);
  // false: refused; error() says why.
  bool handshake();
  const std::string& error() const { return error_; }
  std::string version() const { return SSL_get_version(ssl_.get()); }
  // SHA-256 of the server's certificate.
  std::string fingerprint() const;
  // Says the end in TLS's own words; the socket stays open.
  void close_notify() { SSL_shutdown(ssl_.get()); }

 protected:
  ssize_t send_some(const char* bytes, size_t num_bytes) override;
  ssize_t receive_some(char* bytes, size_t num_bytes) override;
  bool has_buffered() const override { return SSL_has_pending(ssl_.get()) == 1; }

 private:
  struct Free {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  std::unique_ptr<SSL_CTX, Free> context_;
  std::unique_ptr<SSL, Free> ssl_;
  std::string error_;
};

}  // namespace fathom::http::tests
