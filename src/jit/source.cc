#include "jit/source.h"

#include <openssl/sha.h>

#include <array>

namespace fathom::jit {

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string key_of(const Source& source) {
  std::string all;
  // With its length, so that no two lists of parts read the same.
  const auto add = [&all](std::string_view part) {
    all += std::to_string(part.size()) + ":";
    all += part;
  };
  for (const std::string& option : source.options) add(option);
  add(source.entry);
  add(source.text);
  for (const Header& header : source.headers) {
    add(header.name);
    add(header.text);
  }
  return sha256_hex(all);
}

}  // namespace fathom::jit
