#pragma once
// HMAC-SHA-256: that bytes come from somebody who knows a key, and came whole.
//
//   Hmac hmac(key);
//   Hmac::Digest digest = hmac.of({header, payload});
//   if (!same(digest, received)) refuse();
//
// Not synchronised: one thread at a time per object. Throws std::runtime_error where OpenSSL fails, which is when there
// is no memory.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace fathom::nodes {

using Bytes = std::span<const std::byte>;

inline Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class Hmac {
 public:
  using Digest = std::array<std::byte, 32>;

  explicit Hmac(std::string_view key);
  Hmac(Hmac&& other) noexcept;
  ~Hmac();
  // Of the pieces, one after another.
  Digest of(std::initializer_list<Bytes> pieces);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A key for one purpose, which tells nothing about the key it comes from.
std::string derived_key(std::string_view key, std::string_view purpose);
// Compared in a time that does not depend on where they differ. REQUIRES: as long as one another.
bool same(Bytes a, Bytes b);
// Of bytes that nobody can foresee.
std::string random_bytes(size_t count);
// 64 digits.
std::string sha256_hex(std::string_view bytes);

}  // namespace fathom::nodes
