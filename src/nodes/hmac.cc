#include "nodes/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <stdexcept>

#include "base/check.h"

namespace fathom::nodes {
namespace {

void must(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string("OpenSSL: ") + what + " failed");
}

}  // namespace

struct Hmac::State {
  EVP_PKEY* key = nullptr;
  EVP_MD_CTX* context = nullptr;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
  }
};

Hmac::Hmac(std::string_view key) : state_(std::make_unique<State>()) {
  // A key of no bytes is another one than none.
  const std::string text = key.empty() ? std::string(1, '\0') : std::string(key);
  state_->key = EVP_PKEY_new_raw_private_key(
      EVP_PKEY_HMAC, nullptr, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  state_->context = EVP_MD_CTX_new();
  must(state_->key != nullptr && state_->context != nullptr, "a key of HMAC");
}

Hmac::Hmac(Hmac&& other) noexcept = default;

Hmac::~Hmac() = default;

Hmac::Digest Hmac::of(std::initializer_list<Bytes> pieces) {
  Digest digest;
  size_t length = digest.size();
  EVP_MD_CTX* const context = state_->context;
  must(EVP_MD_CTX_reset(context) == 1 &&
           EVP_DigestSignInit(context, nullptr, EVP_sha256(), nullptr, state_->key) == 1,
       "HMAC");
  for (const Bytes& piece : pieces)
    must(EVP_DigestSignUpdate(context, piece.data(), piece.size()) == 1, "HMAC");
  must(EVP_DigestSignFinal(context, reinterpret_cast<unsigned char*>(digest.data()), &length) == 1,
       "HMAC");
  return digest;
}

std::string derived_key(std::string_view key, std::string_view purpose) {
  const Hmac::Digest digest = Hmac(key).of({bytes_of(purpose)});
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

bool same(Bytes a, Bytes b) {
  FATHOM_CHECK(a.size() == b.size(), a.size() << " and " << b.size());
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  must(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) == 1,
       "random bytes");
  return bytes;
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, 32> digest;
  unsigned length = 0;
  must(EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr) == 1,
       "SHA-256");
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace fathom::nodes
