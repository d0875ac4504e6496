#pragma once
// BlockIndex: what a router knows of a cache that reads nothing but the batches it publishes. It decodes them itself,
// and refuses what would confuse it.
//
//   BlockIndex index;
//   index.read(events.take_batch(0));
//   EXPECT_EQ(index.problem(), "");
//   index.num_cached_tokens("", tokens);       // of these, from the first on

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace fathom::kv_events::testing {

// MessagePack to JSON values, of the kinds that batches have.
class MessagePackReader {
 public:
  explicit MessagePackReader(std::string_view bytes) : bytes_(bytes) {}

  json::Value value() {
    const auto code = static_cast<uint8_t>(number(1));
    if (code < 0x80) return code;
    if (code >= 0x90 && code < 0xa0) return list(code & 0x0f);
    if (code >= 0xa0 && code < 0xc0) return text(code & 0x1f);
    switch (code) {
      case 0xc0:
        return nullptr;
      case 0xcb:
        return std::bit_cast<double>(number(8));
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        return number(1 << (code - 0xcc));
      case 0xd9:
      case 0xda:
        return text(number(code - 0xd8));
      case 0xdc:
      case 0xdd:
        return list(number(code == 0xdc ? 2 : 4));
      default:
        return "code " + std::to_string(code);
    }
  }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  uint64_t number(int num_bytes) {
    uint64_t result = 0;
    for (; num_bytes > 0; --num_bytes)
      result = result << 8 | static_cast<uint8_t>(bytes_.at(at_++));
    return result;
  }
  json::Value text(uint64_t size) {
    at_ += size;
    return std::string(bytes_.substr(at_ - size, size));
  }
  json::Value list(uint64_t size) {
    json::Value values = json::Value::array();
    for (; size > 0; --size) values.push_back(value());
    return values;
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

class BlockIndex {
 public:
  void read(const std::string& payload) {
    MessagePackReader reader(payload);
    const json::Value batch = reader.value();
    if (!reader.at_end() || batch.size() != 3) return fail("no batch: " + json::dump(batch));
    for (const json::Value& event : batch[1]) apply(event);
  }

  int64_t num_cached_tokens(const std::string& salt, const std::vector<int32_t>& tokens) const {
    uint64_t parent = 0;
    size_t num_cached = 0;
    while (true) {
      const Key* next = nullptr;
      const auto [begin, end] = children_.equal_range(parent);
      for (auto child = begin; child != end; ++child) {
        const Key& key = names_.at(child->second);
        const bool is_next = key.tokens.size() <= tokens.size() - num_cached &&
                             std::equal(key.tokens.begin(), key.tokens.end(),
                                        tokens.begin() + static_cast<std::ptrdiff_t>(num_cached)) &&
                             (parent != 0 || key.salt == salt);
        if (!is_next) continue;
        next = &key;
        parent = child->second;
        break;
      }
      if (next == nullptr) return static_cast<int64_t>(num_cached);
      num_cached += next->tokens.size();
    }
  }

  size_t size() const { return names_.size(); }
  const std::string& problem() const { return problem_; }
  const std::string& kinds() const { return kinds_; }  // of all events, a letter for each

 private:
  struct Key {
    uint64_t parent = 0;
    std::string salt;
    std::vector<int32_t> tokens;
  };

  void fail(const std::string& what) {
    if (problem_.empty()) problem_ = what;
  }

  void apply(const json::Value& event) {
    const auto kind = event.at(0).get<std::string>();
    kinds_ += kind[0] == 'A' ? 'A' : kind[5];  // AllBlocksCleared, BlockStored, BlockRemoved
    if (kind == "BlockStored") return store(event);
    if (kind == "AllBlocksCleared" && event.size() == 1) {
      names_.clear();
      return children_.clear();
    }
    if (kind != "BlockRemoved" || event.size() != 3 || event[2] != "GPU")
      return fail("unknown: " + json::dump(event));
    for (const json::Value& name : event[1]) remove(name.get<uint64_t>());
  }

  void store(const json::Value& event) {
    const auto names = event.at(1).get<std::vector<uint64_t>>();
    const auto tokens = event.at(3).get<std::vector<int32_t>>();
    const auto block = event.at(4).get<size_t>();
    if (event.size() < 8 || !event[5].is_null() || event[6] != "GPU" || !event[7].is_null() ||
        names.empty() || tokens.size() != names.size() * block)
      return fail("not as vLLM has it: " + json::dump(event));
    uint64_t parent = event[2].is_null() ? 0 : event[2].get<uint64_t>();
    if (parent != 0 && names_.count(parent) == 0) return fail("the parent is not there");
    std::string salt;
    if (event.size() > 8) {
      if (event[8].size() != names.size()) return fail("not a salt for each block");
      if (parent == 0) salt = event[8][0][0].get<std::string>();
    }
    for (size_t i = 0; i < names.size(); ++i) {
      const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i * block);
      Key key{parent, salt, {begin, begin + static_cast<std::ptrdiff_t>(block)}};
      if (!names_.emplace(names[i], std::move(key)).second) return fail("stored twice");
      children_.emplace(parent, names[i]);
      parent = names[i];
    }
  }

  void remove(uint64_t name) {
    const auto found = names_.find(name);
    if (found == names_.end()) return fail("removed, but not there");
    if (children_.count(name) > 0) fail("removed before what follows it");
    const auto [begin, end] = children_.equal_range(found->second.parent);
    for (auto child = begin; child != end; ++child) {
      if (child->second != name) continue;
      children_.erase(child);
      break;
    }
    names_.erase(found);
  }

  std::map<uint64_t, Key> names_;
  std::multimap<uint64_t, uint64_t> children_;
  std::string problem_, kinds_;
};

}  // namespace fathom::kv_events::testing
