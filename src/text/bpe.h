#pragma once
// Byte-pair encoding of one piece: start from its bytes, and as long as a neighbouring pair has a merge, do
// the merge of lowest rank, the leftmost first. O(n log n) for any piece.
//
//   BpeMerges merges(byte_ids, rules);
//   BpeScratch scratch;
//   merges.encode("hello", scratch, ids);         // appends
//
// BpeMerges is immutable and thread-safe; a BpeScratch belongs to one caller at a time.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fathom::text {

// In a tokenizer.json one line of "merges", whose rank is its place in the list. In a tiktoken file every way to cut a
// token into two others; the rank is the token's, so rules may share one.
struct MergeRule {
  int32_t left_id = 0;
  int32_t right_id = 0;
  int32_t merged_id = 0;
  int32_t rank = 0;
};

// Buffers kept between calls.
struct BpeScratch {
  std::vector<int32_t> ids;     // [bytes] of the symbol that starts at a byte; -1 once merged away
  std::vector<uint32_t> ranks;  // [bytes] of the pair (this symbol, next symbol)
  std::vector<uint32_t> next;   // [bytes] where the next symbol starts
  std::vector<uint32_t> previous;    // [bytes] where the previous symbol starts
  std::vector<uint64_t> candidates;  // heap of rank << 32 | start; stale entries are skipped
};

class BpeMerges {
 public:
  // REQUIRES: the pairs are distinct, rules of one rank have one merged_id. byte_ids[b] is -1 for a byte that never
  // comes.
  BpeMerges(const std::array<int32_t, 256>& byte_ids, const std::vector<MergeRule>& rules);

  bool has_byte(uint8_t byte) const { return byte_ids_[byte] >= 0; }

  // Appends the ids of `piece`. REQUIRES: every byte has an id; fewer than 2^32 - 1 bytes.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;

 private:
  static constexpr uint32_t kNoRank = 0xffffffffu;
  struct Slot {
    uint64_t pair = kEmptyPair;
    uint32_t rank = kNoRank;
  };
  static constexpr uint64_t kEmptyPair = ~uint64_t{0};
  static uint64_t pair_of(int32_t left_id, int32_t right_id) {
    return uint64_t{static_cast<uint32_t>(left_id)} << 32 | static_cast<uint32_t>(right_id);
  }
  size_t slot_of(uint64_t pair) const { return (pair * 0x9e3779b97f4a7c15u) >> shift_; }

  // kNoRank where the two do not merge.
  uint32_t rank(int32_t left_id, int32_t right_id) const;
  void encode_short(std::string_view piece, std::vector<int32_t>& ids) const;
  void encode_long(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& ids) const;
  void merge_at(uint32_t start, BpeScratch& scratch, uint32_t end) const;
  void set_rank(uint32_t start, BpeScratch& scratch, uint32_t end) const;

  std::array<int32_t, 256> byte_ids_;
  std::vector<int32_t> merged_ids_;  // by rank
  std::vector<Slot> slots_;          // open addressing, at most half full
  int shift_ = 0;                    // 64 - log2(slots)
};

}  // namespace fathom::text
