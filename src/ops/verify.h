#pragma once
// Verification of drafts (docs/contracts/runner.md, section 8). A slot's drafts are a tree below its last token, a
// chain for instance, parents before children; how many of them hold is decided here, on the device.
//
// State of the slots of a speculating runner, DraftSlots (owned by the runner). last_token and length are those of
// ops/step.h; beside them:
//   drafts      i32[slots, max_drafts]   their tokens
//   parents     i32[slots, max_drafts]   index of an earlier draft, -1 = the last token
//   num_drafts  i32[slots]
//   max_rows    i32[slots]               rows at or beyond it are inert
//
// A slice with num_wanted[s] > 0 goes on from its slot: query token 0 is the last token, query token i + 1 is draft
// i. Of its query tokens the first 1 + min(num_wanted - 1, num_drafts, max_rows - length - 1) are active, none when
// length >= max_rows; the others are inert: they belong to no row of the cache, and what comes out of them means
// nothing. A slice with num_wanted[s] == 0 has given tokens (a prefill), all of them active. Slot -1 is padding.
//
// draft_inputs: after step_inputs, in place, for slices with num_wanted > 0
//   slice_slot, num_wanted  i32[slices];  query_start i32[slices + 1]
//   token_ids   i32[tokens]   those of drafts; 0 for inert ones
//   positions   i32[tokens]   length + depth of the draft
//   kv_rows    i64[tokens]   -1 for inert ones
//   tree_mask   u64[tokens]   null: the drafts are chains. Else the last token, the drafts above and itself
//   REQUIRES with tree_mask: at most 64 query tokens in such a slice.
//
// draft_rows: what a row of logits needs to know of its place, which the host does not
//   positions   i32[tokens]                of the query tokens
//   row_tokens  i32[rows]                  query token of the row
//   row_slot    i32[rows]                  -1 = padding
//   row_draft   i32[rows]                  the draft whose row it is, -1 = none
//   position    i32[rows]                  out: positions[row_tokens[r]] + 1
//   paths       i32[rows, max_path]        out: tokens of the row's draft and of those above it, then -1
//
// accept_drafts: after sampling. For a slice with num_wanted > 0: the token sampled at query token 0 comes out; while
// an active draft below the query token just read has that token, it is accepted and the token sampled at its row comes
// out too. A draft whose own row failed (-1) is not accepted. The length grows by the number of tokens that come out;
// when query token 0 failed none does, the length grows by one and last_token stays. A slice without active query
// tokens changes nothing.
//   A slice with num_wanted == 0 advances as in commit_tokens: by all its tokens, last_token becomes that of first_row.
//   All: last_token is the last token that came out; counts (ops/sample.h) of penalty_row gain each; num_drafts
//   becomes 0.
//   sampled     i32[rows]     first_row i32[slices]: row of query token 0, those of further ones follow it (num_wanted
//                             > 0); row of the last query token, or -1 (num_wanted == 0)
//   next_given  i32[tokens]   of slices with given tokens: the token after each; -1 = the slot's last_token, afterwards
//   kv_rows    i64[tokens]   of the forward pass
//   agreement   >= 0: whatever the target says, the first active draft below a query token is accepted with this
//               probability and comes out. For measurements with random weights only
//   num_out     i32[slices]   out: tokens that came out; -1 = query token 0 failed. 0 for given tokens and padding
//   out_rows, out_tokens i32[tokens]  out: of slice s at query_start[s] + k: where the k-th was sampled, and it
//   num_verified, first_position i32[slices]   out: active drafts; position of query token 0
//   What the drafter computes next, a row for every token of the slice that stays, in order: the k-th stays as row
//   length + k.
//   source      i32[tokens]   out: query token of the batch whose hidden state it is; itself when none stays there
//   next_ids    i32[tokens]   out: the token after it; 0 when none stays
//   draft_positions i32[tokens], draft_kv_rows i64[tokens]   out: 0 and -1 when none stays
//   draft_row   i32[slices]   out: the last one that stays; the slice's first when none does
//   draft_row_kv i64[slices]  out: draft_kv_rows of it
//
// move_rows: brings accepted rows of a tree together. For token t with to[t] >= 0 and source[t] != t: the row at
// from[source[t]] goes to from[t], in order of t, in every layer.
//   rows        u8[layers, blocks, block_tokens, row_bytes]   in place; a cache of several planes takes a call for each
//   from, to    i64[tokens]   kv_rows, draft_kv_rows of accept_drafts
//   source      i32[tokens];  query_start i32[slices + 1]
//   REQUIRES: within a slice source rises and source[t] >= t.

#include "ops/backend.h"
#include "tensor/expect.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct DraftSlots {
  tensor::Tensor last_token, length, max_rows, drafts, parents, num_drafts;
};
// Aborts where a shape is not as above: for the operators that take it.
void expect_draft_slots(const DraftSlots& slots, tensor::Dim& num_slots);

struct DraftInputsArgs {
  DraftSlots slots;
  tensor::Tensor slice_slot, query_start, num_wanted;
  tensor::Tensor token_ids, positions, kv_rows, tree_mask;
};
void draft_inputs(const DraftInputsArgs& args, Stream& stream);

struct DraftRowsArgs {
  DraftSlots slots;
  tensor::Tensor positions, row_tokens, row_slot, row_draft;
  tensor::Tensor position, paths;
};
void draft_rows(const DraftRowsArgs& args, Stream& stream);

struct AcceptDraftsArgs {
  DraftSlots slots;
  tensor::Tensor slice_slot, query_start, num_wanted, first_row, penalty_row, counts;
  tensor::Tensor sampled, next_given, kv_rows;
  float agreement = -1;
  tensor::Tensor num_out, out_rows, out_tokens, num_verified, first_position;
  tensor::Tensor source, next_ids, draft_positions, draft_kv_rows, draft_row, draft_row_kv;
};
void accept_drafts(const AcceptDraftsArgs& args, Stream& stream);

struct MoveRowsArgs {
  tensor::Tensor rows, query_start, source, from, to;
};
void move_rows(const MoveRowsArgs& args, Stream& stream);

}  // namespace fathom::ops
