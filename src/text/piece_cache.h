#pragma once
// A bounded memory of pieces already encoded: direct-mapped, 1 MiB, one cache line per entry; a new piece
// takes the place of the old one in its slot. Only short pieces with few ids are kept, which text repeats.
//
//   const PieceKey key = PieceKey::of(piece, text_end);
//   if (const PieceCache::Entry* hit = cache.find(owner, key)) use(hit->ids, hit->num_ids);
//
// Owned by one thread.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace fathom::text {

// The bytes of a piece as three words padded with zeros.
struct PieceKey {
  static constexpr size_t kMaxBytes = 24;
  std::array<uint64_t, 3> words{};
  uint32_t num_bytes = 0;

  bool operator==(const PieceKey& other) const {
    const uint64_t difference = (words[0] ^ other.words[0]) | (words[1] ^ other.words[1]) |
                                (words[2] ^ other.words[2]) | (num_bytes ^ other.num_bytes);
    return difference == 0;
  }

  // `readable_end` bounds what may be loaded: whole words are read where they fit.
  // REQUIRES: 0 < piece.size() <= kMaxBytes.
  static PieceKey of(std::string_view piece, const char* readable_end) {
    static_assert(std::endian::native == std::endian::little);
    PieceKey key;
    key.num_bytes = static_cast<uint32_t>(piece.size());
    if (readable_end - piece.data() < static_cast<std::ptrdiff_t>(kMaxBytes)) {
      std::memcpy(key.words.data(), piece.data(), piece.size());
      return key;
    }
    std::memcpy(key.words.data(), piece.data(), kMaxBytes);
    for (size_t word = 0; word < key.words.size(); ++word) {
      const size_t before = 8 * word;
      if (piece.size() <= before) {
        key.words[word] = 0;
      } else if (piece.size() < before + 8) {
        key.words[word] &= (uint64_t{1} << (8 * (piece.size() - before))) - 1;
      }
    }
    return key;
  }
};

class PieceCache {
 public:
  static constexpr size_t kMaxIds = 6;
  struct alignas(64) Entry {
    PieceKey key;
    uint32_t owner = 0;  // the tokenizer whose ids these are, and PieceOwner whose texts
    std::array<int32_t, kMaxIds> ids{};
    uint32_t num_ids = 0;
  };
  static_assert(sizeof(Entry) == 64);

  const Entry* find(uint32_t owner, const PieceKey& key) const {
    if (entries_.empty()) return nullptr;
    const Entry& entry = entries_[slot_of(owner, key)];
    return entry.owner == owner && entry.key == key ? &entry : nullptr;
  }

  // Remembers the ids unless there are too many.
  void insert(uint32_t owner, const PieceKey& key, std::span<const int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    if (entries_.empty()) entries_.resize(kNumEntries);
    Entry& entry = entries_[slot_of(owner, key)];
    entry.key = key;
    entry.owner = owner;
    entry.num_ids = static_cast<uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), entry.ids.begin());
  }

 private:
  static constexpr size_t kSlotBits = 14;
  static constexpr size_t kNumEntries = size_t{1} << kSlotBits;

  static size_t slot_of(uint32_t owner, const PieceKey& key) {
    uint64_t hash = (key.words[0] ^ owner) * 0x9e3779b97f4a7c15u;
    hash = (std::rotl(hash, 29) ^ key.words[1]) * 0xbf58476d1ce4e5b9u;
    hash = (std::rotl(hash, 29) ^ key.words[2] ^ key.num_bytes) * 0x94d049bb133111ebu;
    return hash >> (64 - kSlotBits);
  }

  std::vector<Entry> entries_;  // allocated by the first insert
};

}  // namespace fathom::text
