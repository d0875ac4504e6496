#pragma once
// KeyStore: the API keys that are accepted, with names for logs and roles. Only SHA-256 digests are kept; a
// presented key is compared with all of them in the same time whichever matches.
//
//   KeyStore keys;
//   throw_on_error(keys.add("web:sk-1234", KeyRole::kInference));   // "name:key", or the key alone: key-1
//   throw_on_error(keys.add_file("/etc/fathom/keys", KeyRole::kInference));
//   const KeyStore::Key* key = keys.find(presented);                // null: not one of ours
//
// A value. Read-only while a server uses it: the server copies it (Server::replace_keys).

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom::http {

enum class KeyRole { kInference, kAdmin };

class KeyStore {
 public:
  struct Key {
    std::string name;
    KeyRole role = KeyRole::kInference;
    std::array<unsigned char, 32> sha256 = {};
  };

  // "key" or "name:key"; names are [A-Za-z0-9_.-]{1,64}. A key holds 8 to 512 visible ASCII characters without
  // spaces. Errors name the rule and never the key.
  Status add(std::string_view entry, KeyRole role);
  // One entry per line; empty lines and lines that begin with # are skipped. At least one key.
  Status add_file(const std::string& path, KeyRole role);

  const Key* find(std::string_view presented) const;
  bool empty() const { return keys_.empty(); }
  size_t size() const { return keys_.size(); }
  size_t num_of(KeyRole role) const;
  bool has_role(KeyRole role) const { return num_of(role) > 0; }

 private:
  std::vector<Key> keys_;
};

}  // namespace fathom::http
