#include "ops/verify.h"

#include <algorithm>
#include <cstring>

#include "base/rng.h"
#include "cpu/reference/ops.h"
#include "cpu/reference/slots.h"

namespace fathom::cpu::reference {
namespace {

using tensor::Tensor;

// Active query tokens of a slice that goes on from its slot.
template <class Args>
int32_t num_active(const Args& args, int32_t slot, int32_t num_wanted) {
  const int32_t room = at(args.slots.max_rows, slot) - at(args.slots.length, slot);
  return std::clamp(std::min(num_wanted - 1, at(args.slots.num_drafts, slot)) + 1, 0,
                    std::max(room, 0));
}

// Of the draft's depth, 1 below the root, and what lies on the way: bit i + 1 for draft i, bit 0 for the root.
struct Ancestry {
  int32_t depth = 0;
  uint64_t bits = 1;
};

Ancestry ancestry_of(const Tensor& parents, int32_t slot, int32_t draft) {
  Ancestry above;
  for (; draft >= 0; draft = parents.row<int32_t>(slot)[draft]) {
    ++above.depth;
    if (draft < 63) above.bits |= uint64_t{2} << draft;
  }
  return above;
}

void place_draft(const ops::DraftInputsArgs& args, int32_t slot, int32_t begin, int32_t draft,
                 bool active) {
  const int32_t token = begin + draft + 1;
  const Ancestry above = ancestry_of(args.slots.parents, slot, draft);
  at(args.token_ids, token) = active ? args.slots.drafts.row<int32_t>(slot)[draft] : 0;
  at(args.positions, token) = at(args.slots.length, slot) + (active ? above.depth : 0);
  if (!active) *args.kv_rows.row<int64_t>(token) = -1;
  if (!args.tree_mask.is_null())
    *args.tree_mask.row<uint64_t>(token) = active ? above.bits : uint64_t{2} << draft;
}

}  // namespace

void draft_inputs(const ops::DraftInputsArgs& args, ops::Stream&) {
  for (int64_t slice = 0; slice < args.slice_slot.dim(0); ++slice) {
    const int32_t slot = checked_slot(args.slice_slot, slice, args.slots.length.dim(0));
    const int32_t num_wanted = at(args.num_wanted, slice);
    if (slot < 0 || num_wanted == 0) continue;
    const int32_t begin = at(args.query_start, slice), end = at(args.query_start, slice + 1);
    const int32_t active = num_active(args, slot, std::min(num_wanted, end - begin));
    if (active == 0) {
      at(args.token_ids, begin) = 0;
      *args.kv_rows.row<int64_t>(begin) = -1;
    }
    if (!args.tree_mask.is_null()) *args.tree_mask.row<uint64_t>(begin) = 1;
    for (int32_t i = 1; i < end - begin; ++i) place_draft(args, slot, begin, i - 1, i < active);
  }
}

void draft_rows(const ops::DraftRowsArgs& args, ops::Stream&) {
  const int64_t max_path = args.paths.dim(1);
  for (int64_t row = 0; row < args.position.dim(0); ++row) {
    at(args.position, row) = at(args.positions, at(args.row_tokens, row)) + 1;
    int32_t* const path = args.paths.row<int32_t>(row);
    int64_t length = 0;
    const int32_t slot = at(args.row_slot, row);
    // A row of a draft that the slot does not have may find any parents: its path means nothing but ends.
    for (int32_t draft = slot < 0 ? -1 : at(args.row_draft, row); draft >= 0 && length < max_path;
         draft = args.slots.parents.row<int32_t>(slot)[draft])
      path[length++] = args.slots.drafts.row<int32_t>(slot)[draft];
    std::fill(path + length, path + max_path, -1);
  }
}

namespace {

class Acceptance {
 public:
  Acceptance(const ops::AcceptDraftsArgs& args, int64_t slice)
      : args_(args),
        slice_(slice),
        slot_(checked_slot(args.slice_slot, slice, args.slots.length.dim(0))),
        begin_(at(args.query_start, slice)),
        end_(at(args.query_start, slice + 1)) {}

  void run() {
    at(args_.num_out, slice_) = at(args_.num_verified, slice_) = 0;
    at(args_.first_position, slice_) = slot_ < 0 ? 0 : at(args_.slots.length, slot_);
    int32_t num_rows = 0;
    if (slot_ >= 0) {
      num_rows = at(args_.num_wanted, slice_) == 0 ? take_given() : take_drafts();
      at(args_.slots.num_drafts, slot_) = 0;
    }
    for (int32_t k = num_rows; k < end_ - begin_; ++k) stays_not(begin_ + k);
    const int32_t draft_row = begin_ + std::max(num_rows, 1) - 1;
    at(args_.draft_row, slice_) = draft_row;
    *args_.draft_row_kv.row<int64_t>(slice_) = *args_.draft_kv_rows.row<int64_t>(draft_row);
    if (slot_ >= 0) at(args_.slots.length, slot_) += num_rows;
  }

 private:
  void come_out(int32_t token) {
    at(args_.slots.last_token, slot_) = token;
    const int32_t penalty_row = at(args_.penalty_row, slice_);
    // Bit 31 (in the prompt) stays as it is: the count below it never reaches 2^31.
    if (penalty_row >= 0) ++args_.counts.row<int32_t>(penalty_row)[token];
  }

  // Row length + k of the slot is that of query token `from`.
  void stays(int32_t k, int32_t from, int32_t next_id) {
    const int32_t token = begin_ + k;
    at(args_.source, token) = begin_ + from;
    at(args_.next_ids, token) = next_id;
    at(args_.draft_positions, token) = at(args_.slots.length, slot_) + k;
    *args_.draft_kv_rows.row<int64_t>(token) = *args_.kv_rows.row<int64_t>(token);
  }
  void stays_not(int32_t token) {
    at(args_.source, token) = token;
    at(args_.next_ids, token) = 0;
    at(args_.draft_positions, token) = 0;
    *args_.draft_kv_rows.row<int64_t>(token) = -1;
  }

  int32_t take_given() {
    const int32_t row = at(args_.first_row, slice_);
    if (row >= 0 && at(args_.sampled, row) >= 0) come_out(at(args_.sampled, row));
    for (int32_t k = 0; k < end_ - begin_; ++k) {
      const int32_t given = at(args_.next_given, begin_ + k);
      stays(k, k, given >= 0 ? given : at(args_.slots.last_token, slot_));
    }
    return end_ - begin_;
  }

  int32_t take_drafts() {
    const int32_t active =
        num_active(args_, slot_, std::min(at(args_.num_wanted, slice_), end_ - begin_));
    if (active == 0) return 0;
    at(args_.num_verified, slice_) = active - 1;
    int32_t count = 0;
    for (int32_t node = 0, next = 0; node >= 0; node = next) {
      const int32_t row = at(args_.first_row, slice_) + node;
      int32_t token = at(args_.sampled, row);
      if (token < 0) break;
      next = next_node(node, active, token);
      at(args_.out_rows, begin_ + count) = row;
      at(args_.out_tokens, begin_ + count) = token;
      stays(count++, node, token);
      come_out(token);
    }
    at(args_.num_out, slice_) = count > 0 ? count : -1;
    if (count > 0) return count;
    stays(0, 0, at(args_.slots.last_token, slot_));
    return 1;
  }

  // The draft below a node that holds, as a query token; -1 = none. With an agreement the token that comes out may be
  // the draft's.
  int32_t next_node(int32_t node, int32_t active, int32_t& token) const {
    const int32_t* const tokens = args_.slots.drafts.row<int32_t>(slot_);
    const int32_t* const parents = args_.slots.parents.row<int32_t>(slot_);
    for (int32_t draft = 0; draft < active - 1; ++draft) {
      if (parents[draft] != node - 1) continue;
      if (args_.agreement < 0) {
        if (tokens[draft] == token) return draft + 1;
        continue;
      }
      if (!agrees(node)) return -1;
      token = tokens[draft];
      return draft + 1;
    }
    return -1;
  }
  bool agrees(int32_t node) const {
    const int64_t position = int64_t{at(args_.slots.length, slot_)} + node;
    return uniform(philox(static_cast<uint64_t>(slot_), 1, static_cast<uint64_t>(position))[0]) <
           args_.agreement;
  }

  const ops::AcceptDraftsArgs& args_;
  const int64_t slice_;
  const int32_t slot_, begin_, end_;
};

}  // namespace

void accept_drafts(const ops::AcceptDraftsArgs& args, ops::Stream&) {
  for (int64_t slice = 0; slice < args.slice_slot.dim(0); ++slice) Acceptance(args, slice).run();
}

void move_rows(const ops::MoveRowsArgs& args, ops::Stream&) {
  const int64_t row_bytes = args.rows.dim(3), rows = args.rows.dim(1) * args.rows.dim(2);
  const int64_t tokens = args.source.dim(0);
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t source = at(args.source, t);
    if (*args.to.row<int64_t>(t) < 0 || source == t) continue;
    FATHOM_CHECK(source > t && source < tokens, "source[" << t << "] is " << source);
    const int64_t from = *args.from.row<int64_t>(source), to = *args.from.row<int64_t>(t);
    FATHOM_CHECK(from >= 0 && from < rows && to >= 0 && to < rows,
                 "row " << from << " goes to " << to << " of " << rows);
    for (int64_t layer = 0; layer < args.rows.dim(0); ++layer) {
      auto* const base = args.rows.row<uint8_t>(layer);
      std::memcpy(base + to * row_bytes, base + from * row_bytes, static_cast<size_t>(row_bytes));
    }
  }
}

}  // namespace fathom::cpu::reference
