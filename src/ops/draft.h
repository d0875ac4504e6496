#pragma once
// Drafting: from what the drafter says after each node to the drafts of a slot, in num_steps levels (EAGLE-2, Li et al.
// 2024, section 4). top_k 1 is a chain. Each level has the top_k best continuations of the nodes of the level above,
// by the sum of log-probabilities from the root, the slot's last token; of all of them the best become the drafts.
//
// grow_drafts: one level, with what the drafter said about the nodes of the level before, and the inputs of the pass
// that computes the nodes of this one.
//   slots       DraftSlots (ops/verify.h), the drafts of the slots in place;  block_tables i32[slots, max_blocks]
//   slice_slot  i32[slices]    -1 = padding
//   num_asked   i32[slices]    drafts that the slot shall have, at most; 0 = none
//   top_ids     i32[slices * fan, top_k], top_logprobs f32 the same: best first; id -1 = there is none. fan is the
//               number of nodes the level before has: 1 on level 1 (the root), else top_k
//   Kept between the levels of a step, written by the operator:
//   node_token, node_parent i32[slices, max_nodes], node_score f32[slices, max_nodes]   max_nodes >= top_k +
//               (level - 1) * top_k^2
//   fed         i32[slices, max_fed]   nodes that the drafter computes, top_k of each level; max_fed >= level * top_k
// When `is_last`, the best nodes become the drafts: at most num_asked, by falling score, ties by the order in which
// they were said, so that a parent comes before its children and the first n of them are a tree too.
//   drafts, parents, num_drafts of the slot   in place; 0 drafts where none is asked for. Padding changes nothing
//   out_drafts, out_parents i32[slices, max_drafts], out_count i32[slices]   out: the same per slice
// Otherwise, the next pass. A chain feeds the newest node, a tree all of them since the first level: width = 1 or
// level * top_k query tokens of each slice. The rows before belong to the sequence, length rows; row length + i is
// node i's and lies in the block of the sequence's last row or, behind that, in a block of the slot's own,
// first_spare_block + slot. Slices that ask for nothing are padding: token 0, position 0, slot -1, kv_len 0.
//   token_ids, positions i32[slices * width];  kv_rows i64[slices * width];  kv_len i32[slices]   out
//   tables      i32[slices, max_blocks]   out
//   tree_mask   u64[slices * width]       out; null for a chain
//   source      i32[slices * width]       out: row of the pass before with the hidden state that belongs to the node's
//                                         parent; -1 - s: the root's of slice s. Null for a chain
//   logit_rows  i32[slices * top_k]       out: the newest nodes. Null for a chain
//   REQUIRES: length >= 1 where something is asked for; level * top_k <= 64 and <= block_tokens.
//
// select_rows: out[i] = rows[i] >= 0 ? a[rows[i]] : b[-1 - rows[i]]
//   a act[., dim], b act[., dim];  rows i32[outputs];  out act[outputs, dim]

#include "ops/backend.h"
#include "ops/verify.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct GrowDraftsArgs {
  int level = 1, top_k = 1;
  bool is_last = true;
  DraftSlots slots;
  tensor::Tensor block_tables;
  tensor::Tensor slice_slot, num_asked, top_ids, top_logprobs;
  tensor::Tensor node_token, node_parent, node_score, fed;
  tensor::Tensor out_drafts, out_parents, out_count;
  int block_tokens = 64;
  int64_t first_spare_block = 0;
  tensor::Tensor token_ids{}, positions{}, kv_rows{}, kv_len{}, tables{}, tree_mask{}, source{},
      logit_rows{};
};
// Query tokens of a slice in the pass after a level.
constexpr int draft_width(int top_k, int level) { return top_k == 1 ? 1 : top_k * level; }
void grow_drafts(const GrowDraftsArgs& args, Stream& stream);

struct SelectRowsArgs {
  tensor::Tensor a, b, rows, out;
};
void select_rows(const SelectRowsArgs& args, Stream& stream);

}  // namespace fathom::ops
