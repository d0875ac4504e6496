#pragma once
// NamedBlocks: what somebody who only hears a BlockListener knows of the cache of a RadixWorld, in the words of
// PlainPrefixCache: a character for the salt, then one for every block from the start.

#include <algorithm>
#include <map>
#include <string>

#include "cache/block_listener.h"

namespace fathom::cache::testing {

class NamedBlocks : public BlockListener {
 public:
  void stored(int /*cache*/, const StoredBlocks& blocks) override {
    std::string prefix(1, blocks.salt.back());
    if (blocks.parent != 0) {
      if (prefixes_.count(blocks.parent) == 0) return fail("blocks follow one that is not there");
      prefix = prefixes_.at(blocks.parent);
    }
    const auto block_tokens = static_cast<size_t>(blocks.block_tokens);
    if (blocks.tokens.size() != blocks.names.size() * block_tokens)
      return fail("tokens are missing");
    for (size_t i = 0; i < blocks.names.size(); ++i) {
      // The world's blocks have one token that is not 7.
      const auto tokens = blocks.tokens.subspan(i * block_tokens, block_tokens);
      const auto letter =
          std::find_if(tokens.begin(), tokens.end(), [](int32_t token) { return token != 7; });
      prefix += static_cast<char>(*letter);
      if (!prefixes_.emplace(blocks.names[i], prefix).second) return fail("a name is there twice");
    }
  }
  void removed(int /*cache*/, uint64_t name) override {
    if (prefixes_.erase(name) == 0) fail("a block goes that is not there");
  }
  void cleared(int /*cache*/) override {
    if (!prefixes_.empty()) fail("blocks are forgotten that are there");
  }

  size_t size() const { return prefixes_.size(); }
  // "" = they are the keys of this map; else what is wrong.
  template <class Entries>
  std::string compare(const Entries& entries) const {
    if (!problem_.empty()) return problem_;
    if (entries.size() != prefixes_.size())
      return "the listener knows " + std::to_string(prefixes_.size()) + " blocks";
    for (const auto& [name, prefix] : prefixes_)
      if (entries.count(prefix) == 0) return "the listener knows a block that is not there";
    return "";
  }

 private:
  void fail(const std::string& what) {
    if (problem_.empty()) problem_ = "listener: " + what;
  }

  std::map<uint64_t, std::string> prefixes_;  // by name
  std::string problem_;
};

}  // namespace fathom::cache::testing
