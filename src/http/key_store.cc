#include "http/key_store.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <sstream>

#include "base/whole_file.h"

namespace fathom::http {
namespace {

constexpr int64_t kMaxFileBytes = 64 << 20;
constexpr size_t kMinKeyBytes = 8, kMaxKeyBytes = 512, kMaxNameBytes = 64;

std::array<unsigned char, 32> sha256_of(std::string_view text) {
  std::array<unsigned char, 32> digest = {};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '_' || c == '.' || c == '-';
         });
}

bool is_key(std::string_view text) {
  return text.size() >= kMinKeyBytes && text.size() <= kMaxKeyBytes &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

Status KeyStore::add(std::string_view entry, KeyRole role) {
  Key key;
  key.role = role;
  key.name = (role == KeyRole::kAdmin ? "admin-" : "key-") + std::to_string(keys_.size() + 1);
  const size_t colon = entry.find(':');
  if (colon != std::string_view::npos) {
    if (!is_name(entry.substr(0, colon)))
      return invalid_argument(
          "an API key's name (before the colon) must be 1 to 64 of A-Za-z0-9_.-");
    key.name = entry.substr(0, colon);
    entry.remove_prefix(colon + 1);
  }
  if (!is_key(entry))
    return invalid_argument("the API key '" + key.name + "' has " + std::to_string(entry.size()) +
                            " characters, must have 8 to 512, visible ASCII without spaces" +
                            (entry.size() < kMinKeyBytes && colon != std::string_view::npos
                                 ? " (what is before the colon is its name)"
                                 : ""));
  key.sha256 = sha256_of(entry);
  for (const Key& other : keys_) {
    if (other.name == key.name)
      return invalid_argument("two API keys have the name '" + key.name + "'");
    if (other.sha256 == key.sha256)
      return invalid_argument("API keys '" + other.name + "' and '" + key.name + "' are the same");
  }
  keys_.push_back(std::move(key));
  return {};
}

Status KeyStore::add_file(const std::string& path, KeyRole role) {
  const Result<std::string> text = read_whole_file(path, kMaxFileBytes);
  if (!text) return invalid_argument("cannot use the API key file " + text.error().message);
  std::istringstream file(*text);
  std::string line;
  size_t num_keys = 0;
  for (int number = 1; std::getline(file, line); ++number) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    if (const Status status = add(line, role); !status)
      return invalid_argument(path + ":" + std::to_string(number) + ": " + status.error().message);
    ++num_keys;
  }
  if (num_keys == 0) return invalid_argument("the API key file " + path + " holds no key");
  return {};
}

const KeyStore::Key* KeyStore::find(std::string_view presented) const {
  // No key is that long; hashing it would let an attacker make the server work.
  if (presented.size() > kMaxKeyBytes) return nullptr;
  const std::array<unsigned char, 32> digest = sha256_of(presented);
  // All keys are compared, so that the time does not tell which one matches or how much of it.
  const Key* found = nullptr;
  for (const Key& key : keys_) {
    if (CRYPTO_memcmp(key.sha256.data(), digest.data(), digest.size()) == 0) found = &key;
  }
  return found;
}

size_t KeyStore::num_of(KeyRole role) const {
  const auto num = std::ranges::count_if(keys_, [&](const Key& key) { return key.role == role; });
  return static_cast<size_t>(num);
}

}  // namespace fathom::http
