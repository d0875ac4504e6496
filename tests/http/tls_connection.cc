#include "tests/http/tls_connection.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>

#include "base/check.h"

namespace fathom::http::tests {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

std::unique_ptr<std::FILE, CloseFile> create(const std::string& path) {
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "w"));
  FATHOM_CHECK(file != nullptr, "create " << path);
  return file;
}

X509* self_signed(EVP_PKEY* key) {
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 24 * 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("fathom test"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_EXTENSION* names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost");
  X509_add_ext(certificate, names, -1);
  X509_EXTENSION_free(names);
  FATHOM_CHECK(X509_sign(certificate, key, EVP_sha256()) > 0, "X509_sign");
  return certificate;
}

}  // namespace

TestCertificate::TestCertificate() {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  FATHOM_CHECK(key != nullptr, "EVP_EC_gen");
  X509* certificate = self_signed(key);
  PEM_write_X509(create(certificate_path()).get(), certificate);
  PEM_write_PrivateKey(create(key_path()).get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  const char passphrase[] = "secret";
  PEM_write_PKCS8PrivateKey(create(encrypted_key_path()).get(), key, EVP_aes_128_cbc(), passphrase,
                            sizeof(passphrase) - 1, nullptr, nullptr);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

TlsConnection::TlsConnection(int port, int version, const char* suites)
    : RawConnection(port), context_(SSL_CTX_new(TLS_client_method())) {
  if (version != 0) {
    // Old versions are off by default on the client's side too.
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_cipher_list(context_.get(), suites);
    SSL_CTX_set_min_proto_version(context_.get(), version);
    SSL_CTX_set_max_proto_version(context_.get(), version);
  }
  // Otherwise a ticket would make a read wait for data.
  SSL_CTX_clear_mode(context_.get(), SSL_MODE_AUTO_RETRY);
  ssl_.reset(SSL_new(context_.get()));
  SSL_set_fd(ssl_.get(), fd());
}

void TlsConnection::offer_groups(const char* groups) {
  FATHOM_CHECK(SSL_set1_groups_list(ssl_.get(), groups) == 1, groups);
}

bool TlsConnection::handshake() {
  ERR_clear_error();
  if (SSL_connect(ssl_.get()) == 1) return true;
  error_.resize(256);
  ERR_error_string_n(ERR_get_error(), error_.data(), error_.size());
  error_.resize(error_.find('\0'));
  return false;
}

std::string TlsConnection::fingerprint() const {
  X509* certificate = SSL_get1_peer_certificate(ssl_.get());
  FATHOM_CHECK(certificate != nullptr, "no certificate");
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  unsigned int num_bytes = 0;
  X509_digest(certificate, EVP_sha256(), reinterpret_cast<unsigned char*>(digest.data()),
              &num_bytes);
  X509_free(certificate);
  digest.resize(num_bytes);
  return digest;
}

ssize_t TlsConnection::send_some(const char* bytes, size_t num_bytes) {
  ERR_clear_error();
  return SSL_write(ssl_.get(), bytes, static_cast<int>(num_bytes));
}

ssize_t TlsConnection::receive_some(char* bytes, size_t num_bytes) {
  ERR_clear_error();
  const int num = SSL_read(ssl_.get(), bytes, static_cast<int>(num_bytes));
  if (num > 0) return num;
  // A ticket or another message without data is no end.
  return SSL_get_error(ssl_.get(), num) == SSL_ERROR_WANT_READ ? kNothingYet : 0;
}

}  // namespace fathom::http::tests
