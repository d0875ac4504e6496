#pragma once
// The device side of slots: a running sequence's last token, length and block table live on the device and
// advance there, so a step can be enqueued before the host knows the tokens of the one before.
//
// Slot state (owned by the runner):
//   last_token    i32[slots]              the token that the next decode slice feeds
//   length        i32[slots]              rows in the cache
//   block_tables  i32[slots, max_blocks]
//
// step_inputs: from slices to the inputs of the model
//   slice_slot   i32[slices]          -1 = padding: its tokens are 0 at position 0 in row -1, its kv_len is 0
//   query_start  i32[slices + 1]      prefix sums of query tokens
//   given_token  i32[tokens]          the token id, or -1 = the slot's last_token
//   relative     i32[tokens]          position of the query token relative to the slot's length
//   token_ids    i32[tokens]          out
//   positions    i32[tokens]          out: length + relative
//   kv_rows     i64[tokens]          out: flat cache row of query token i of its slice: row length + i
//   kv_len       i32[slices]          out: length + query tokens of the slice
//   tables       i32[slices, max_blocks]  out: the slots' block tables
//   REQUIRES: blocks for all rows were appended; block_tokens is the size of a block.
//
// commit_tokens: after sampling. For slice s: length += query tokens; if commit_row[s] >= 0 and token =
// sampled[commit_row[s]] >= 0 then last_token = token, and counts (ops/sample.h) of penalty_row[s] gain it
// when penalty_row[s] >= 0. A failed row (-1) leaves last_token as it was: the next step may already be
// enqueued and must read a valid id.
//   A slice of slot -1 is padding and changes nothing.
//   REQUIRES: slice_slot pairwise distinct, and so penalty_row, except for -1.
//   sampled      i32[rows]            -1 = failed
//   commit_row   i32[slices]          -1 = nothing sampled
//   penalty_row  i32[slices]          -1 = none
//   counts       i32[penalty_rows, vocab_size]   null when no slice has penalties
//
// What an admission or an append of blocks changes, between steps:
//
// write_words: *address[i] = value[i]. DeviceWrites (ops/device_writes.h) collects them.
//   address      u64[words]           of four aligned bytes on the device each, pairwise distinct
//   value        i32[words]           the bits
//
// count_tokens: tokens of a request whose slot begins to count (counts of ops/sample.h).
//   counts       i32[vocab_size]      one row, in place; begins: it is cleared first
//   tokens       i32[tokens]          below vocab_size; the first num_prompt set bit 31, the others count as output

#include "ops/backend.h"
#include "tensor/tensor.h"

namespace fathom::ops {

struct StepInputsArgs {
  tensor::Tensor last_token, length, block_tables;
  tensor::Tensor slice_slot, query_start, given_token, relative;
  int block_tokens = 64;
  tensor::Tensor token_ids, positions, kv_rows, kv_len, tables;
};
void step_inputs(const StepInputsArgs& args, Stream& stream);

struct CommitTokensArgs {
  tensor::Tensor last_token, length;
  tensor::Tensor slice_slot, query_start, sampled, commit_row, penalty_row, counts;
};
void commit_tokens(const CommitTokensArgs& args, Stream& stream);

struct WriteWordsArgs {
  tensor::Tensor address, value;
};
void write_words(const WriteWordsArgs& args, Stream& stream);

struct CountTokensArgs {
  tensor::Tensor counts, tokens;
  int64_t num_prompt = 0;
  bool begins = true;
};
void count_tokens(const CountTokensArgs& args, Stream& stream);

}  // namespace fathom::ops
