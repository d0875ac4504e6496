#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace fathom::text {
namespace {

// Up to here rescanning all pairs after each merge beats the heap.
constexpr size_t kShortBytes = 32;

}  // namespace

BpeMerges::BpeMerges(const std::array<int32_t, 256>& byte_ids, const std::vector<MergeRule>& rules)
    : byte_ids_(byte_ids) {
  const size_t num_slots = std::bit_ceil(std::max<size_t>(16, 2 * rules.size()));
  shift_ = 64 - std::countr_zero(num_slots);
  slots_.resize(num_slots);
  for (const MergeRule& rule : rules) {
    const uint64_t pair = pair_of(rule.left_id, rule.right_id);
    size_t slot = slot_of(pair);
    while (slots_[slot].pair != kEmptyPair) {
      FATHOM_CHECK(slots_[slot].pair != pair,
                   "the merge of rank " << rule.rank << " repeats a pair");
      slot = (slot + 1) & (num_slots - 1);
    }
    const auto rank = static_cast<uint32_t>(rule.rank);
    slots_[slot] = {pair, rank};
    if (rank >= merged_ids_.size()) merged_ids_.resize(size_t{rank} + 1);
    merged_ids_[rank] = rule.merged_id;
  }
}

uint32_t BpeMerges::rank(int32_t left_id, int32_t right_id) const {
  const uint64_t pair = pair_of(left_id, right_id);
  const Slot* const slots = slots_.data();
  const size_t mask = slots_.size() - 1;
  for (size_t slot = slot_of(pair);; slot = (slot + 1) & mask) {
    if (slots[slot].pair == pair) return slots[slot].rank;
    if (slots[slot].pair == kEmptyPair) return kNoRank;
  }
}

void BpeMerges::encode(std::string_view piece, BpeScratch& scratch,
                       std::vector<int32_t>& ids) const {
  if (piece.size() <= kShortBytes) {
    encode_short(piece, ids);
  } else {
    encode_long(piece, scratch, ids);
  }
}

void BpeMerges::encode_short(std::string_view piece, std::vector<int32_t>& ids) const {
  std::array<int32_t, kShortBytes + 1> symbols;
  std::array<uint32_t, kShortBytes + 1> ranks;  // of the pair (i, i + 1)
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    symbols[best] = merged_ids_[ranks[best]];
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) ranks[i] = ranks[i + 1];
    if (best + 1 < count) ranks[best] = rank(symbols[best], symbols[best + 1]);
    if (best > 0) ranks[best - 1] = rank(symbols[best - 1], symbols[best]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

void BpeMerges::encode_long(std::string_view piece, BpeScratch& scratch,
                            std::vector<int32_t>& ids) const {
  FATHOM_CHECK(piece.size() < 0xffffffffu, "a piece of " << piece.size() << " bytes");
  const auto end = static_cast<uint32_t>(piece.size());
  scratch.ids.resize(end);
  scratch.ranks.assign(end, kNoRank);
  scratch.next.resize(end);
  scratch.previous.resize(end);
  scratch.candidates.clear();
  for (uint32_t i = 0; i < end; ++i) {
    scratch.ids[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
    scratch.next[i] = i + 1;
    scratch.previous[i] = i - 1;  // wraps at 0, which merge_at() tests first
  }
  for (uint32_t i = 0; i + 1 < end; ++i) {
    scratch.ranks[i] = rank(scratch.ids[i], scratch.ids[i + 1]);
    if (scratch.ranks[i] != kNoRank)
      scratch.candidates.push_back(uint64_t{scratch.ranks[i]} << 32 | i);
  }
  std::make_heap(scratch.candidates.begin(), scratch.candidates.end(), std::greater<>());
  while (!scratch.candidates.empty()) {
    std::pop_heap(scratch.candidates.begin(), scratch.candidates.end(), std::greater<>());
    const uint64_t best = scratch.candidates.back();
    scratch.candidates.pop_back();
    const auto start = static_cast<uint32_t>(best);
    // A rank belongs to one merged token, so an equal rank means that the pair still merges to what was pushed.
    if (scratch.ranks[start] == best >> 32) merge_at(start, scratch, end);
  }
  for (uint32_t i = 0; i < end; i = scratch.next[i]) ids.push_back(scratch.ids[i]);
  constexpr size_t kKeptBytes = size_t{1} << 20;
  if (piece.size() > kKeptBytes) scratch = {};
}

void BpeMerges::merge_at(uint32_t start, BpeScratch& scratch, uint32_t end) const {
  const uint32_t gone = scratch.next[start];
  scratch.ids[start] = merged_ids_[scratch.ranks[start]];
  scratch.ids[gone] = -1;
  scratch.ranks[gone] = kNoRank;
  scratch.next[start] = scratch.next[gone];
  if (scratch.next[start] != end) scratch.previous[scratch.next[start]] = start;
  set_rank(start, scratch, end);
  if (start != 0) set_rank(scratch.previous[start], scratch, end);
}

void BpeMerges::set_rank(uint32_t start, BpeScratch& scratch, uint32_t end) const {
  const uint32_t next = scratch.next[start];
  const uint32_t pair_rank = next == end ? kNoRank : rank(scratch.ids[start], scratch.ids[next]);
  scratch.ranks[start] = pair_rank;
  if (pair_rank == kNoRank) return;
  scratch.candidates.push_back(uint64_t{pair_rank} << 32 | start);
  std::push_heap(scratch.candidates.begin(), scratch.candidates.end(), std::greater<>());
}

}  // namespace fathom::text
